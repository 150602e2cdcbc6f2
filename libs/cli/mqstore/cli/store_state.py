"""Commands about the store of a running service: delayed messages, retention, index and scrub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.output import Column, columns_of, field_column, size, yes_no
from mqstore.cli.session import DryRun, Session, Yes, service_command
from mqstore.cli.times import show_time

if TYPE_CHECKING:
    from mqstore.client import Retention

_DELAYS: Final = (
    Column("level", lambda each: each.get("level"), right=True),
    Column("delay", lambda each: each.get("delay")),
    Column("pending", lambda each: each["pending"], right=True),
    Column("next-due", lambda each: each["nextDueMs"], show_time),
    Column("waiting", lambda each: each["waiting"]),
)
SEGMENTS: Final = (
    Column("segment", lambda each: each["name"]),
    Column("size", lambda each: each["size"], size, right=True),
    Column("expires", lambda each: each["expiresMs"], show_time),
    Column("not-before", lambda each: each["notBeforeMs"], show_time),
    Column("reason", lambda each: each["why"]),
    Column("held-by", lambda each: ", ".join(each["heldBy"]) or None),
)
_INDEX: Final = (
    field_column("files", "index_files"),
    field_column("complete", "index_complete", yes_no),
    field_column("indexed-to", "index_offset"),
    field_column("behind", "index_behind", size),
    field_column("hash-slots", "hash_slots"),
    field_column("items", "index_num"),
    field_column("trouble", "index_trouble"),
)
_REBUILD: Final = (
    field_column("rebuild", "id"),
    field_column("owner", "owner"),
    field_column("since", "since_ms", show_time),
    field_column("expires", "expires_ms", show_time),
)
_SCRUB: Final = (
    field_column("position", "position"),
    field_column("checked", "checked_bytes", size),
    field_column("began", "began_at_ms", show_time),
    field_column("last-ended", "last_pass_ended_at_ms", show_time),
    field_column("findings", "finding_count"),
    field_column("repairs", "repair_count"),
    field_column("tombstones", "tombstone_count"),
)
_FINDINGS: Final = (
    field_column("offset", "offset", right=True),
    field_column("length", "length", right=True),
    field_column("found", "found_at_ms", show_time),
    field_column("topic", "topic"),
    field_column("queue", "queue_id", right=True),
    field_column("queue-offset", "queue_offset", right=True),
)

_REPAIRS: Final = (
    Column("offset", lambda each: each["offset"], right=True),
    Column("length", lambda each: each["length"], right=True),
    Column("repair", lambda each: each["kind"]),
    Column("replica", lambda each: each.get("replica")),
    Column("topic", lambda each: each.get("topic")),
    Column("queue", lambda each: each.get("queueId"), right=True),
    Column("queue-offset", lambda each: each.get("queueOffset"), right=True),
)


@service_command
def delays(session: Session) -> None:
    """List the delay levels, and count the messages that wait; the last row is those with a time.

    Examples:

    \b
        mqstore delay ls
        mqstore delay ls -o json | jq 'select(.pending > 0)'
    """
    found = session.client.delays().model_dump(mode="json", by_alias=True)
    timed = {"level": None, "delay": "at a time", **found["timed"]}
    session.out.items([*found["levels"], timed], _DELAYS)


@service_command
def retention_plan(session: Session) -> None:
    """Show which segments retention will delete, when and why. Deletes nothing.

    Examples:

    \b
        mqstore retention plan
        mqstore retention plan --shard 1 -o csv
    """
    _print_plan(session, session.client.retention())


@service_command
def retention_run(session: Session, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Delete the segments that have expired now, at any hour. Needs the role admin.

    Examples:

    \b
        mqstore retention run --dry-run
        mqstore retention run --yes
    """
    plan = session.client.retention()
    if dry_run:
        _print_plan(session, plan)
        return
    session.confirm(f"Delete {size(plan.bytes_to_go)} of messages that have expired?", yes=yes)
    if not plan.deletes:
        session.out.done("nothing is deleted: store-writer was started with retention=false", plan)
        return
    done = session.client.run_retention()
    session.out.done(f"retention deletes {size(done.bytes_to_go)}", done)


@service_command
def index_status(session: Session) -> int:
    """Show the state of the index of keys. Exit code 1: it is not complete.

    Examples:

    \b
        mqstore index status
        mqstore index status -o json
    """
    store = session.client.store()
    running = session.client.index_rebuilds().running
    if session.out.is_table:
        session.out.item(store, _INDEX)
        if running is not None:
            session.out.item(running, _REBUILD)
    else:
        found = store.model_dump(mode="json", by_alias=True)
        names = ("hashSlots", "indexNum")
        chosen = {k: v for k, v in found.items() if k.startswith("index") or k in names}
        rebuild = None if running is None else running.model_dump(mode="json", by_alias=True)
        session.out.item({**chosen, "rebuild": rebuild}, columns_of(chosen))
    return EXIT_OK if store.index_complete and store.index_trouble is None else EXIT_FINDINGS


@service_command
def scrub_status(session: Session) -> int:
    """Show the progress of the scrub, and the damage that it found. Exit code 1: there is some.

    Examples:

    \b
        mqstore scrub status
        mqstore scrub status -o json | jq .findings
    """
    found = session.client.scrub()
    session.out.item(found, _SCRUB)
    if session.out.is_table and found.findings:
        session.out.line("")
        session.out.items(found.findings, _FINDINGS)
    return EXIT_FINDINGS if found.finding_count else EXIT_OK


@service_command
def scrub_start(session: Session, dry_run: DryRun = False) -> None:
    """Begin a pass over all checksums of the log. Needs the role admin.

    Examples:

    \b
        mqstore scrub start
        mqstore scrub start --shard 1
    """
    if dry_run:
        log = session.client.store()
        session.out.done(f"would read {size(log.max_offset - log.min_offset)} of log")
        return
    session.out.done("a pass over the checksums has begun", session.client.run_scrub())


@service_command
def scrub_repair(session: Session, yes: Yes = False, dry_run: DryRun = False) -> int:
    """Repair the damage of the log: by its checksums, from a replica, or by tombstones.

    A record that no replica has whole is lost. Exit code 1: a message is lost, or damage is left.
    Needs the role admin.

    Examples:

    \b
        mqstore scrub repair --dry-run
        mqstore scrub repair --yes
    """
    if not dry_run:
        session.confirm("Repair the log? Records that no replica has are lost.", yes=yes)
    report = session.client.repair_log(dry_run=dry_run)
    actions = report.plan["actions"]
    session.out.items(actions, _REPAIRS)
    lost = any(each["kind"] not in ("restore-bytes", "fetch-bytes") for each in actions)
    return EXIT_FINDINGS if lost or report.plan["damagedBlockCount"] else EXIT_OK


def _print_plan(session: Session, plan: Retention) -> None:
    if not session.out.is_table:
        session.out.item(plan, _plan_columns())
        return
    deletion = (
        f"{size(plan.bytes_to_go)} would be deleted now; hour of deletion at"
        f" {show_time(plan.next_hour_ms)}"
        if plan.deletes
        else "this store-writer deletes nothing (retention=false)"
    )
    session.out.line(deletion)
    if plan.puts_refused:
        session.out.line(f"messages are refused: {plan.puts_refused_why or 'no reason is known'}")
    shown = [each for each in SEGMENTS if plan.deletes or each.heading != "expires"]
    session.out.items(plan.segments, shown)


def _plan_columns() -> list[Column]:
    names = ("made_ms", "bytes_to_go", "next_hour_ms", "puts_refused")
    return [field_column(name, name) for name in names]
