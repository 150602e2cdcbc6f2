"""The output of ``mqstore store verify``, which changes nothing.

JSON lines (``finding``, then ``verified``), or columns for a terminal. Nothing is written and no
lock is taken, so a running store and a read-only mount will do.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.progress import show_progress
from mqstore.cli.store_command import Line, index_sizes, print_line, print_refusal, run_command
from mqstore.storage import StoreConfig
from mqstore.storage.host import production_seams
from mqstore.storage.verify import Finding, Summary, Verification

_NAMES: Final = {
    "physical_offset": "phys",
    "queue_id": "q",
    "index": "i",
}


def run(directory: Path, in_lines: bool, hash_slots: int | None, index_num: int | None) -> int:
    """Print all findings; the exit code."""
    return run_command(
        lambda: _run(directory, index_sizes(hash_slots, index_num), in_lines),
        print_refusal if in_lines else lambda why: print(f"mqstore: {why}", file=sys.stderr),
        unread=EXIT_FINDINGS,
    )


def _run(directory: Path, config: StoreConfig, in_lines: bool) -> int:
    with show_progress() as progress:
        found = Verification(directory.absolute(), config, production_seams(), progress)
        for finding in found.findings():
            if in_lines:
                print_line(finding_line(finding))
            else:
                _print_columns(finding)
    summary = found.summary
    if in_lines:
        print_line({"t": "verified", **_camel(asdict(summary))})
    else:
        print(_summary_text(summary))
    sys.stdout.flush()
    return EXIT_FINDINGS if summary.findings else EXIT_OK


def finding_line(finding: Finding) -> Line:
    """One ``finding`` line, without fields that do not apply."""
    fields = {_NAMES.get(name, name): value for name, value in asdict(finding).items()}
    known = {name: value for name, value in fields.items() if value is not None}
    return {"t": "finding", "level": finding.level.value, **known}


def _print_columns(finding: Finding) -> None:
    place = finding.file if finding.offset is None else f"{finding.file}:{finding.offset}"
    queue = "" if finding.topic is None else f"  {finding.topic}/{finding.queue_id}"
    item = "" if finding.index is None else f" #{finding.index}"
    print(f"{finding.level.value:<8} {finding.kind.value:<22} {place}{queue}{item}")
    print(f"{'':<9}{finding.what}")
    print(f"{'':<9}a broker: {finding.broker}")


def _summary_text(summary: Summary) -> str:
    starts = f"would start, its log ending at offset {summary.broker_max_offset}"
    broker = starts if summary.broker_starts else "would not start"
    return (
        f"{summary.segments} segments with {summary.records} records "
        f"({summary.log_bytes} bytes), {summary.queues} queues with {summary.entries} entries, "
        f"{summary.index_files} index files with {summary.index_items} items: "
        f"{summary.findings} findings, {summary.notes} notes; a broker {broker}"
    )


def _camel(fields: dict[str, Any]) -> dict[str, Any]:
    def renamed(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(part.title() for part in rest)

    return {renamed(name): value for name, value in fields.items()}
