"""The mutations, each with the test that is to fail; docs/testing.md describes them."""

from __future__ import annotations

from typing import Final

from tests.mutations.breaking import Mutation
from tests.mutations.shard_table import SHARD_MUTATIONS

_STORAGE: Final = "mqstore.storage."
_FLIPS: Final = "tests/fuzz/test_bit_flips.py"
_PLAN: Final = "tests/unit/storage/recovery/test_plan.py"
_AT_REST: Final = "tests/unit/storage/queues/test_queues_at_rest.py"
_RECOVERED: Final = "tests/unit/storage/recovery/test_recovered_store.py"
_SIMULATED: Final = "tests/simulation/test_store_on_simulated_disk.py"
_ADMINISTRATION: Final = "tests/simulation/test_administration_over_crashes.py"


def _of(what: str, module: str, old: str, new: str, shown_by: str | None = None) -> Mutation:
    return Mutation(what, _STORAGE + module, old, new, shown_by)


_RESTORED: Final = "tests/simulation/test_restored_directories.py"
_MISSING: Final = "tests/unit/storage/recovery/test_missing_data.py"
_CONFIG: Final = "tests/simulation/test_config_changes_over_crashes.py"
_FILES: Final = (
    _of(
        "Durable data that is missing is not looked for",
        "loss_check",
        "return LossCheck(view, facts, loss, is_broker, given_out, manifests)",
        "return LossCheck(view, facts, None, is_broker, given_out, manifests)",
        _RESTORED,
    ),
    _of(
        "An accepted loss goes on without tombstones at the queues' ends",
        "recovery.accepted_loss",
        "        marks=tuple(marks),\n",
        "        marks=(),\n",
        _MISSING,
    ),
    _of(
        "No directory sync after a small file is replaced",
        "system.atomic_file",
        "    put_in_place(files, path, data)\n    files.sync_directory(path.parent)\n",
        "    put_in_place(files, path, data)\n",
    ),
    Mutation(
        "Small files not synced before their rename (disk)",
        "tests.simulation.disk",
        "            raise self._failure(fault, name)\n        self.sync_inode(name, inode)\n",
        "            raise self._failure(fault, name)\n",
    ),
    Mutation(
        "New files not synced before their rename (disk)",
        "tests.simulation.disk",
        "                raise self._failure(fault, path)\n            if sync:\n",
        "                raise self._failure(fault, path)\n            if False:\n",
    ),
    _of(
        "No directory sync after a new queue file",
        "queues.consume_queues",
        "        if not least_pages:\n            self._sync_names(queues)\n",
        "",
    ),
    _of(
        "No directory sync after a new segment",
        "mapped.mapped_file",
        "            if is_durable:\n                files.sync_directory(path.parent)\n",
        "            if False:\n                files.sync_directory(path.parent)\n",
    ),
    _of(
        "Config tables written in place",
        "tables.table",
        "replace_file(self._seams.files, self.path, content)",
        "self._seams.files.write(self.path, content)",
    ),
    _of(
        "Config tables in place, and no `.bak`",
        "tables.table",
        """        if self._saved is not None:
            replace_file(self._seams.files, self.backup_path, self._saved)
        replace_file(self._seams.files, self.path, content)
""",
        "        self._seams.files.write(self.path, content)\n",
    ),
    _of(
        "Changes leave the journal of a config table before its file is written",
        "tables.journaled_table",
        "                self._write(content, await_log)\n            with self._appending:\n"
        "                self._journal.drop(end)\n",
        "                self._journal.drop(end)\n"
        "                self._write(content, await_log)\n            with self._appending:\n",
        _CONFIG,
    ),
    _of(
        "A journal's directory is not synced",
        "tables.change_journal",
        "            self._files.sync_directory(self._path.parent)\n        self.size",
        "            pass\n        self.size",
        _CONFIG,
    ),
    _of(
        "Blocks not reserved before a store",
        "mapped.mapped_file",
        "            self._reserve(end)\n\n",
        "            self._reserved = end\n\n",
    ),
)

_SYNCS: Final = (
    _of(
        "Durable watermark published before the sync",
        "log.flush",
        "        try:\n            self._target.flush(least_pages)\n",
        "        self._publish(self._target.max_offset)\n"
        "        try:\n            self._target.flush(least_pages)\n",
    ),
    _of(
        "Watermark in the state page before the sync",
        "log.flush",
        "        try:\n            self._target.flush(least_pages)\n",
        "        self._watermarks.set_flushed(self._target.max_offset)\n"
        "        try:\n            self._target.flush(least_pages)\n",
    ),
    _of(
        "`sync` answered without waiting",
        "appends",
        "            self._log.flush.wait(self._log.flush.request(end))\n",
        "            self._log.flush.request(end)\n",
    ),
    _of(
        "A failed sync tried again",
        "mapped.mapped_file",
        "            self._sync_error = error\n            raise self._fail(error) from error\n",
        "            self._mapping.sync()\n            del error\n",
    ),
    _of(
        "A flush syncs the newest segment only",
        "mapped.mapped_file_queue",
        "for file in self.files_from(before):",
        "for file in self.files[-1:]:",
    ),
    _of(
        "indexMsgTimestamp moved before the sync",
        "index.service",
        "            file = self._full[0]\n"
        "            file.flush()\n            self._full.pop(0)\n",
        """            file = self._full[0]
            if self._checkpoint is not None:
                self._checkpoint.index_ms = file.header.end_ms
                self._checkpoint.flush()
            file.flush()
            self._full.pop(0)
""",
        # Our own recovery goes by synced_end; only a broker trusts the time alone.
        "tests/unit/storage/index/test_index_service.py",
    ),
    _of(
        "Block checksums stored before the sync",
        "log.flush",
        "        try:\n            self._target.flush(least_pages)\n",
        "        self._on_synced(self._target.max_offset)\n"
        "        try:\n            self._target.flush(least_pages)\n",
    ),
)

_RECOVERY: Final = (
    _of(
        "Cut tail not zeroed",
        "recovery.apply",
        "                self._zero(path, action.position, action.length)\n",
        "",
    ),
    _of(
        "Cut tail zeroed, not synced",
        "recovery.apply",
        "mapped.view[start:stop] = _ZEROS[: stop - start]\n            mapped.sync()\n",
        "mapped.view[start:stop] = _ZEROS[: stop - start]\n",
        f"{_SIMULATED}::test_what_was_cut_is_no_part_of_a_record_that_is_put_in_its_place",
    ),
    _of(
        "Recovered bytes of the log not written again",
        "recovery.apply",
        "                self._rewrite(action.offset, action.offset + action.length)\n",
        "                pass\n",
    ),
    _of(
        "Recovered queue entries not written again",
        "recovery.apply",
        "                self._mark_queues_dirty(plan, queues)\n",
        "",
        f"{_SIMULATED}::test_queue_offsets_go_on_although_a_sync_of_the_process_before_had_failed",
    ),
    _of(
        "Segments behind the log's end not removed",
        "recovery.apply",
        "                self.files.unlink(path)\n"
        "                self.files.sync_directory(path.parent)\n",
        "                pass\n",
    ),
    _of(
        "Queue entries beyond the log's end kept",
        "recovery.apply",
        "            queue.truncate_after(min(offset, end))\n",
        "",
    ),
    _of(
        "Queue entries beyond the log's end dropped, not synced",
        "recovery.apply",
        "            if self.resumes and self.durable:\n"
        "                queue.flush_end()\n"
        "            elif beyond:\n"
        "                queue.flush()\n",
        "",
    ),
    _of(
        "Recovery cuts the log at the watermark",
        "recovery.plan",
        "    scan = LogScan(view, progress, ends_at_damage=follows).run(start)\n",
        "    scan = LogScan(view, progress, ends_at_damage=follows).run(start)\n"
        "    scan.end = start\n",
    ),
    _of(
        "Index files trusted after a crash",
        "directory_recovery",
        'safe=found.path == "normal",',
        "safe=True,",
    ),
    _of(
        "A queue's least offset not corrected",
        "queues.min_index",
        "            self.last = queue.find_by_physical(min_physical)\n",
        "            self.last = queue.first_index\n",
    ),
    _of(
        "Dispatch begins a record late",
        "index.catch_up",
        "            position = log.min_offset if self.boundary is None",
        "            position = log.min_offset + 1 if self.boundary is None",
    ),
    _of(
        "Block checksums of what recovery changes kept",
        "directory_recovery",
        "            self._applier.drop_block_checksums(found)\n",
        "",
    ),
    _of(
        "The watermark's check word not looked at",
        "metadata.state_page",
        "        return self._load(_FLUSHED_CHECK) == ~self.flushed_offset & _WORD_MASK\n",
        "        return True\n",
        f"{_FLIPS}::test_a_flip_in_the_state_page_never_makes_another_watermark",
    ),
    _of(
        "Any watermark taken for plausible",
        "recovery.plan",
        "                return any(data[max(0, end - 8) : end])\n",
        "                return True\n",
        f"{_PLAN}::test_a_watermark_that_the_log_does_not_reach_is_not_believed",
    ),
    _of(
        "A note of the queues believed without a look",
        "recovery.plan",
        "        complete = queue.holds(noted.first, noted.end, view.min_offset)\n",
        "        complete = True\n",
        f"{_RECOVERED}::test_a_queue_that_a_note_promises_and_that_was_removed_is_made_again",
    ),
)

_LIFE: Final = (
    _of(
        "A queue is not compared with what was closed",
        "queues.consume_queues",
        "        if (queue.first_index, queue.max_index) == (state.first, state.end):\n"
        "            return\n",
        "        if queue.max_index >= 0:\n            return\n",
        f"{_AT_REST}::test_a_queue_that_lost_entries_ends_the_store_and_the_next_opening_makes_them",
    ),
    _of(
        "Queue offsets begin one too low",
        "assembly",
        "offsets.load((q.topic, q.queue_id, q.end) for",
        "offsets.load((q.topic, q.queue_id, max(0, q.end - 1)) for",
    ),
    _of(
        "Store time may go back after an opening",
        "assembly",
        "            last_store_timestamp_ms=self._least_store_time(recovery, files),\n",
        "            last_store_timestamp_ms=0,\n",
    ),
    _of(
        "Store time may go back at any time",
        "log.commit_log",
        "            placements = self.end.put(batch, True)\n",
        "            self.end.last_store_timestamp_ms = 0\n"
        "            placements = self.end.put(batch, True)\n",
    ),
    _of(
        "Expiry before the queues are durable",
        "retention.removal",
        "            self._queue_flush.flush_all()\n",
        "            pass\n",
    ),
    _of(
        "Segments unlinked without a directory sync each",
        "mapped.mapped_file_queue",
        "so that a power cut leaves no hole.\n"
        "        self._seams.files.sync_directory(self.directory)\n",
        "so that a power cut leaves no hole.\n",
    ),
    _of(
        "Expired index files kept",
        "retention.removal",
        "        self.index_files += self._index.delete_before(minimum)\n",
        "",
    ),
    _of(
        "Expiry keeps a queue's last entry below the log",
        "queues.min_index",
        "            self.last = queue.find_by_physical(min_physical)\n",
        "            found = queue.find_by_physical(min_physical) - 1\n"
        "            self.last = max(queue.first_index, found)\n",
    ),
    _of(
        "A removal of a small file not synced",
        "system.atomic_file",
        "        return\n    files.sync_directory(path.parent)\n",
        "        return\n",
        _ADMINISTRATION,
    ),
)

MUTATIONS: Final = (*_FILES, *_SYNCS, *_RECOVERY, *_LIFE, *SHARD_MUTATIONS)
