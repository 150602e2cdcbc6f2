"""``mqstore group …``: list, show, change and delete consumer groups, and move their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.completion import complete_group, complete_topic
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.output import Column, columns_of, field_column, yes_no
from mqstore.cli.session import DryRun, Session, Yes, service_command
from mqstore.cli.times import TIME_HELP, parse_when
from mqstore.cli.topic import TopicName

if TYPE_CHECKING:
    from mqstore.client import OffsetsReset

GroupName = Annotated[
    str, typer.Argument(help="The consumer group.", autocompletion=complete_group)
]
QueueIds = Annotated[
    list[int] | None, typer.Option("--queue", min=0, help="Only this queue. Repeatable.")
]

_COLUMNS: Final = (
    field_column("group", "group"),
    field_column("configured", "configured", yes_no),
    Column("retries", lambda group: group.config.retry_times_max, right=True),
    Column("topics", lambda group: " ".join(group.topics) or None),
)
_OFFSETS: Final = (
    field_column("topic", "topic"),
    field_column("shard", "shard", right=True),
    field_column("queue", "queue_id", right=True),
    field_column("committed", "committed", right=True),
    field_column("end", "max_offset", right=True),
    field_column("lag", "lag", right=True),
)
_CHANGES: Final = (
    field_column("shard", "shard", right=True),
    field_column("queue", "queue_id", right=True),
    field_column("before", "before", right=True),
    field_column("after", "after", right=True),
    field_column("first", "min_offset", right=True),
    field_column("end", "max_offset", right=True),
)


@service_command
def ls(session: Session) -> None:
    """List the consumer groups that were created or have offsets.

    Examples:

    \b
        mqstore group ls
        mqstore group ls -o json | jq -r .group
    """
    from mqstore.client import every_page  # slow to import

    groups = [each for page in every_page(session.client.groups) for each in page.groups]
    session.out.items(groups, _COLUMNS)


@service_command
def info(session: Session, group: GroupName) -> int:
    """Show a group: its settings and its committed offsets.

    Examples:

    \b
        mqstore group info billing
        mqstore group info billing -o yaml
    """
    found = session.client.group(group)
    from mqstore.client import every_page  # slow to import

    pages = list(every_page(session.client.offsets, group))
    offsets = pages[0].model_copy(
        update={"offsets": tuple([each for page in pages for each in page.offsets])}
    )
    if session.out.is_table:
        session.out.item(found, _COLUMNS)
        settings = found.config.model_dump(by_alias=True)
        session.out.item(settings, columns_of(settings))
        session.out.line("")
        session.out.items(offsets.offsets, _OFFSETS)
    else:
        document = found.model_dump(mode="json", by_alias=True)
        document["offsets"] = offsets.model_dump(mode="json", by_alias=True)["offsets"]
        session.out.item(document, columns_of(document))
    return session.warn_of_missing(offsets.shards)


@service_command
def update(
    session: Session,
    group: GroupName,
    retries: Annotated[
        int | None, typer.Option(min=0, help="Deliveries again before a dead letter.")
    ] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="Let the group consume or not.")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--shared", help="Kind of the group; 5.x only.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Change the given settings of a group, or create it. Needs the role admin.

    Examples:

    \b
        mqstore group update billing --retries 5
        mqstore group update billing --no-consume --dry-run
    """
    fields = {
        "retry_times_max": retries,
        "consume_enable": consume,
        "consume_message_orderly": ordered,
    }
    chosen = {name: value for name, value in fields.items() if value is not None}
    if dry_run:
        text = ", ".join(f"{name} {value}" for name, value in chosen.items())
        session.out.done(f"would change the group {group}: {text or 'create it'}")
        return
    changed = session.client.put_group(
        group,
        retry_times_max=retries,
        consume_enable=consume,
        consume_message_orderly=ordered,
    )
    session.out.done(f"changed the group {group}", changed)


@service_command
def delete(
    session: Session,
    group: GroupName,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Delete the settings only.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete a group: its settings and its offsets. Needs the role admin.

    Examples:

    \b
        mqstore group delete billing --dry-run
        mqstore group delete billing --yes
    """
    found = session.client.group(group)
    offsets = f"its offsets in {', '.join(found.topics) or 'no topic'}"
    lost = "its settings" if keep_offsets else f"its settings and {offsets}"
    if dry_run:
        session.out.done(f"would delete the group {group}: {lost}", found)
        return
    session.confirm(f"Delete the group {group}: {lost}?", yes=yes)
    session.client.delete_group(group, clean_offset=not keep_offsets)
    session.out.done(f"deleted the group {group}: {lost}")


@service_command
def reset(
    session: Session,
    group: GroupName,
    topic: TopicName,
    to: Annotated[
        str, typer.Option(metavar="earliest|latest|TIME", help=f"New position; a time {TIME_HELP}.")
    ],
    queue: QueueIds = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Move a group in a topic to its beginning, its end or a time. Needs the role admin.

    Examples:

    \b
        mqstore group reset billing orders --to earliest --dry-run
        mqstore group reset billing orders --to "2h ago" --yes
        mqstore group reset billing orders --to 2026-11-26T12:00:00Z --queue 0
    """
    is_name = to in ("earliest", "latest")
    timestamp = None if is_name else parse_when(to)
    place = to if is_name else "timestamp"

    def change(*, is_dry: bool) -> OffsetsReset:
        """Reset the offsets, or return what would change."""
        return session.client.reset_offsets(
            group, topic, place, timestamp=timestamp, queue_ids=queue, dry_run=is_dry
        )

    if not dry_run:
        session.confirm(f"Move the group {group} in {topic} to {to}?", yes=yes)
    return _print_changes(session, change(is_dry=dry_run))


@service_command
def seek(
    session: Session,
    group: GroupName,
    topic: TopicName,
    queue: Annotated[int, typer.Option(min=0, help="The queue.")],
    to: Annotated[int, typer.Option(min=0, metavar="OFFSET", help="Next message to consume.")],
    dry_run: DryRun = False,
) -> None:
    """Move a group in one queue to an offset. --shard names the shard, where there are several.

    Examples:

    \b
        mqstore group seek billing orders --queue 0 --to 4711 --dry-run
        mqstore group seek billing orders --queue 0 --to 4711 --shard 1
    """
    place = f"queue {queue} of {topic}"
    if dry_run:
        from mqstore.client import every_page  # slow to import

        pages = every_page(session.client.offsets, group, topic=topic)
        offsets = [each for page in pages for each in page.offsets]
        now = [each.committed for each in offsets if each.queue_id == queue]
        before = ", ".join("-" if each is None else str(each) for each in now) or "-"
        session.out.done(f"would move the group {group} in {place} from {before} to {to}")
        return
    shard = session.access.shard
    done = session.client.commit(group, topic, {queue: to}, allow_back=True, shard=shard)
    session.out.done(f"moved the group {group} in {place} to {to}", done)


@service_command
def clone(
    session: Session,
    source: Annotated[
        str, typer.Argument(help="Group to copy.", autocompletion=complete_group, metavar="FROM")
    ],
    target: Annotated[
        str, typer.Argument(help="Group that changes.", autocompletion=complete_group, metavar="TO")
    ],
    topic: Annotated[
        str | None,
        typer.Argument(
            help="The topic. [default: all topics of FROM]", autocompletion=complete_topic
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Set the offsets of a group to those of another. Needs the role admin.

    Examples:

    \b
        mqstore group clone billing billing-test --dry-run
        mqstore group clone billing billing-test orders --yes
    """
    topics = [topic] if topic is not None else list(session.client.group(source).topics)
    if not topics:
        raise ValueError(f"the group {source} has no offsets to copy")
    if not dry_run:
        session.confirm(
            f"Set the offsets of {target} in {', '.join(topics)} to those of {source}?", yes=yes
        )
    code = EXIT_OK
    for each in topics:
        done = session.client.reset_offsets(target, each, "group", source=source, dry_run=dry_run)
        code = max(code, _print_changes(session, done))
    return code


def _print_changes(session: Session, done: OffsetsReset) -> int:
    if session.out.is_table:
        verb = "would move" if done.dry_run else "moved"
        session.out.line(f"{verb} {done.group} in {done.topic}")
    session.out.items(done.queues, _CHANGES)
    return session.warn_of_missing(done.shards)
