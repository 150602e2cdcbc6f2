"""One shard's index rebuilt, from the first look at the store to the report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from mqstore.jobs import command
from mqstore.jobs.errors import EXIT_FINDINGS, EXIT_FINE, QueuesBehind
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
from mqstore.storage.status import RecoveredLog

BEHIND_MIN: Final = 256 << 20
"""Bytes of log behind the queues from which on Spark begins beside their completion; fewer are
dispatched in a tenth of a second."""
CANCEL_INTERVAL_S: Final = 0.5

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
        rebuild = stack.enter_context(Rebuild(settings, run))
        held = at_rest.held(root, settings.config(), rebuild.show_opening, rebuild.begin, dry=looks)
        return rebuild.outcome(stack.enter_context(held))


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
    """The rebuild of one store whose lock the job holds. A context. Used once.

    Where the opening has to complete queues, Spark reads the log meanwhile.
    """

    def __init__(self, settings: RebuildSettings, run: JobRun) -> None:
        self._settings = settings
        self._run = run
        self._files: FileSystem = PosixFileSystem()
        self._stack = ExitStack()
        self._early: Future[Scan | None] | None = None
        self._build: SparkBuild
        self._found: RecoveredLog
        self._layout: Layout
        self._store: MessageStore
        self._paths: StorePaths

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._early is not None and not self._early.done():  # the opening has failed
            self._run.cancel()
            wait([self._early], CANCEL_INTERVAL_S)
        self._stack.close()

    def begin(self, found: RecoveredLog) -> None:
        """Begin to read the recovered log if its queues are far behind. Does not wait."""
        settings, config = self._settings, found.config
        self._layout = Layout(
            settings.hash_slots or config.max_hash_slot_num,
            settings.index_num or config.max_index_num,
            (settings.store_format or found.format).indexes_tags,
        )
        if found.max_offset - found.dispatched >= BEHIND_MIN:
            pool = self._stack.enter_context(ThreadPoolExecutor(1, "early-scan"))
            self._early = pool.submit(lambda: self._made(found).scan_beside_queues())
        self._found = found

    def show_opening(self, stage: str, done: int, total: int) -> None:
        """Show the progress of the opening, until Spark's own is shown."""
        if self._early is None:
            self._run.progress(stage, done, total)

    def outcome(self, store: MessageStore) -> Outcome:
        """Run the mode of the settings. Raises JobError, StorageError, OSError."""
        self._store, self._paths = store, store.paths
        scan = self._scan()
        if self._settings.mode is Mode.DRY_RUN:
            return self._ended(scan, {"dryRun": True})
        if self._settings.mode is Mode.VERIFY:
            with scratch() as directory:
                plan, _ = self._built(scan, directory)
                return self._verified(scan, plan, directory)
        with self._staging() as directory:
            plan, staged = self._built(scan, directory)
            self._publish(plan, staged)
            return self._ended(scan, {"published": [path.name for path in self._published()]})

    def _built(self, scan: Scan, directory: Path) -> tuple[BuildPlan, list[StagedFile]]:
        plan = self._build.build_plan(scan)
        ratio = self._settings.disk_ratio
        refuse_full_disk(self._files, directory, plan.staged_bytes, ratio)
        return plan, self._stage(scan, plan, directory)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        self._files.make_directories(self._paths.index_staging)
        at_rest.note_owner(self._paths.index_staging)
        try:
            yield self._paths.index_staging
        finally:
            if self._files.stat(self._paths.index_journal) is None:
                discard_staged(self._files, self._paths)

    def _made(self, found: RecoveredLog) -> SparkBuild:
        """Make the build, which starts Spark."""
        cores = self._run.spark.sparkContext.defaultParallelism
        log_place, segments = at_rest.log_of(found)
        extraction = Extraction(log_place, self._layout, min(cores, self._layout.slots))
        build = SparkBuild(self._run, extraction, segments)
        self._build = self._stack.enter_context(build)
        return build

    def _scan(self) -> Scan:
        scan = self._early_scan() or self._build.scan()
        found = scan.plan
        log.info(
            "%s: %d items of %d records make %d index files of %d bytes in all",
            *(self._paths.root, found.items, found.records, found.file_count, found.staged_bytes),
        )
        return scan

    def _early_scan(self) -> Scan | None:
        """The result of the reading that ``begin`` began; None where the log must be read now."""
        if self._early is None:
            self._made(self._found)
            return None
        try:
            return self._early.result()
        except Exception as error:
            if not isinstance(command.refusal(error), QueuesBehind):
                raise
            log.info("the log is read again, now that its queues are complete: %s", error)
            return None

    def _stage(self, scan: Scan, plan: BuildPlan, directory: Path) -> list[StagedFile]:
        make_files(self._files, directory, plan)
        built = self._build.fill(scan, partial(build_part, directory, plan))
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
