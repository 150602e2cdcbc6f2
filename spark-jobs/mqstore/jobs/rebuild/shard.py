"""One shard's index rebuilt, from the first look at the store to the report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from mqstore.jobs.errors import EXIT_FINDINGS, EXIT_FINE
from mqstore.jobs.job_run import JobRun, Outcome, Report
from mqstore.jobs.rebuild import at_rest, beside_writer, look_beside
from mqstore.jobs.rebuild.compare import differences
from mqstore.jobs.rebuild.scratch import scratch
from mqstore.jobs.rebuild.settings import Mode, RebuildSettings
from mqstore.jobs.rebuild.spark_build import Scan, SparkBuild
from mqstore.jobs.rebuild.tasks import Extraction, build_part
from mqstore.jobs.shard_place import ShardPlace
from mqstore.storage import MessageStore
from mqstore.storage.directory import StorePaths, load_writer_note
from mqstore.storage.host import FileSystem, PosixFileSystem
from mqstore.storage.index import (
    BuildPlan,
    Layout,
    StagedFile,
    discard_staged,
    finish_files,
    make_files,
    refuse_full_disk,
)

log = logging.getLogger(__name__)


def rebuild_shard(settings: RebuildSettings, run: JobRun, shard: str) -> Outcome:
    """Rebuild the index at rest, or beside the named or running writer.

    Raises JobError, ClientError, StorageError, OSError.
    """
    place = ShardPlace.of(shard, settings.token_file, settings.ca)
    if not place.is_url:
        root = Path(place.where).absolute()
        note = load_writer_note(PosixFileSystem(), StorePaths(root))
        noted = None if note is None else note.url
        place = replace(place, where=str(root), writer_url=place.writer_url or noted)
    if place.writer_url is not None:
        return beside(settings, run, place)
    root, looks = Path(place.where), settings.mode is not Mode.PUBLISH
    with ExitStack() as stack:
        if settings.mode is Mode.VERIFY:
            stack.enter_context(at_rest.unchanged(root))
        held = at_rest.held(root, settings.config(), run.progress, dry=looks)
        return Rebuild(settings, run, stack.enter_context(held)).outcome()


def beside(settings: RebuildSettings, run: JobRun, place: ShardPlace) -> Outcome:
    """Run the mode of ``settings`` on a store beside its running writer."""
    match settings.mode:
        case Mode.PUBLISH:
            return beside_writer.rebuild(settings, run, place)
        case Mode.VERIFY:
            return look_beside.verify(settings, run, place)
        case Mode.DRY_RUN:
            return look_beside.dry_run(settings, run, place)


class Rebuild:
    """The rebuild of one store whose lock the job holds. Used once."""

    def __init__(self, settings: RebuildSettings, run: JobRun, store: MessageStore) -> None:
        self._settings = settings
        self._run = run
        self._store = store
        self._files: FileSystem = PosixFileSystem()
        self._paths: StorePaths = store.paths
        config = store.config
        store_format = settings.store_format or store.format
        self._layout = Layout(
            settings.hash_slots or config.max_hash_slot_num,
            settings.index_num or config.max_index_num,
            store_format.indexes_tags,
        )
        self._log, self._segments = at_rest.log_of(store)

    def outcome(self) -> Outcome:
        """Run the mode of the settings. Raises JobError, StorageError, OSError."""
        with self._build() as build:
            if self._settings.mode is Mode.DRY_RUN:
                return self._ended(self._scan(build), {"dryRun": True})
            if self._settings.mode is Mode.VERIFY:
                with scratch() as directory:
                    scan, plan, _ = self._built(build, directory)
                    return self._verified(scan, plan, directory)
            with self._staging() as directory:
                scan, plan, staged = self._built(build, directory)
                self._publish(plan, staged)
                return self._ended(scan, {"published": [path.name for path in self._published()]})

    def _built(
        self, build: SparkBuild, directory: Path
    ) -> tuple[Scan, BuildPlan, list[StagedFile]]:
        scan = self._scan(build)
        plan = build.build_plan(scan)
        ratio = self._settings.disk_ratio
        refuse_full_disk(self._files, directory, plan.staged_bytes, ratio)
        return scan, plan, self._stage(build, scan, plan, directory)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        self._files.make_directories(self._paths.index_staging)
        at_rest.note_owner(self._paths.index_staging)
        try:
            yield self._paths.index_staging
        finally:
            if self._files.stat(self._paths.index_journal) is None:
                discard_staged(self._files, self._paths)

    def _build(self) -> SparkBuild:
        cores = self._run.spark.sparkContext.defaultParallelism
        parts = min(cores, self._layout.slots)
        return SparkBuild(self._run, Extraction(self._log, self._layout, parts), self._segments)

    def _scan(self, build: SparkBuild) -> Scan:
        scan = build.scan()
        found = scan.plan
        log.info(
            "%s: %d items of %d records make %d index files of %d bytes in all",
            *(self._paths.root, found.items, found.records, found.file_count, found.staged_bytes),
        )
        return scan

    def _stage(
        self, build: SparkBuild, scan: Scan, plan: BuildPlan, directory: Path
    ) -> list[StagedFile]:
        make_files(self._files, directory, plan)
        built = build.fill(scan, partial(build_part, directory, plan))
        return finish_files(self._files, directory, plan, built)

    def _publish(self, plan: BuildPlan, staged: list[StagedFile]) -> None:
        end_ms = plan.files[-1].end[1] if plan.files else 0
        layout, store = self._layout, self._store
        store.index.publish(staged, layout.slots, layout.index_num, store.store_id, end_ms)

    def _published(self) -> list[Path]:
        return [file.path for file in self._store.index.files]

    def _verified(self, scan: Scan, plan: BuildPlan, staging: Path) -> Outcome:
        low = self._store.log.min_offset
        found = differences(self._paths, self._layout, plan, low, staging=staging)
        code = EXIT_FINDINGS if found.count else EXIT_FINE
        return self._ended(scan, {"differences": found.count, "found": found.reported}, code)

    def _ended(self, scan: Scan, more: Report, exit_code: int = EXIT_FINE) -> Outcome:
        queues = {"queueRecords": self._store.recovery.dispatched_records}
        return scan.outcome(queues | more, exit_code)
