"""Dry run and verification of a rebuild beside a running writer; both only read the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mqstore.client import Store
from mqstore.jobs.errors import EXIT_FINDINGS, EXIT_FINE, JobError, WrongUsage
from mqstore.jobs.job_run import JobRun, Outcome
from mqstore.jobs.log.source import LogSegment
from mqstore.jobs.read_options import ReadOptions
from mqstore.jobs.rebuild.beside_writer import log_of
from mqstore.jobs.rebuild.compare import differences
from mqstore.jobs.rebuild.scratch import scratch
from mqstore.jobs.rebuild.settings import RebuildSettings
from mqstore.jobs.rebuild.spark_build import SparkBuild
from mqstore.jobs.rebuild.tasks import Extraction, build_part
from mqstore.jobs.shard_place import ShardPlace
from mqstore.storage.directory import StorePaths
from mqstore.storage.formats import StoreFormat
from mqstore.storage.host import PosixFileSystem
from mqstore.storage.index import Layout, finish_files, make_files, refuse_full_disk


def dry_run(settings: RebuildSettings, run: JobRun, place: ShardPlace) -> Outcome:
    """Report the size of a rebuild of the log on disk. Raises JobError, ClientError."""
    with place.client() as client:
        layout = _layout(settings, client.store())
    seen = ReadOptions(place.where, token_file=place.token_file, ca=place.ca).look()
    with _build(run, place, layout, seen.segments) as build:
        return build.scan().outcome({"dryRun": True})


def verify(settings: RebuildSettings, run: JobRun, place: ShardPlace) -> Outcome:
    """Compare the existing index with the log; writes only to the scratch directory.

    Raises JobError, ClientError, OSError.
    """
    if place.is_url:
        raise WrongUsage(
            f"{place.where}: --verify compares files; name the store's directory, and its writer"
            " behind a comma"
        )
    with place.client() as client:
        status = client.store()
    paths = StorePaths(Path(place.where))
    layout = _layout(settings, status)
    seen = ReadOptions(place.where).look().segments
    segments = list(_below(seen, status.index_offset))
    files = PosixFileSystem()
    with _build(run, place, layout, segments) as build, scratch() as staging:
        scan = build.scan()
        plan = build.build_plan(scan)
        refuse_full_disk(files, staging, plan.staged_bytes, settings.disk_ratio)
        make_files(files, staging, plan)
        finish_files(files, staging, plan, build.fill(scan, partial(build_part, staging, plan)))
        low = segments[0].start if segments else 0
        high = segments[-1].end if segments else 0
        found = differences(paths, layout, plan, low, high=high, staging=staging)
    code = EXIT_FINDINGS if found.count else EXIT_FINE
    more = {"upTo": high, "differences": found.count, "found": found.reported}
    return scan.outcome(more, code)


def _layout(settings: RebuildSettings, store: Store) -> Layout:
    """The index layout of the writer. Raises WrongUsage if the settings name another layout, to
    which the writer would refuse a rebuild."""
    slots, index_num, store_format = store.hash_slots, store.index_num, StoreFormat(store.format)
    if slots is None or index_num is None:
        raise JobError(
            "store-writer does not report the sizes of its index files: upgrade it first"
        )
    for option, wanted, there in (
        ("--format", settings.store_format, store_format),
        ("--hash-slots", settings.hash_slots, slots),
        ("--index-num", settings.index_num, index_num),
    ):
        if wanted not in (None, there):
            raise WrongUsage(f"{option} {wanted} instead of {there}: for a store at rest only")
    return Layout(slots, index_num, store_format.indexes_tags)


def _build(
    run: JobRun, place: ShardPlace, layout: Layout, segments: Sequence[LogSegment]
) -> SparkBuild:
    parts = min(run.spark.sparkContext.defaultParallelism, layout.slots)
    return SparkBuild(run, Extraction(log_of(place), layout, parts), segments)


def _below(segments: tuple[LogSegment, ...], end: int) -> Iterator[LogSegment]:
    for each in segments:
        if each.start < end:
            yield replace(each, end=min(each.end, end))
