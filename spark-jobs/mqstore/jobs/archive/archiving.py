"""The archive of one shard, segment by segment in the log's order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mqstore.jobs.archive.export import ArchivedSegment, export
from mqstore.jobs.archive.keeper import Keeper
from mqstore.jobs.job_run import JobRun, Report
from mqstore.jobs.log.source import LogRange, LogSegment, Snapshot
from mqstore.jobs.output import Output

SEGMENTS_AT_ONCE: Final = 64
"""Segments that are exported between two marks; a killed run repeats at most so many."""
MANIFESTS: Final = "manifests"


def due(segments: Sequence[LogSegment], archived: int, end: int) -> list[LogRange]:
    """The whole segments from what is archived up to physical offset ``end``."""
    return [
        LogRange(each, each.start, each.end)
        for each in segments
        if each.end > archived and each.end <= end
    ]


def archive(
    run: JobRun, seen: Snapshot, parts: Sequence[LogRange], out: Output, shard: str, keeper: Keeper
) -> Report:
    """Export segments and publish their files, then advance the archive's mark; returns the report.

    The mark never covers a segment whose files are not published. Raises JobError, and the errors
    of the keeper.
    """
    done: list[ArchivedSegment] = []
    log = seen.log
    for at in range(0, len(parts), SEGMENTS_AT_ONCE):
        some = parts[at : at + SEGMENTS_AT_ONCE]
        with run.stage(f"archiving segments of {shard}") as spark:
            tasks = spark.sparkContext.parallelize(some, len(some))
            found = tasks.map(lambda part: export(log, part, out, shard)).collect()
        publish(found, out, shard)
        keeper.advance(some[-1].stop)
        done += found
    return archive_report(done, out)


def publish(segments: Iterable[ArchivedSegment], out: Output, shard: str) -> None:
    """Rename the staged files of segments to their names, then write a manifest per segment."""
    for each in segments:
        out.reveal({file.name: file.staged for file in each.files})
        text = json.dumps(manifest(each), ensure_ascii=False, indent=1).encode()
        name = f"{MANIFESTS}/{shard}_{each.part.start:020d}-{each.part.stop:020d}.json"
        out.publish({name: lambda file, text=text: file.write(text)})  # type: ignore[misc]  # bound now


def manifest(segment: ArchivedSegment) -> dict[str, Any]:
    """The manifest of a segment in JSON: its range, its files and its corrupt stretches."""
    return {
        "segment": segment.part.segment.name,
        "fromOffset": segment.part.start,
        "toOffset": segment.part.stop,
        "messages": sum(file.rows for file in segment.files),
        "files": [
            {
                "name": file.name,
                "topic": file.topic,
                "messages": file.rows,
                "logBytes": file.bytes,
                "crc32c": f"{file.crc32c:08x}",
            }
            for file in segment.files
        ],
        "corrupt": [
            {"offset": each.physical_offset, "size": each.size, "defect": each.defect}
            for each in segment.corrupt
        ],
    }


def archive_report(done: Sequence[ArchivedSegment], out: Output) -> Report:
    """The part of the job's report about the archived segments, with sums of their files."""
    files = [file for each in done for file in each.files]
    return {
        "place": out.url,
        "segments": len(done),
        "files": len(files),
        "messages": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "corruptStretches": sum(len(each.corrupt) for each in done),
        "upTo": done[-1].part.stop if done else None,
    }
