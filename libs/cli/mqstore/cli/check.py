"""``mqstore check``: one verdict on a running system, for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.output import Column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import duration, parse_duration

if TYPE_CHECKING:
    from mqstore.client import Client, Store

DISK_PERCENT: Final = 85
_COLUMNS: Final = (
    Column("check", lambda found: found["check"]),
    Column("state", lambda found: found["state"]),
    Column("detail", lambda found: found["detail"]),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits beyond which a check warns."""

    lag: int | None
    lag_ms: int | None
    disk_percent: int
    coordinator: bool


@service_command
def check(
    session: Session,
    lag: Annotated[
        int | None, typer.Option(min=0, help="Warn of a group that is behind by more messages.")
    ] = None,
    age: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Warn of a message that waits longer, as 10m."),
    ] = None,
    disk: Annotated[
        int, typer.Option(min=1, max=100, help="Warn of a disk that is used by more percent.")
    ] = DISK_PERCENT,
    coordinator: Annotated[
        bool, typer.Option(help="Check the transaction coordinator too.")
    ] = False,
) -> int:
    """Check the services, the store, the disk and the groups, for monitoring.

    The findings are those of the alerts, the console and `kubectl mqstore status`: replicas that
    are not in sync, stuck transactions, dead letters, groups ten minutes behind, and more.

    Exit code 0: all is well; 1: a check warns; 2: refused; 3: a service does not reply.

    Examples:

    \b
        mqstore check
        mqstore check --lag 10000 --age 10m --disk 80 -o json
    """
    limits = Limits(lag, None if age is None else parse_duration(age), disk, coordinator)
    found = list(_checks(session.client, limits))
    session.out.items(found, _COLUMNS)
    return EXIT_OK if all(each["state"] == "ok" for each in found) else EXIT_FINDINGS


def _checks(client: Client, limits: Limits) -> Iterator[dict[str, Any]]:
    from mqstore.client import Target

    targets = [Target.WRITER, Target.QUERY]
    targets += [Target.COORDINATOR] if limits.coordinator else []
    for target in targets:
        health = client.health(target)
        yield _row(target.value, health.status == "ready", health.detail or health.status)
    store = client.store()
    yield _row("store", store.health == "ready", store.read_only_reason or store.health)
    writes = client.writes()
    why = writes.reason if writes.paused else writes.refused and writes.refused.detail
    yield _row("writes", writes.taken is not False, str(why or "accepted"))
    yield from _of_store(store, limits)
    finding_count = client.scrub().finding_count
    yield _row("scrub", not finding_count, f"{finding_count} damaged ranges")
    yield from groups_rows(client, limits)
    listed = client.findings().findings
    for each in listed:
        yield _row(each.kind, False, f"{each.text} (docs: how-to/{each.page})")
    if not listed:
        yield _row("findings", True, "none")


def _of_store(store: Store, limits: Limits) -> Iterator[dict[str, Any]]:
    percent = 100 * store.disk_used // max(1, store.disk_total)
    yield _row("disk", percent <= limits.disk_percent, f"{percent} % used")
    is_whole = store.index_complete and store.index_trouble is None
    yield _row(
        "index", is_whole, store.index_trouble or ("complete" if is_whole else "not complete")
    )


def groups_rows(client: Client, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the rows of the groups and of their dead letters."""
    late, dead, count = [], [], 0
    missing: set[str] = set()
    cursor: str | None = None
    while True:
        page = client.lags(cursor=cursor)
        for group in page.groups:
            count += 1
            ages = [each.lag_ms for each in group.topics if each.lag]
            oldest = None if None in ages else max((age or 0 for age in ages), default=0)
            if _exceeds(group.lag, limits.lag) or _exceeds(oldest, limits.lag_ms):
                late.append(f"{group.group} {group.lag} messages, {duration(oldest)}")
            if group.dead_letters:
                dead.append(f"{group.group} {group.dead_letters}")
        if page.shards is not None:
            missing |= {f"shard {each} is not included" for each in page.shards.missing}
        cursor = page.next
        if cursor is None:
            break
    is_limited = limits.lag is not None or limits.lag_ms is not None
    fine = (
        f"{count} groups within their limits" if is_limited else f"{count} groups, without a limit"
    )
    wrong = [*late, *sorted(missing)]
    yield _row("groups", not wrong, ", ".join(wrong) or fine)
    yield _row("dead-letters", not dead, ", ".join(dead) or "none")


def _exceeds(value: int | None, limit: int | None) -> bool:
    """Whether a value is above a limit, or is not known to be below it."""
    return limit is not None and (value is None or value > limit)


def _row(name: str, is_ok: bool, detail: str) -> dict[str, Any]:
    return {"check": name, "state": "ok" if is_ok else "warning", "detail": detail}
