"""``mqstore shard ls``: prints one row for each shard."""

from __future__ import annotations

import sys

import typer
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.service_access import (
    Access,
    AsJson,
    Ca,
    Token,
    TokenFile,
    WriterUrl,
    duration,
    in_json,
    print_json,
    run_with_client,
)
from mqstore.client import WRITER_URL, Client, ClientError, Replication, Store

HEADINGS = ("shard", "address", "role", "epoch", "begin", "end", "lag", "behind", "in sync")


class ShardRow(BaseModel):
    """One shard. Offsets are physical, in bytes."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    shard: int
    address: str
    role: str
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


def ls(
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print a row for each shard: address, role, epoch, log, lag, copies in sync.

    The lag is that of the copy that is furthest behind; `behind` is for how long. In JSON, each
    shard on a line.

    Exit code 0: printed; 1: a shard does not reply; 2: refused; 3: store-writer does not answer.
    """

    def print_shards(client: Client) -> int:
        """Print the shards; returns the exit code."""
        own = client.store()
        places = {each.shard: each.writer_url for each in own.shards} or {own.shard: writer_url}
        rows = [
            _row(Access(token, token_file, ca, number), writer_url, number, address)
            for number, address in sorted(places.items())
        ]
        if in_json(as_json):
            for row in rows:
                print_json(row)
        else:
            _print_table(rows)
        return EXIT_FINDINGS if any(row.role == "?" for row in rows) else EXIT_OK

    access = Access(token, token_file, ca, None)
    raise typer.Exit(run_with_client(access, print_shards, writer_url=writer_url))


def _row(access: Access, writer_url: str, number: int, address: str) -> ShardRow:
    try:
        with access.client(writer_url=writer_url) as client:
            return row_of(address, client.store(), client.replication())
    except ClientError as error:
        print(f"mqstore: shard {number}: {error}", file=sys.stderr)
        return ShardRow(shard=number, address=address, role="?")


def row_of(address: str, store: Store, replication: Replication) -> ShardRow:
    """The row of a shard that replied."""
    row = ShardRow(
        shard=store.shard,
        address=address,
        role=replication.role,
        epoch=replication.epoch,
        min_offset=store.min_offset,
        end_offset=store.max_offset,
    )
    if (following := replication.following) is not None:
        row.lag_bytes = following.lag_bytes
    if (leading := replication.leading) is not None:
        row.in_sync = leading.in_sync
        last = max(leading.replicas, key=lambda each: each.lag_bytes, default=None)
        if last is not None:
            row.lag_bytes, row.lag_ms = last.lag_bytes, last.lag_ms
    return row


def _print_table(rows: list[ShardRow]) -> None:
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def _cells(row: ShardRow) -> tuple[str, ...]:
    numbers = [
        "-" if each is None else str(each)
        for each in (row.epoch, row.min_offset, row.end_offset, row.lag_bytes)
    ]
    behind = "-" if row.lag_ms is None else duration(row.lag_ms)
    in_sync = "-" if row.in_sync is None else ",".join(row.in_sync)
    return str(row.shard), row.address, row.role, *numbers, behind, in_sync
