"""``mqstore shard ls``: prints one row for each shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import duration

if TYPE_CHECKING:
    from mqstore.client import Replication, Store

COLUMNS: Final = (
    Column("shard", lambda row: row["shard"], right=True),
    Column("address", lambda row: row["address"]),
    Column("role", lambda row: row["role"]),
    Column("epoch", lambda row: row["epoch"], right=True),
    Column("begin", lambda row: row["minOffset"], right=True),
    Column("end", lambda row: row["endOffset"], right=True),
    Column("lag", lambda row: row["lagBytes"], right=True),
    Column("behind", lambda row: row["lagMs"], duration, right=True),
    Column("in-sync", lambda row: row["inSync"] and ",".join(row["inSync"])),
)


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard. Offsets are physical, in bytes."""

    shard: int
    address: str
    role: str = "?"
    """``leader``, ``follower``, or ``?`` for a shard that does not reply."""
    epoch: int | None = None
    """The newest epoch of the log; 0 without elections."""
    min_offset: int | None = None
    end_offset: int | None = None
    lag_bytes: int | None = None
    """Lag of the copy that is furthest behind in a leader; that of a follower itself."""
    lag_ms: int | None = None
    in_sync: tuple[str, ...] | None = None
    """Names of the copies in sync, the leader's included; None where no copy may connect."""

    def document(self) -> dict[str, Any]:
        """The row that JSON output prints."""
        return {
            "shard": self.shard,
            "address": self.address,
            "role": self.role,
            "epoch": self.epoch,
            "minOffset": self.min_offset,
            "endOffset": self.end_offset,
            "lagBytes": self.lag_bytes,
            "lagMs": self.lag_ms,
            "inSync": None if self.in_sync is None else list(self.in_sync),
        }


@service_command
def ls(session: Session) -> int:
    """Print a row for each shard: address, role, epoch, log, lag, copies in sync.

    The lag is that of the copy that is furthest behind; `behind` is for how long. In JSON, each
    shard on a line.

    Exit code 0: printed; 1: a shard does not reply; 2: refused; 3: store-writer does not answer.

    Examples:

    \b
        mqstore shard ls
        mqstore shard ls -o json | jq 'select(.lagBytes > 0)'
    """
    own = session.client.store()
    places = {each.shard: each.writer_url for each in own.shards}
    places = places or {own.shard: session.access.urls[0]}
    rows = [_row(session, number, address) for number, address in sorted(places.items())]
    session.out.items([row.document() for row in rows], COLUMNS)
    return EXIT_FINDINGS if any(row.role == "?" for row in rows) else EXIT_OK


def _row(session: Session, number: int, address: str) -> ShardRow:
    from mqstore.client import ClientError

    try:
        with replace(session.access, shard=number).client() as client:
            return row_of(address, client.store(), client.replication())
    except ClientError as error:
        refuse(f"shard {number}: {error}")
        return ShardRow(number, address)


def row_of(address: str, store: Store, replication: Replication) -> ShardRow:
    """The row of a shard that replied."""
    row = ShardRow(
        store.shard,
        address,
        replication.role,
        replication.epoch,
        store.min_offset,
        store.max_offset,
    )
    if (following := replication.following) is not None:
        row = replace(row, lag_bytes=following.lag_bytes)
    if (leading := replication.leading) is not None:
        row = replace(row, in_sync=leading.in_sync)
        last = max(leading.replicas, key=lambda each: each.lag_bytes, default=None)
        if last is not None:
            row = replace(row, lag_bytes=last.lag_bytes, lag_ms=last.lag_ms)
    return row
