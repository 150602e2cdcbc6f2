"""``verify`` on stores with one known damage each: what it finds, where, and that it only looks."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.errors import DirectoryNotUsable
from mqstore.storage.layout import INDEX_HEADER_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.metadata import sealed_json, settled_letters
from mqstore.storage.metadata.settled_letters import Place, SettledLetters
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Finding, Kind, Level, Verification
from tests.unit.storage.stores import CONFIG, FILES, abandon, open_store, put_some

RECORDS = 300
SLOTS, ITEMS = CONFIG.max_hash_slot_num, CONFIG.max_index_num
ITEMS_AT = INDEX_HEADER_SIZE + 4 * SLOTS
QUEUE = "consumequeue/T/0/" + segment_name(0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 messages in 3 queues over 2 segments, closed cleanly."""
    path: Path = tmp_path_factory.mktemp("verify") / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, RECORDS)
    return path


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy to be damaged; times are kept, so that it counts as the same store."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def verified(root: Path) -> Verification:
    return Verification(root, CONFIG, production_seams())


def found(root: Path) -> list[Finding]:
    return list(verified(root).findings())


def kinds(root: Path) -> set[Kind]:
    return {finding.kind for finding in found(root)}


def only(root: Path) -> Finding:
    (finding,) = found(root)
    return finding


def poke(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, mask: int = 0xFF) -> None:
    poke(path, offset, bytes([path.read_bytes()[offset] ^ mask]))


def record_at(root: Path, number: int) -> int:
    """Physical offset of the number-th message of queue 0."""
    entry = (root / QUEUE).read_bytes()[number * QUEUE_ENTRY_SIZE :]
    return int(struct.unpack_from(">q", entry)[0])


def segment(root: Path) -> Path:
    return root / "commitlog" / segment_name(0)


def first_index(root: Path) -> Path:
    return min((root / "index").iterdir())


# a store at rest, and beside a writer --------------------------------------------------------


def test_a_whole_store_has_no_findings_and_everything_is_counted(root: Path) -> None:
    verification = verified(root)

    assert list(verification.findings()) == []
    summary = verification.summary
    assert (summary.records, summary.queues, summary.entries) == (RECORDS, 3, RECORDS)
    assert summary.index_items == 2 * RECORDS
    assert (summary.segments, summary.findings, summary.notes) == (2, 0, 0)


def test_nothing_is_changed(root: Path) -> None:
    flip(segment(root), record_at(root, 50) + 100)
    before = fingerprint(root)

    found(root)

    assert fingerprint(root) == before


def test_a_running_store_is_looked_at_without_its_lock(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, 20)

        verification = verified(tmp_path / "store")
        assert [finding.kind for finding in verification.findings()] == [Kind.NOT_CHECKED]
        assert verification.summary.records == 20


def test_a_store_that_was_not_closed_is_a_note_only(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_some(store, 20)
    abandon(store)

    findings = found(tmp_path / "store")

    assert [finding.kind for finding in findings] == [Kind.NOT_CLOSED]
    assert findings[0].level is Level.NOTE


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(DirectoryNotUsable):
            verified(path)


def test_index_counts_that_fit_no_file_are_named(root: Path) -> None:
    StorePaths(root).format.unlink()
    wrong = CONFIG.model_copy(update={"max_index_num": ITEMS + 1})

    findings = Verification(root, wrong, production_seams()).findings()

    of_files = [each.what for each in findings if each.kind is Kind.INDEX_FILE]
    assert of_files
    assert all(f"maxIndexNum {ITEMS + 1} make" in what for what in of_files)


# the log ------------------------------------------------------------------------------------


def test_a_damaged_body_is_named_with_its_place_and_message(root: Path) -> None:
    offset = record_at(root, 50)
    flip(segment(root), offset + 100)

    finding = only(root)

    assert (finding.kind, finding.file) == (Kind.RECORD_BODY, f"commitlog/{segment_name(0)}")
    assert finding.offset == finding.physical_offset == offset
    assert (finding.topic, finding.queue_id, finding.index) == ("T", 0, 50)
    assert finding.broker.startswith("cuts the log here")


def test_a_record_below_a_brokers_start_is_not_noticed_by_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        put_some(store, 1_200)
    flip(segment(root), 100)

    finding = only(root)

    assert finding.kind is Kind.RECORD_BODY
    assert finding.broker.startswith("not noticed")


def test_an_unknown_magic_is_a_broken_record_whose_entry_and_keys_name_nothing(root: Path) -> None:
    offset = record_at(root, 50)
    flip(segment(root), offset + 4)

    findings = found(root)

    assert {finding.kind for finding in findings} == {
        Kind.RECORD_BROKEN,
        Kind.ENTRY_WRONG,
        Kind.INDEX_ITEM,
    }
    assert all(finding.physical_offset == offset for finding in findings)
    assert "magic" in next(f.what for f in findings if f.kind is Kind.RECORD_BROKEN)


@pytest.mark.parametrize("at", [28, 52, 68], ids=["physical offset", "born port", "store port"])
def test_an_impossible_field_is_odd(root: Path, at: int) -> None:
    flip(segment(root), record_at(root, 50) + at)

    assert Kind.RECORD_ODD in kinds(root)


def test_bytes_behind_the_end_are_a_tail(root: Path) -> None:
    last = root / "commitlog" / segment_name(65536)
    poke(last, 60_000, b"garbage")

    finding, close = found(root)

    assert close.file == "mqstore/clean-close.json"
    assert (finding.kind, finding.file) == (Kind.LOG_TAIL, f"commitlog/{segment_name(65536)}")
    assert "behind the log's end" in finding.what


def test_a_missing_segment_is_a_gap(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        put_some(store, 900)
    (root / "commitlog" / segment_name(65536)).unlink()

    findings = found(root)

    assert Kind.LOG_GAP in {finding.kind for finding in findings}
    gap = next(finding for finding in findings if finding.kind is Kind.LOG_GAP)
    assert gap.physical_offset == 131072
    assert "65536" in gap.what


def test_a_segment_of_another_length_stops_a_broker(root: Path) -> None:
    with segment(root).open("ab") as file:
        file.write(b"x")

    finding = next(each for each in found(root) if each.kind is Kind.SEGMENT_LENGTH)

    assert finding.broker == "refuses to start"


# queues -------------------------------------------------------------------------------------


def test_a_hole_is_reported_once_beside_the_record_without_an_entry(root: Path) -> None:
    poke(root / QUEUE, 10 * QUEUE_ENTRY_SIZE, bytes(3 * QUEUE_ENTRY_SIZE))

    findings = {finding.kind: finding for finding in found(root)}

    assert set(findings) == {Kind.QUEUE_HOLE, Kind.ENTRY_MISSING}
    assert findings[Kind.QUEUE_HOLE].what.startswith("entries 10 to 12")
    assert findings[Kind.ENTRY_MISSING].index == 10
    assert findings[Kind.ENTRY_MISSING].physical_offset == record_at_message(30)


def test_a_queue_of_nothing_but_pre_blanks_is_a_hole(root: Path) -> None:
    queue = root / "consumequeue" / "T" / "7"
    queue.mkdir()
    blanks = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 4
    size = CONFIG.queue_file_size
    (queue / segment_name(0)).write_bytes(blanks + bytes(size - len(blanks)))

    finding = next(each for each in found(root) if each.kind is Kind.QUEUE_HOLE)

    assert (finding.topic, finding.queue_id, finding.index) == ("T", 7, 0)
    assert "entries 0 to 3" in finding.what
    assert "stops later puts" in finding.broker


@pytest.mark.parametrize("at", [7, 11], ids=["offset", "size"])
def test_an_entry_that_names_no_record_of_its_place(root: Path, at: int) -> None:
    flip(root / QUEUE, 10 * QUEUE_ENTRY_SIZE + at, 4)

    finding = only(root)

    assert (finding.kind, finding.file) == (Kind.ENTRY_WRONG, QUEUE)
    assert (finding.topic, finding.queue_id, finding.index) == ("T", 0, 10)
    assert finding.offset == 10 * QUEUE_ENTRY_SIZE


def test_an_entry_that_names_its_neighbours_record(root: Path) -> None:
    entries = (root / QUEUE).read_bytes()
    poke(root / QUEUE, 200, entries[220:240])

    findings = found(root)

    assert [finding.kind for finding in findings] == [Kind.ENTRY_WRONG, Kind.ENTRY_ORDER]
    assert "queue offset 11" in findings[0].what


def test_a_wrong_tags_code_is_named_with_the_right_one(root: Path) -> None:
    flip(root / QUEUE, 10 * QUEUE_ENTRY_SIZE + 19, 1)

    finding = only(root)

    assert finding.kind is Kind.ENTRY_TAGS
    assert finding.what == "its tagsCode is 96; its record makes 97"


def test_entries_beyond_the_log_are_reported_as_one_run(root: Path) -> None:
    entry = struct.pack(">qiq", 1 << 40, 200, 0)
    poke(root / "consumequeue" / "T" / "0" / segment_name(0), 0, entry * 2)

    findings = [finding for finding in found(root) if finding.kind is Kind.ENTRY_BEYOND]

    assert [finding.what[:14] for finding in findings] == ["entries 0 to 1"]


def test_a_missing_queue_is_one_finding(root: Path) -> None:
    for path in (root / "consumequeue" / "T" / "1").iterdir():
        path.unlink()
    (root / "consumequeue" / "T" / "1").rmdir()

    finding = next(each for each in found(root) if each.kind is Kind.QUEUE_MISSING)

    assert (finding.topic, finding.queue_id, finding.index) == ("T", 1, 0)
    assert finding.what.startswith("entries 0 to 99")


def test_strays_among_the_queues_stop_a_broker(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / "strange").touch()
    (root / "commitlog" / "strange").touch()
    (root / "strange").touch()

    findings = {finding.file: finding.kind for finding in found(root)}

    assert findings == {
        "consumequeue/T/0/strange": Kind.STRAY_REFUSED,
        "commitlog/strange": Kind.STRAY_REFUSED,
        "strange": Kind.STRAY,
    }


# index --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (7, {Kind.INDEX_HEADER}),
        (15, {Kind.INDEX_HEADER}),
        (35, {Kind.INDEX_HEADER}),
        (ITEMS_AT + 20 * 9 + 14, {Kind.INDEX_ITEM}),
        (ITEMS_AT + 20 * 9 + 19, {Kind.INDEX_CHAIN}),
    ],
    ids=["begin time", "end time", "used slots", "item time", "link"],
)
def test_an_index_file_that_disagrees_with_itself(root: Path, at: int, expected: set[Kind]) -> None:
    flip(first_index(root), at, 4)

    assert expected <= kinds(root) <= expected | {Kind.INDEX_ITEM}


def test_a_slot_that_names_another_item_is_a_broken_chain(root: Path) -> None:
    slots = first_index(root).read_bytes()[INDEX_HEADER_SIZE:ITEMS_AT]
    used = next(at for at in range(0, len(slots), 4) if any(slots[at : at + 4]))
    poke(first_index(root), INDEX_HEADER_SIZE + used, bytes(4))

    finding = only(root)

    assert (finding.kind, finding.offset) == (Kind.INDEX_CHAIN, INDEX_HEADER_SIZE + used)


def test_an_index_file_that_was_copied_while_it_grew_is_as_after_a_kill(tmp_path: Path) -> None:
    """The header is copied first: slots and items behind it are of later messages."""
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("T", queues=3)
        put_some(store, 100)
        store.wait_for_index()
        header = first_index(root).read_bytes()[:INDEX_HEADER_SIZE]
        put_some(store, 14, start=100)
        store.wait_for_index()
        store.flush.flush_all()
        copied = Path(shutil.copytree(root, tmp_path / "copy"))
    poke(first_index(copied), 0, header)

    assert Kind.NOT_CLOSED in kinds(copied)
    assert {each.kind for each in found(copied) if each.level is Level.FINDING} == set()

    item = ITEMS_AT + 20 * (2 * 114)
    poke(first_index(copied), item + 16, (2 * 114).to_bytes(4))
    assert Kind.INDEX_CHAIN in kinds(copied), "a chain behind the count that goes wrong"


@pytest.mark.parametrize("entry", [9, 0x7FFFFFFF, 0xFFFFFFFF], ids=["cycle", "beyond", "negative"])
def test_links_that_lead_nowhere_are_broken_chains(root: Path, entry: int) -> None:
    poke(first_index(root), ITEMS_AT + 20 * 9 + 16, entry.to_bytes(4))

    finding = only(root)

    assert (finding.kind, finding.index) == (Kind.INDEX_CHAIN, 9)


def test_an_item_of_another_hash_is_foreign_and_its_key_missing(root: Path) -> None:
    flip(first_index(root), ITEMS_AT + 20 * 9 + 3, 1)

    assert {Kind.INDEX_ITEM, Kind.INDEX_MISSING} <= kinds(root)


def test_an_item_of_another_offset_does_not_hide_those_behind_it(root: Path) -> None:
    poke(first_index(root), ITEMS_AT + 20 * 9 + 4, (1 << 16).to_bytes(8))

    findings = [f for f in found(root) if f.kind is Kind.INDEX_MISSING]

    assert len(findings) == 1
    assert findings[0].what.startswith("keys of 1 messages")


def test_items_beyond_the_log_are_named(root: Path) -> None:
    poke(first_index(root), ITEMS_AT + 20 * 9 + 4, (1 << 40).to_bytes(8))

    finding = next(each for each in found(root) if each.kind is Kind.INDEX_BEYOND)

    assert finding.index == 9


def test_a_missing_index_file_is_one_run_of_missing_keys(root: Path) -> None:
    first_index(root).unlink()

    finding = next(each for each in found(root) if each.kind is Kind.INDEX_MISSING)

    assert finding.physical_offset == 0
    assert finding.what.startswith("keys of 200 messages")


def test_no_index_at_all_is_one_finding(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.unlink()

    finding = next(each for each in found(root) if each.kind is Kind.INDEX_MISSING)

    assert finding.what == "there is no index file, and 300 messages have keys"


def test_a_cut_index_file_is_named_with_the_length_that_is_due(root: Path) -> None:
    path = first_index(root)
    path.write_bytes(path.read_bytes()[:-20])

    finding = next(each for each in found(root) if each.kind is Kind.INDEX_FILE)

    assert "has 8420 bytes where" in finding.what


# small files --------------------------------------------------------------------------------


def test_a_checkpoint_ahead_of_the_log(root: Path) -> None:
    poke(root / "checkpoint", 8, (1 << 50).to_bytes(8))

    findings = {finding.kind: finding for finding in found(root)}

    assert findings[Kind.CHECKPOINT].offset == 8
    assert "logicsMsgTimestamp" in findings[Kind.CHECKPOINT].what


def test_a_checkpoint_of_another_length(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")

    assert Kind.CHECKPOINT in kinds(root)


def test_a_table_that_cannot_be_read(root: Path) -> None:
    (root / "config" / "topics.json").write_text('{"dataVersion":{"cou')
    (root / "config" / "topics.json.bak").write_text("")

    assert {finding.file: finding.kind for finding in found(root)} == {
        "config/topics.json": Kind.CONFIG,
        "config/topics.json.bak": Kind.CONFIG_BACKUP,
    }


def damage_state(root: Path) -> None:
    poke(StorePaths(root).state, 0, b"NOTSTATE")


def foreign_state(root: Path) -> None:
    flip(StorePaths(root).state, 16, 1)


def damage_manifest(root: Path) -> None:
    flip(StorePaths(root).manifest, 60, 1)


def damage_report(root: Path) -> None:
    StorePaths(root).recovery_report.write_text("{")


def damage_archive(root: Path) -> None:
    StorePaths(root).archive.write_text('{"offset": -1}')


def damage_dead_letters(root: Path) -> None:
    path = StorePaths(root).dead_letters
    settled = {("%DLQ%g", 0): SettledLetters(((0, 5),), Place(4, 800))}
    settled_letters.save(FILES, path, settled)
    path.write_bytes(path.read_bytes().replace(b"[0,5]", b"[0,7]"))


def damage_clock(root: Path) -> None:
    StorePaths(root).clock.write_text('{"steps": 1}')


def damage_pins(root: Path) -> None:
    StorePaths(root).pins.write_text('{"pins": 1}')


def change_broker_conf(root: Path) -> None:
    path = StorePaths(root).broker_conf
    path.write_text(path.read_text().replace("maxIndexNum=400", "maxIndexNum=401"))


def half_quarantined(root: Path) -> None:
    (StorePaths(root).quarantine / "left").mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        damage_state,
        foreign_state,
        damage_manifest,
        damage_report,
        damage_archive,
        damage_pins,
        damage_clock,
        damage_dead_letters,
        change_broker_conf,
        half_quarantined,
    ],
)
def test_each_of_our_own_files_is_checked(root: Path, damage: Callable[[Path], None]) -> None:
    damage(root)

    finding = only(root)

    assert finding.kind is Kind.OURS
    assert finding.file.startswith("mqstore/")


def test_what_is_in_quarantine_is_a_note_and_its_bytes_are_compared(root: Path) -> None:
    poke(root / "commitlog" / segment_name(65536), 60_000, b"garbage")
    StorePaths(root).manifest.unlink()
    StorePaths(root).state.unlink()
    open_store(root).close()

    (note,) = found(root)
    assert (note.kind, note.level) == (Kind.QUARANTINED, Level.NOTE)

    data = root / note.file / "data"
    flip(data, data.stat().st_size - 1)
    assert kinds(root) == {Kind.QUARANTINED, Kind.OURS}


def test_a_checksum_inside_json_is_optional_and_binding() -> None:
    sealed = sealed_json.seal('{"a": 1}')

    assert sealed.startswith(b'{"checksum":"')
    assert sealed_json.unseal(sealed) == b'{"a": 1}'
    assert sealed_json.unseal(b'{"a": 1}') == b'{"a": 1}'
    with pytest.raises(ValueError, match="checksum"):
        sealed_json.unseal(sealed.replace(b"1}", b"2}"))


def record_at_message(number: int) -> int:
    """Physical offset of message ``number`` of ``put_some``: messages have different sizes."""
    return sum(record_size(each) for each in range(number))


def record_size(number: int) -> int:
    body, keys = len(b"body %d " % number) * 10, len(f"k{number}")
    return 91 + body + len("T") + len("KEYS TAGS a UNIQ_KEY ") + keys + 32 + len("  ") - 1


def fingerprint(root: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def write_as_a_broker(root: Path) -> None:
    """Write ``lock`` and the checkpoint, as a broker does when it starts and stops."""
    for path in (root / "lock", root / "checkpoint"):
        before = path.stat().st_mtime
        with path.open("r+b") as file:
            file.write(b"lock" if path.name == "lock" else (1).to_bytes(8))
        os.utime(path, (before + 60, before + 60))


def test_a_clean_close_before_a_broker_wrote_is_no_finding(root: Path) -> None:
    write_as_a_broker(root)

    assert found(root) == []


def test_a_damaged_clean_close_is_a_finding_also_after_a_broker_wrote(root: Path) -> None:
    flip(root / "mqstore" / "clean-close.json", 40)
    write_as_a_broker(root)

    finding = only(root)

    assert (finding.kind, finding.file) == (Kind.OURS, "mqstore/clean-close.json")
    assert "cannot be read" in finding.what
