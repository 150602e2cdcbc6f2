"""Every kind of damage that ``mqstore store repair`` mends, in stores that a real broker then
opens and continues."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.verify import Kind
from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.damage import is_in_its_queues
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.scripts import expected_messages
from tests.compat.shapes import Shape, expand
from tests.unit.storage.store_repair import damages
from tests.unit.storage.store_repair.damages import DAMAGES, SEGMENT, Damage, Patient, make_store
from tests.unit.storage.stores import CONFIG

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("damage"), pytest.mark.slow]

APPENDED: Final = Shape(
    messages=12,
    segment_bytes=SEGMENT,
    queue_file_entries=CONFIG.mapped_file_size_consume_queue // 20,
    hash_slots=CONFIG.max_hash_slot_num,
    index_num=CONFIG.max_index_num,
)
"""Messages that a broker stores in the repaired store."""
TABLES: Final = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")

GROUPS: Final[dict[str, tuple[Damage, ...]]] = {
    "one word": (
        *(damages.damage_body, damages.leave_a_tail, damages.wrong_tags_code, damages.lose_a_queue),
        *(damages.cut_an_index_file, damages.checkpoint_ahead, damages.torn_table, damages.strays),
        damages.damage_state,
    ),
    "a lost message": (
        *(damages.damage_two_words, damages.lose_entries, damages.wrong_index_header),
        *(damages.short_checkpoint, damages.torn_backup, damages.damage_manifest),
    ),
    "not closed": (damages.not_closed, damages.damage_magic, damages.last_entry_beyond),
    "a record of a wrong place": (
        *(damages.damage_stated_offset, damages.lengthen_a_queue_file),
        *(damages.wrong_index_hash, damages.entry_of_the_neighbour),
    ),
    "records that no writer stores": (
        *(damages.unsafe_topic, damages.blank_of_another_size, damages.lose_a_queue_file),
        *(damages.item_beyond, damages.queue_of_blanks),
    ),
    "changed blocks": (
        *(damages.change_born_times, damages.lengthen_a_segment, damages.misplaced_queue_file),
        damages.wrong_index_link,
    ),
    "a lost segment": (damages.lose_a_segment, damages.wrong_entry, damages.lose_an_index_file),
    "a lost segment of a broker": (damages.lose_a_segment_of_a_broker,),
    "a short segment": (damages.shorten_a_segment,),
    "a queue offset of two messages": (damages.take_a_queue_offset,),
    "an impossible queue offset": (damages.impossible_queue_offset,),
    "swapped queue offsets": (damages.swapped_records,),
    "entries beyond the log": (damages.entries_beyond, damages.table_without_backup),
}
"""Damages that one repair mends, by what is in common."""
UNSEEN: Final = frozenset(DAMAGES[Kind.OURS])
"""Damages of files that no broker reads; some of them are in the groups all the same."""


def test_every_damage_that_leaves_files_for_a_broker_is_in_a_group() -> None:
    grouped = {each for group in GROUPS.values() for each in group}
    assert {each for kind in DAMAGES for each in DAMAGES[kind]} - UNSEEN <= grouped


@pytest.fixture(scope="module")
def written(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damages") / "store"
    make_store(root, StoreFormat(referee.format))
    return root


@pytest.mark.parametrize("group", GROUPS)
def test_a_broker_reads_and_continues_what_was_repaired(
    referee: Referee, written: Path, tmp_path: Path, group: str
) -> None:
    messages = Dump.of(ours.dump(written, APPENDED.config, queries=False)).messages
    patient = Patient(Path(shutil.copytree(written, tmp_path / "store")))
    for damage in GROUPS[group]:
        damage(patient)
    touched = changed(written, patient.root, messages)

    summary = repair(patient.root)

    assert summary["found"]
    assert (summary["left"], summary["brokerStarts"]) == ({}, True)
    lost = changed(written, patient.root, messages)
    assert lost <= touched, "messages without damage were changed"
    theirs = Dump.of(referee.dump(copy_of(patient.root), APPENDED.config))
    assert missing(theirs, [line for line in messages if line["off"] not in lost]) == []
    moved = {line["uniqKey"] for line in theirs.messages} & keys(messages, lost)
    assert len(moved) >= summary["moved"]
    tables_are_read(referee, patient.root)
    continues(referee, patient.root, theirs)


def test_a_broker_reads_and_continues_what_was_rebuilt(
    referee: Referee, written: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(written, tmp_path / "store"))
    messages = Dump.of(ours.dump(root, APPENDED.config, queries=False)).messages
    done = ours.run_command("store", "rebuild", str(root), "--yes", "-o", "json")
    assert (done.code, done.lines[-1]["t"]) == (0, "rebuilt")

    theirs = Dump.of(referee.dump(copy_of(root), APPENDED.config))

    assert missing(theirs, messages) == []
    continues(referee, root, theirs)


def repair(root: Path) -> dict[str, Any]:
    """Run ``mqstore store repair --yes`` and return its last line."""
    options = ("--yes", "-o", "json", *ours.index_sizes(APPENDED.config))
    done = ours.run_command("store", "repair", str(root), *options)
    assert done.code in (0, 1), done.summary
    return done.lines[-1]


def changed(before: Path, after: Path, messages: Iterable[dict[str, Any]]) -> set[int]:
    """Offsets of messages whose bytes in the log are not the same."""
    logs = [
        {path.name: path.read_bytes() for path in (root / "commitlog").iterdir() if path.is_file()}
        for root in (before, after)
    ]
    found = set()
    for line in messages:
        base, end = line["off"] - line["off"] % SEGMENT, line["off"] + line["size"]
        parts = [log.get(f"{base:020d}", b"")[line["off"] - base : end - base] for log in logs]
        if parts[0] != parts[1]:
            found.add(line["off"])
    return found


def missing(theirs: Dump, messages: Iterable[dict[str, Any]]) -> list[int]:
    """Offsets of messages that a broker does not have in its log, its queues and its index."""
    there = {line["off"]: line for line in theirs.messages}
    return [
        line["off"]
        for line in messages
        if there.get(line["off"]) != line
        or not is_in_its_queues(theirs, line)
        or line["off"] not in theirs.queries[line["topic"], line["uniqKey"]]
    ]


def keys(messages: Iterable[dict[str, Any]], offsets: set[int]) -> set[str]:
    """The unique keys of the messages at these offsets."""
    return {line["uniqKey"] for line in messages if line["off"] in offsets}


def tables_are_read(referee: Referee, root: Path) -> None:
    """RocketMQ's managers read the config files, and find the same entries."""
    for name in TABLES:
        path = root / "config" / name
        if path.exists():
            text = path.read_text()
            assert json.loads(referee.recode(name, text)).keys() >= json.loads(text).keys()


def continues(referee: Referee, root: Path, before: Dump) -> None:
    """A broker stores more in the store itself: all records and entries of ``before``, its dump of
    the store, stay as they are, and the store has no findings then."""
    script = expand(7, APPENDED, referee.format)
    answers = referee.append(script, root)
    after = Dump.of(referee.dump(copy_of(root), APPENDED.config))
    there = {line["off"]: line for line in after.log}
    assert [line["off"] for line in before.messages if there.get(line["off"]) != line] == []
    for queue, entries in before.entries.items():
        assert entries.items() <= after.entries[queue].items()
    stored = expected_messages(script, answers, referee.format)
    assert len(stored) >= APPENDED.messages
    for each in stored:
        line = there[each.answers["off"]]
        assert {**line, **each.fields, **each.answers} == line
        assert is_in_its_queues(after, line)
    findings, _ = ours.verify(root, APPENDED.config)
    assert [line for line in findings if line["level"] == "finding"] == []
