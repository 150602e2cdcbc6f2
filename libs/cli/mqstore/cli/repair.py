"""``mqstore store repair``: repair all that ``store verify`` finds; see ``repair_lines``."""

from __future__ import annotations

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import Act, HashSlots, IndexNum, PlanOnly, StoreDirectory
from mqstore.cli.session import Form


def repair(
    directory: StoreDirectory,
    yes: Act = False,
    dry_run: PlanOnly = False,
    output: Form = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Repair all that `store verify` finds in a store that no process has open.

    Prints the plan and changes nothing: a row for each message that is lost or moved, and for each
    file that changes. With --yes it takes the store's lock, repairs, verifies the store again, and
    prints what was done. Changed and removed bytes are kept in mqstore/quarantine. After kill -9 or
    a crash, the same command ends the repair. Of one action, 1,000 rows are listed and the others
    counted.

    Exit code 0: nothing is damaged, or all of it was repaired without a lost message; 1: there is
    something to repair, messages are lost, or findings are left; 2: refused.

    Examples:

    \b
        mqstore store repair /data/store
        mqstore store repair /data/store --yes
        mqstore store repair /data/store -o json | jq 'select(.lost > 0)'
    """
    require("store")
    from mqstore.cli import repair_lines  # slow, and not needed for help

    choice = repair_lines.Choice(directory, acts=yes and not dry_run)
    raise typer.Exit(repair_lines.run(choice, output, hash_slots, index_num))
