"""``mqstore promote``: lets a copy of a broker's store take messages."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.service_access import Access, Ca, Token, TokenFile, WriterUrl, run_with_client
from mqstore.client import WRITER_URL, Client


def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Promote with less than the leader is known to have.")
    ] = False,
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Stop following the leader, and open the store for messages.

    Stop the producers of the leader first. A promoted store never follows again.

    Exit code 0: it takes messages; 1: it lags behind, nothing was changed; 2: refused; 3:
    store-writer does not answer.
    """

    def promote_store(client: Client) -> int:
        """Promote the store; returns the exit code."""
        found = client.replication().following
        if found is None:
            print("the store leads already: it takes messages")
            return EXIT_OK
        if found.lag_bytes and not force:
            refuse(
                f"the copy lacks {found.lag_bytes} bytes of the leader's log, which ends at "
                f"{found.leader_offset}: wait, or give up these bytes with --force"
            )
            return EXIT_FINDINGS
        client.promote()
        print(f"promoted: the store takes messages from offset {client.store().max_offset} on")
        return EXIT_OK

    access = Access(token, token_file, ca, None)
    raise typer.Exit(run_with_client(access, promote_store, writer_url=writer_url))
