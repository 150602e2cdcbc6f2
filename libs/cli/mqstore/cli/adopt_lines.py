"""``mqstore store adopt``: adopts a store and prints the result."""

from __future__ import annotations

from pathlib import Path

from mqstore.cli.exit_codes import EXIT_OK, refuse
from mqstore.cli.store_command import run_command
from mqstore.storage.host import production_seams
from mqstore.storage.repair import adopt_log, plan_adoption


def run(root: Path, commit_log: Path | None, dry_run: bool) -> int:
    """Adopt the log, or show what would change; the exit code."""
    return run_command(lambda: _adopt(root, commit_log, dry_run), refuse, unread=EXIT_OK)


def _adopt(root: Path, commit_log: Path | None, dry_run: bool) -> int:
    seams = production_seams()
    log = None if commit_log is None else commit_log.absolute()
    found = plan_adoption(seams.files, root, log) if dry_run else adopt_log(seams, root, log)
    store = f"store {found.store_id}" if found.store_id else "a new store"
    if not found.is_needed:
        print(f"{found.paths.commit_log} is the log of {root} ({store}) already")
        return EXIT_OK
    print(f"{found.paths.commit_log} {'would become' if dry_run else 'is now'} the log of {root}")
    print(f"  {store}; before: {found.former_root or 'no other root'}")
    return EXIT_OK
