"""``mqstore group lag``: prints the lag of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.completion import complete_group, complete_topic
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.output import Column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import duration

if TYPE_CHECKING:
    from mqstore.client import GroupLag, GroupLags, GroupSum
    from mqstore.wire.lags import OffsetsSource, TopicSum

Row = tuple[Any, ...]
"""A group or topic, and a topic or queue of it."""

_GROUPS: Final = (
    Column("group", lambda row: row[0].group),
    Column("topic", lambda row: row[1].topic),
    Column("lag", lambda row: row[1].lag, right=True),
    Column("oldest", lambda row: row[1].lag_ms, duration, right=True),
    Column("expired", lambda row: _expired(row[1]), right=True),
)
_QUEUES: Final = (
    Column("topic", lambda row: row[0].topic),
    Column("shard", lambda row: row[1].shard, right=True),
    Column("queue", lambda row: row[1].queue_id, right=True),
    Column("committed", lambda row: row[1].committed, right=True),
    Column("end", lambda row: row[1].max_offset, right=True),
    Column("lag", lambda row: row[1].lag, right=True),
    Column("oldest", lambda row: row[1].lag_ms, duration, right=True),
)


@service_command
def lag(
    session: Session,
    group: Annotated[
        str | None,
        typer.Argument(
            help="Consumer group, shown by queue. [default: all groups]",
            autocompletion=complete_group,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only this topic.", autocompletion=complete_topic)
    ] = None,
) -> int:
    """Print the lag of consumer groups, in messages and in time.

    Exit code 0: printed; 1: a shard is missing; 2: refused; 3: the query service does not answer.

    Examples:

    \b
        mqstore group lag
        mqstore group lag billing --topic orders
        mqstore group lag -o json | jq '.groups[] | select(.lag > 1000)'
    """
    if group is not None:
        return _print_group(session, session.client.lag(group, topic=topic))
    return _print_groups(session, topic)


def _print_groups(session: Session, topic: str | None) -> int:
    from mqstore.client import every_page  # slow to import

    pages = list(every_page(session.client.lags, topic=topic))
    if session.out.is_document:
        session.out.items(pages, _GROUPS)
        return max(map(_exit_code, pages))
    if session.out.is_table:
        _print_source(session, pages[0])
    groups = [group for page in pages for group in page.groups]
    rows = [(group, each) for group in groups for each in group.topics]
    session.out.items(rows, _GROUPS)
    for group in groups:
        if session.out.is_table and (states := _states(group)):
            session.out.line(f"{group.group}  {states}")
    return max(map(_exit_code, pages))


def _print_group(session: Session, found: GroupLag) -> int:
    if session.out.is_document:
        session.out.item(found, _QUEUES)
        return _exit_code(found)
    if session.out.is_table:
        _print_source(session, found)
    rows = [(topic, queue) for topic in found.topics for queue in topic.queues]
    session.out.items(rows, _QUEUES)
    if session.out.is_table and (states := _states(found)):
        session.out.line(states)
    return _exit_code(found)


def _states(group: GroupSum | GroupLag) -> str:
    """The lag by state, where not all of it waits for its first delivery; else empty."""
    counts: dict[str, int | str] = {}
    if (states := group.states) is not None:
        counts = {
            "leased": states.leased,
            "retrying": states.retrying,
            "acknowledged": states.acknowledged,
            "delayed": "?" if states.delayed is None else states.delayed,
        }
    counts["dead"] = group.dead_letters
    if not any(counts.values()):
        return ""
    if states is not None:
        counts = {"waiting": states.waiting, **counts}
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _expired(topic: TopicSum) -> int:
    """Messages that expired before the group came to them, with those that it has passed since."""
    return topic.expired if topic.expired_total is None else topic.expired_total


def _exit_code(answer: GroupLags | GroupLag) -> int:
    is_whole = answer.shards is None or not answer.shards.missing
    return EXIT_OK if is_whole else EXIT_FINDINGS


def source_text(offsets: OffsetsSource) -> str:
    """Name where offsets come from, and how old they are."""
    match offsets.source:
        case "writer":
            return "offsets of store-writer, as of now"
        case "none":
            return f"store-writer ({offsets.writer}) did not reply, and there is no file of offsets"
    file = "the backup of a damaged file" if offsets.source == "backup" else "the saved file"
    saved = "" if offsets.age_ms is None else f", {duration(offsets.age_ms)} old"
    return f"offsets of {file}{saved}; store-writer ({offsets.writer}) did not reply"


def _print_source(session: Session, answer: GroupLags | GroupLag) -> None:
    session.out.line(source_text(answer.offsets))
    if answer.shards is not None:
        for number in answer.shards.missing:
            why = answer.shards.why[str(number)]
            session.out.line(f"shard {number} is not included: {why}")
