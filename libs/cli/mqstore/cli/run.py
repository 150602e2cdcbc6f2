"""``mqstore run``: all services of one store on this machine, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.extras import require

StoreDirectory = Annotated[
    Path | None, typer.Option(help="Store directory. [default: data/store]", readable=False)
]
WriterPort = Annotated[int | None, typer.Option(help="Port of store-writer. [default: 8081]")]
QueryPort = Annotated[int | None, typer.Option(help="Port of query. [default: 8082]")]
ListenAddress = Annotated[str | None, typer.Option(help="Listen address. [default: 127.0.0.1]")]


def run(
    store: StoreDirectory = None,
    writer_port: WriterPort = None,
    query_port: QueryPort = None,
    coordinator_port: Annotated[
        int | None, typer.Option(help="Port of transaction-coordinator. [default: 8083]")
    ] = None,
    coordinator: Annotated[bool, typer.Option(help="Run the transaction coordinator.")] = True,
    host: ListenAddress = None,
    parent_pid: Annotated[
        int | None, typer.Option(help="Stop when this parent process ends.", hidden=True)
    ] = None,
) -> None:
    """Run store-writer, query and transaction-coordinator over a store directory, until Ctrl-C.

    Exit codes: 0 stopped, 1 a service failed, 2 refused (port in use, store locked…).

    Examples:

    \b
        mqstore run
        mqstore run --store /data/store --writer-port 9081 --no-coordinator
    """
    require("run")
    from mqstore.cli.supervisor import supervise  # slow, and not needed for help

    given = {
        "store": store,
        "writer_port": writer_port,
        "query_port": query_port,
        "coordinator_port": coordinator_port,
        "host": host,
    }
    raise typer.Exit(supervise(parent_pid, given, coordinator=coordinator))
