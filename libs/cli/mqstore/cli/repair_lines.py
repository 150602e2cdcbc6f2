"""Runs ``mqstore store repair`` and prints ``repair`` and ``left`` lines, then ``repaired``.

The store is opened and recovered as a writer opens it, its log is read and repaired, and the store
is closed cleanly. A dry run does all of that on a copy-on-write overlay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.progress import show_progress
from mqstore.cli.store_command import Line, index_sizes, print_line, print_refusal, run_command
from mqstore.storage import MessageStore, StoreConfig, StoreOptions
from mqstore.storage.host import production_seams
from mqstore.storage.repair import PlaceTombstone, RestoreBytes
from mqstore.storage.status import RepairReport


def run(directory: Path, dry_run: bool, hash_slots: int | None, index_num: int | None) -> int:
    """Repair, and print all lines; the exit code."""
    return run_command(
        lambda: _run(directory, dry_run, index_sizes(hash_slots, index_num)),
        print_refusal,
        unread=EXIT_FINDINGS,
    )


def _run(directory: Path, dry_run: bool, config: StoreConfig) -> int:
    with show_progress() as progress:
        options = StoreOptions(
            create=False,
            in_place=not dry_run,
            services=False,
            on_progress=lambda now: progress(now.stage, now.done, now.total),
        )
        store = MessageStore.open(directory.absolute(), config, production_seams(), options)
        with store:
            report = store.repair_damage(lambda done, total: progress("repair", done, total))
            store.wait_for_index()
    for line in lines(report, dry_run=dry_run):
        print_line(line)
    sys.stdout.flush()
    plan = report.plan
    restored = all(isinstance(each, RestoreBytes) for each in plan.actions)
    is_fine = not plan.damaged_block_count and restored and not (dry_run and plan.actions)
    return EXIT_OK if is_fine else EXIT_FINDINGS


def lines(report: RepairReport, *, dry_run: bool) -> Iterator[Line]:
    """One line for each place that was, or would be, repaired or is left; then the summary."""
    plan = report.plan
    kept = report.quarantined if not dry_run else ()
    for number, action in enumerate(plan.actions):
        line: Line = {"t": "repair", "kind": action.kind, "phys": action.offset}
        line["size"] = action.length
        if isinstance(action, RestoreBytes):
            line["record"] = action.record_offset
        else:
            line["why"] = action.defect
        if isinstance(action, PlaceTombstone):
            line |= {"topic": action.topic, "q": action.queue_id, "qoff": action.queue_offset}
        yield line | ({"quarantined": kept[number]} if kept else {})
    for block in plan.damaged_blocks:
        yield {"t": "left", "phys": block.offset, "size": block.length}
    restored = sum(isinstance(each, RestoreBytes) for each in plan.actions)
    yield {
        "t": "repaired",
        "dryRun": dry_run,
        "records": plan.records,
        "restored": restored,
        "tombstones": len(plan.actions) - restored,
        "left": plan.damaged_block_count,
    }
