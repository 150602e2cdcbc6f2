"""``mqstore promote``: lets a copy of a broker's store take messages."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.session import DryRun, Session, service_command


@service_command
def promote(
    session: Session,
    force: Annotated[
        bool, typer.Option("--force", help="Promote with less than the leader is known to have.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Stop following the leader, and open the store for messages.

    Stop the producers of the leader first. A promoted store never follows again.

    Exit code 0: it takes messages; 1: it lags behind, nothing was changed; 2: refused; 3:
    store-writer does not answer.

    Examples:

    \b
        mqstore promote --dry-run
        mqstore promote
    """
    found = session.client.replication().following
    if found is None:
        session.out.done("the store leads already: it takes messages")
        return EXIT_OK
    if found.lag_bytes and not force:
        refuse(
            f"the copy lacks {found.lag_bytes} bytes of the leader's log, which ends at "
            f"{found.leader_offset}: wait, or give up these bytes with --force"
        )
        return EXIT_FINDINGS
    if dry_run:
        session.out.done(f"would promote the store, {found.lag_bytes or 0} bytes behind", found)
        return EXIT_OK
    done = session.client.promote()
    offset = session.client.store().max_offset
    session.out.done(f"promoted: the store takes messages from offset {offset} on", done)
    return EXIT_OK
