"""``mqstore follow``: a store that is a copy of a broker's, until it is promoted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_REFUSED, refuse
from mqstore.cli.extras import require
from mqstore.cli.run import ListenAddress, QueryPort, StoreDirectory, WriterPort
from mqstore.client import Client, ClientError, Following

LISTEN_PORT: Final = 10_911
"""RocketMQ's listenPort; haListenPort is the next one."""
INTERVAL_S: Final = 1.0
PAUSE_S: Final = 0.1
MEBIBYTE: Final = 1 << 20


def follow_leader(
    broker: Annotated[
        str,
        typer.Argument(
            help="HOST or HOST:PORT of the broker to follow; PORT is its listenPort.",
            metavar="BROKER",
        ),
    ],
    ha_port: Annotated[
        int | None,
        typer.Option(
            help="The broker's haListenPort. [default: listenPort + 1]", min=1, max=65_535
        ),
    ] = None,
    store: StoreDirectory = None,
    writer_port: WriterPort = None,
    query_port: QueryPort = None,
    host: ListenAddress = None,
) -> None:
    """Copy the store of a running broker and serve reads from the copy, until Ctrl-C.

    The progress is printed to stderr. `mqstore promote` lets the copy take messages. The settings
    mappedFileSizeCommitLog and maxMessageSize must be those of the broker.

    Exit codes: 0 stopped, 1 a service failed, 2 refused (store promoted, port in use…).

    Examples:

    \b
        mqstore follow broker:10911 --store /data/copy
    """
    require("run")
    from mqstore.cli.supervisor import supervise  # slow, and not needed for help

    try:
        name, port = _address_of(broker)
    except ValueError as error:
        refuse(str(error))
        raise typer.Exit(EXIT_REFUSED) from error
    given = {
        "broker_role": "SLAVE",
        "ha_master_address": f"{name}:{port + 1 if ha_port is None else ha_port}",
        "master_address": f"{name}:{port}",
        "store": store,
        "writer_port": writer_port,
        "query_port": query_port,
        "host": host,
    }
    raise typer.Exit(supervise(None, given, coordinator=False, watch=print_progress))


def _address_of(broker: str) -> tuple[str, int]:
    """The host and listenPort of a broker. Raises ValueError."""
    name, colon, port = broker.rpartition(":")
    if not colon or broker.endswith("]"):
        return broker, LISTEN_PORT
    if not port.isdecimal() or not 0 < int(port) < 65_535:
        raise ValueError(f"{broker} is no address: give HOST or HOST:PORT")
    return name, int(port)


def print_progress(client: Client, is_stopping: Callable[[], bool]) -> None:
    """Print how far the copy is whenever that changes, until it is promoted or stops."""
    shown, before, at = "", 0, time.monotonic()
    while not is_stopping():
        try:
            found = client.replication().following
        except ClientError:  # the service stops, or is being promoted
            time.sleep(PAUSE_S)
            continue
        if found is None:
            print("mqstore: promoted: the store takes messages", file=sys.stderr)
            return
        now = time.monotonic()
        rate = max(0, found.received_offset - before) / max(now - at, PAUSE_S)
        before, at = found.received_offset, now
        text = progress_line(found, rate if shown else 0.0)
        if text != shown:
            print(f"mqstore: {text}", file=sys.stderr)
            shown = text
        _sleep(INTERVAL_S, is_stopping)


def progress_line(found: Following, rate: float) -> str:
    """The state of a copy in one line; ``rate`` in bytes a second."""
    if found.reason is not None:
        return f"{found.state}: {found.reason}"
    text = f"{found.state} {found.leader}: {_size(found.received_offset)}"
    text += f" of {_size(found.leader_offset)}, lag {found.lag_bytes} bytes"
    if rate >= 1:
        text += f", {_size(int(rate))}/s"
    if found.tables_reason is not None:
        text += f"; topics, groups and offsets are not copied: {found.tables_reason}"
    return text


def _size(count: int) -> str:
    return f"{count / MEBIBYTE:.1f} MiB"


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not is_stopping():
        time.sleep(PAUSE_S)
