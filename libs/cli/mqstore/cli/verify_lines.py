"""The output of ``mqstore store verify``, which changes nothing.

A table has three lines for a finding. JSON and YAML have an item ``finding`` for each, then
``verified``; CSV has a row for each finding. Nothing is written and no
lock is taken, so a running store and a read-only mount will do.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Format, Output, camel_case
from mqstore.cli.progress import show_progress
from mqstore.cli.session import choose_form
from mqstore.cli.store_command import Line, index_sizes, run_command
from mqstore.storage import StoreConfig
from mqstore.storage.host import production_seams
from mqstore.storage.verify import Finding, Summary, Verification

_NAMES: Final = {
    "physical_offset": "phys",
    "queue_id": "q",
    "index": "i",
}
_FIELDS: Final = ("level", "kind", "file", "offset", "phys", "topic", "q", "i", "what", "broker")


def _column(name: str) -> Column:
    return Column(name, lambda line: line.get(name))


_COLUMNS: Final = tuple(map(_column, _FIELDS))


def run(directory: Path, form: Format | None, hash_slots: int | None, index_num: int | None) -> int:
    """Print all findings; the exit code."""

    def verify() -> int:
        """Verify the store with the given sizes; the exit code."""
        out = Output(choose_form(form))
        return _run(directory, index_sizes(hash_slots, index_num), out)

    return run_command(verify, refuse, unread=EXIT_FINDINGS)


def _run(directory: Path, config: StoreConfig, out: Output) -> int:
    with show_progress() as progress:
        found = Verification(directory.absolute(), config, production_seams(), progress)
        if out.is_table:
            for finding in found.findings():
                _print_columns(out, finding)
        else:
            out.rows(map(finding_line, found.findings()), _COLUMNS)
    summary = found.summary
    if out.is_table:
        out.line(_summary_text(summary))
    elif out.is_document:
        out.items([{"t": "verified", **camel_case(asdict(summary))}], ())
    return EXIT_FINDINGS if summary.findings else EXIT_OK


def finding_line(finding: Finding) -> Line:
    """One ``finding`` line, without fields that do not apply."""
    fields = {_NAMES.get(name, name): value for name, value in asdict(finding).items()}
    known = {name: value for name, value in fields.items() if value is not None}
    return {"t": "finding", "level": finding.level.value, **known}


def _print_columns(out: Output, finding: Finding) -> None:
    place = finding.file if finding.offset is None else f"{finding.file}:{finding.offset}"
    queue = "" if finding.topic is None else f"  {finding.topic}/{finding.queue_id}"
    item = "" if finding.index is None else f" #{finding.index}"
    out.line(f"{finding.level.value:<8} {finding.kind.value:<22} {place}{queue}{item}")
    out.line(f"{'':<9}{finding.what}")
    out.line(f"{'':<9}a broker: {finding.broker}")


def _summary_text(summary: Summary) -> str:
    starts = f"would start, its log ending at offset {summary.broker_max_offset}"
    broker = starts if summary.broker_starts else "would not start"
    return (
        f"{summary.segments} segments with {summary.records} records "
        f"({summary.log_bytes} bytes), {summary.queues} queues with {summary.entries} entries, "
        f"{summary.index_files} index files with {summary.index_items} items: "
        f"{summary.findings} findings, {summary.notes} notes; a broker {broker}"
    )
