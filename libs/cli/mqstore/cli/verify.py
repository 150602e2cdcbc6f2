"""``mqstore store verify``: every check of a store directory that we know, changing nothing.

JSON lines (``finding``, then ``verified``), or columns for a terminal. Nothing is written and no
lock is taken, so a running store and a read-only mount will do.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.threads import production_seams
from mqstore.storage.verify import Finding, Progress, Summary, Verification

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2
_PROGRESS_EVERY_S: Final = 0.2
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NAMES: Final = {
    "physical_offset": "phys",
    "queue_id": "q",
    "index": "i",
}

Show = Callable[[Finding], None]


def verify(
    directory: Annotated[Path, typer.Argument(help="The store directory.", metavar="DIR")],
    as_json: Annotated[
        bool | None,
        typer.Option("--json/--table", help="Default: columns on a terminal, else JSON lines."),
    ] = None,
    hash_slots: Annotated[
        int | None,
        typer.Option(
            min=1, help="maxHashSlotNum of the index files (default: format.json, else 5000000)"
        ),
    ] = None,
    index_num: Annotated[
        int | None,
        typer.Option(
            min=2, help="maxIndexNum of the index files (default: format.json, else 20000000)"
        ),
    ] = None,
) -> None:
    """Check a store directory without changing it; say what a real broker would do with it.

    Exit code 0: all is well (notes may be printed); 1: something was found; 2: refused.
    """
    in_lines = not sys.stdout.isatty() if as_json is None else as_json
    try:
        code = _run(directory, _config(hash_slots, index_num), in_lines)
    except BrokenPipeError:
        # The reader has what it wanted. Nothing may be flushed to it at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FINDINGS
    except (StorageError, OSError, ValueError) as error:
        if in_lines:
            _print({"t": "refused", "why": str(error)})
        else:
            print(f"mqstore: {error}", file=sys.stderr)
        code = EXIT_REFUSED
    raise typer.Exit(code)


def _run(directory: Path, config: StoreConfig, in_lines: bool) -> int:
    with _shown_progress() as progress:
        found = Verification(directory.absolute(), config, production_seams(), progress)
        for finding in found.findings():
            if in_lines:
                _print(finding_line(finding))
            else:
                _print_columns(finding)
    summary = found.summary
    if in_lines:
        _print({"t": "verified", **_camel(asdict(summary))})
    else:
        print(_summary_text(summary))
    sys.stdout.flush()
    return EXIT_FINDINGS if summary.findings else EXIT_FINE


def finding_line(finding: Finding) -> dict[str, Any]:
    """One ``finding`` line; what does not apply is left out."""
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
    return (
        f"{summary.segments} segments with {summary.records} records "
        f"({summary.log_bytes} bytes), {summary.queues} queues with {summary.entries} entries, "
        f"{summary.index_files} index files with {summary.index_items} items: "
        f"{summary.findings} findings, {summary.notes} notes"
    )


def _camel(fields: dict[str, Any]) -> dict[str, Any]:
    def renamed(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(part.title() for part in rest)

    return {renamed(name): value for name, value in fields.items()}


def _config(hash_slots: int | None, index_num: int | None) -> StoreConfig:
    given = {"max_hash_slot_num": hash_slots, "max_index_num": index_num}
    return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})


@contextmanager
def _shown_progress() -> Iterator[Progress]:
    """How far the look is, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console  # slow to import, and mostly not needed

    shown_at = 0.0
    with Console(stderr=True).status("opening") as status:

        def show(stage: str, done: int, total: int) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at >= _PROGRESS_EVERY_S:
                shown_at = time.monotonic()
                status.update(f"{stage}: {100 * done // max(total, 1)} %")

        yield show


def _print(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(_JSON.encode(line).encode("utf-8", "replace") + b"\n")
