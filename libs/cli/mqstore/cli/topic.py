"""``mqstore topic …``: list, show, create, change and delete topics."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.completion import complete_topic
from mqstore.cli.output import Column, columns_of, field_column, yes_no
from mqstore.cli.session import DryRun, Session, Yes, service_command

if TYPE_CHECKING:
    from mqstore.wire.topics import ChangedTopic

TopicName = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)]
Queues = Annotated[int | None, typer.Option(min=1, help="Number of queues to read and write.")]
ReadQueues = Annotated[int | None, typer.Option(min=1, help="Number of queues to read.")]
WriteQueues = Annotated[
    int | None,
    typer.Option(min=1, help="Number of queues to write; lower it first to drain the others."),
]
Perm = Annotated[int | None, typer.Option(help="2 write, 4 read, 6 both.")]
Order = Annotated[
    bool | None, typer.Option("--order/--no-order", help="Mark as a topic with global order.")
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute", metavar="NAME=VALUE", help="Attribute, in stores of 5.x. Repeatable."
    ),
]

SYSTEM_PREFIXES: Final = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC", "TBW102")
PERMISSIONS: Final = {2: "write", 4: "read", 6: "read, write"}

_COLUMNS: Final = (
    field_column("topic", "topic"),
    field_column("queues", "queues", right=True),
    Column("perm", lambda topic: topic.perm, lambda perm: PERMISSIONS.get(perm, str(perm))),
    field_column("order", "order", yes_no),
)
_DETAILS: Final = (
    *_COLUMNS,
    field_column("read-queues", "read_queues"),
    field_column("filter", "filter_type"),
    Column("attributes", lambda topic: properties_text(topic.attributes) or None),
)
_QUEUES: Final = (
    field_column("shard", "shard", right=True),
    field_column("queue", "queue_id", right=True),
    field_column("first", "min_offset", right=True),
    field_column("next", "max_offset", right=True),
    Column("messages", lambda queue: queue.max_offset - queue.min_offset, right=True),
)


@service_command
def ls(
    session: Session,
    system: Annotated[
        bool, typer.Option("--system", help="Also retry, dead letter and system topics.")
    ] = False,
) -> None:
    """List the topics.

    Examples:

    \b
        mqstore topic ls
        mqstore topic ls -o json | jq -r .topic
    """
    from mqstore.client import every_page  # slow to import

    topics = [each for page in every_page(session.client.topics) for each in page.topics]
    chosen = [each for each in topics if system or not is_system(each.topic)]
    session.out.items(chosen, _COLUMNS)


@service_command
def info(session: Session, topic: TopicName) -> int:
    """Show a topic: its settings, and the bounds of its queues.

    Examples:

    \b
        mqstore topic info orders
        mqstore topic info orders -o yaml
    """
    found = session.client.topic(topic)
    queues = session.client.queues(topic)
    if session.out.is_table:
        session.out.item(found, _DETAILS)
        session.out.line("")
        session.out.items(queues.queues, _QUEUES)
    else:
        document = found.model_dump(mode="json", by_alias=True)
        document["queueBounds"] = queues.model_dump(mode="json", by_alias=True)["queues"]
        session.out.item(document, columns_of(document))
    return session.warn_of_missing(queues.shards)


@service_command
def create(
    session: Session,
    topic: TopicName,
    queues: Queues = None,
    perm: Perm = None,
    order: Order = None,
    attribute: Attributes = None,
    dry_run: DryRun = False,
) -> None:
    """Create a topic. Needs the role admin.

    Examples:

    \b
        mqstore topic create orders --queues 8
        mqstore topic create orders --attribute +message.type=FIFO --dry-run
    """
    if _exists(session, topic):
        raise ValueError(f"the topic {topic} exists; `mqstore topic update {topic}` changes it")
    fields = _fields(queues, perm, order, attribute)
    if dry_run:
        session.out.done(f"would create the topic {topic}: {_fields_text(fields) or 'defaults'}")
        return
    made = session.client.change_topic(topic, **fields)
    session.out.done(f"created the topic {topic} with {made.queues} queues", made)


@service_command
def update(
    session: Session,
    topic: TopicName,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Perm = None,
    order: Order = None,
    attribute: Attributes = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Change the given settings of a topic. Needs the role admin.

    Consumers receive from as many queues as the topic has to read or to write. Before queues are
    taken away, drain them: lower --write-queues, wait until `mqstore group lag` is 0, then lower
    --read-queues.

    Examples:

    \b
        mqstore topic update orders --queues 16
        mqstore topic update orders --write-queues 3
        mqstore topic update orders --perm 4 --dry-run
    """
    fields = _fields(queues, perm, order, attribute)
    fields |= {
        name: count
        for name, count in (("read_queues", read_queues), ("write_queues", write_queues))
        if count is not None
    }
    if not fields:
        raise ValueError(
            "nothing to change; give --queues, --read-queues, --write-queues, --perm, --order or "
            "--attribute"
        )
    before = session.client.topic(topic)
    counts = [fields.get(name) for name in ("queues", "read_queues", "write_queues")]
    plan = None
    if any(each is not None and each < max(before.read_queues, before.queues) for each in counts):
        plan = session.client.change_topic(topic, **fields, dry_run=True)
    hidden = "" if plan is None else _hidden_text(plan)
    if dry_run:
        now = f"{before.queues} queues, perm {before.perm}"
        text = f"would change the topic {topic} ({now}): {_fields_text(fields)}"
        session.out.done(f"{text}; {hidden}" if hidden else text, plan)
        return
    if plan is not None and plan.unread:
        session.confirm(f"Change the topic {topic}: {hidden}?", yes=yes)
        fields["allow_unread"] = True
    session.out.done(f"changed the topic {topic}", session.client.change_topic(topic, **fields))


@service_command
def delete(
    session: Session, topic: TopicName, yes: Yes = False, dry_run: DryRun = False
) -> int | None:
    """Delete a topic with its queues, and the offsets of groups in it. Needs the role admin.

    The messages stay in the log until they expire.

    Examples:

    \b
        mqstore topic delete orders --dry-run
        mqstore topic delete orders --yes
    """
    plan = session.client.delete_topic(topic, dry_run=True)
    lost = f"{plan.messages} messages in {plan.queues} queues"
    if plan.groups:
        lost += f", offsets of {', '.join(plan.groups)}"
    if dry_run:
        session.out.done(f"would delete the topic {topic}: {lost}", plan)
        return session.warn_of_missing(plan.shards)
    session.confirm(f"Delete the topic {topic}: {lost}?", yes=yes)
    done = session.client.delete_topic(topic)
    session.out.done(f"deleted the topic {topic}: {lost}", done)
    return session.warn_of_missing(done.shards)


def is_system(topic: str) -> bool:
    """Whether a topic is one of RocketMQ's own."""
    return topic.startswith(SYSTEM_PREFIXES)


def properties_text(properties: dict[str, str]) -> str:
    """Properties in one line, as ``name=value``."""
    return " ".join(f"{name}={value}" for name, value in properties.items())


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """The values of a repeatable ``NAME=VALUE`` option. Raises ValueError for another form."""
    found = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise ValueError(f"{option} {each!r} is not NAME=VALUE")
        if name in found:
            raise ValueError(f"{option} {name} is given twice; give each name once")
        found[name] = value
    return found


def _hidden_text(plan: ChangedTopic) -> str:
    """The messages that a change hides, and the groups that have not consumed them; or nothing."""
    if not plan.hidden_messages:
        return ""
    by = ", ".join(f"{each.group or 'any group'} ({each.messages})" for each in plan.unread)
    text = f"{plan.hidden_messages} messages in {plan.hidden_queues} queues can be received no more"
    return f"{text}, not consumed by {by}" if by else f"{text}; all groups have consumed them"


def _exists(session: Session, topic: str) -> bool:
    from mqstore.client import ProblemError

    try:
        session.client.topic(topic)
    except ProblemError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def _fields(
    queues: int | None, perm: int | None, order: bool | None, attribute: list[str] | None
) -> dict[str, Any]:
    if perm not in (None, *PERMISSIONS):
        raise ValueError(f"--perm {perm} is none of 2 (write), 4 (read) and 6 (both)")
    attributes = pairs(attribute, "--attribute") or None
    fields = {"queues": queues, "perm": perm, "order": order, "attributes": attributes}
    return {name: value for name, value in fields.items() if value is not None}


def _fields_text(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())
