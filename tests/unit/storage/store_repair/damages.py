"""Stores that are damaged, in a way for each kind of finding of ``verify``."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import INDEX_HEADER_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_repair import REMEDIES, Remedy, StoreRepair
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Finding, Kind, Verification
from tests.unit.storage.stores import CONFIG, abandon, open_store, put_some

RECORDS = 900
SEGMENT = CONFIG.mapped_file_size_commit_log
ITEMS_AT = INDEX_HEADER_SIZE + 4 * CONFIG.max_hash_slot_num
ENTRY = struct.Struct(">qiq")


class Patient:
    """A closed store of 900 messages in 3 queues over 4 segments, to be damaged."""

    def __init__(self, root: Path, config: StoreConfig = CONFIG) -> None:
        self.root = root
        self.config = config
        self.paths = StorePaths(root)

    def segment(self, number: int = 0) -> Path:
        return self.root / "commitlog" / segment_name(number * SEGMENT)

    def queue(self, queue_id: int = 0, file: int = 0) -> Path:
        name = segment_name(file * self.config.queue_file_size)
        return self.root / "consumequeue" / "T" / str(queue_id) / name

    def index(self) -> Path:
        return min((self.root / "index").iterdir())

    def entry(self, number: int, queue_id: int = 0, *, file: int = 0) -> tuple[int, int, int]:
        """Physical offset, size and tagsCode of an entry of one file of a queue."""
        data = self.queue(queue_id, file).read_bytes()
        found = ENTRY.unpack_from(data, number * QUEUE_ENTRY_SIZE)
        return (int(found[0]), int(found[1]), int(found[2]))

    def record(self, number: int, queue_id: int = 0) -> int:
        return self.entry(number, queue_id)[0]

    def poke(self, path: Path, offset: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def flip(self, path: Path, offset: int, mask: int = 0xFF) -> None:
        self.poke(path, offset, bytes([path.read_bytes()[offset] ^ mask]))

    def without_checksums(self) -> None:
        """As of segments that a broker wrote."""
        shutil.rmtree(self.paths.blocks, ignore_errors=True)

    def without_us(self) -> None:
        """As a broker's store, which mqstore has never opened."""
        shutil.rmtree(self.paths.ours)
        self.paths.lock.write_bytes(b"lock")

    def findings(self) -> list[Finding]:
        return list(Verification(self.root, self.config, production_seams()).findings())

    def repair(self, *remakes: Remedy) -> StoreRepair:
        seams = production_seams()
        return StoreRepair(self.root, self.config, seams, lambda *_: None, frozenset(remakes))


def make_store(root: Path, store_format: StoreFormat = StoreFormat.V4_9) -> None:
    """Make the store of a ``Patient``."""
    with open_store(root, format=store_format) as store:
        store.create_topic("T", queues=3)
        put_some(store, RECORDS)


def healthy(patient: Patient) -> None:
    left = [each for each in patient.findings() if REMEDIES[each.kind] is not Remedy.NOTHING]
    assert left == []


def kept(patient: Patient) -> list[bytes]:
    """The bytes of all quarantine entries."""
    return [path.read_bytes() for path in patient.paths.quarantine.glob("*/data")]


Damage = Callable[[Patient], None]


def damage_body(patient: Patient) -> None:
    patient.flip(patient.segment(), patient.record(50) + 100)


def damage_two_words(patient: Patient) -> None:
    """More than one word: no checksum proves what it was."""
    for at in (100, 120, 140):
        patient.flip(patient.segment(), patient.record(50) + at)


def damage_magic(patient: Patient) -> None:
    patient.without_checksums()
    patient.flip(patient.segment(), patient.record(50) + 4)


def damage_stated_offset(patient: Patient) -> None:
    patient.without_checksums()
    patient.flip(patient.segment(), patient.record(50) + 28)


def unsafe_topic(patient: Patient) -> None:
    patient.without_checksums()
    offset, size, _ = patient.entry(50)
    raw = patient.segment().read_bytes()[offset : offset + size]
    patient.poke(patient.segment(), offset + raw.index(b"\x01T") + 1, b".")


def blank_of_another_size(patient: Patient) -> None:
    patient.without_checksums()
    data = patient.segment().read_bytes()
    at = data.rindex(bytes.fromhex("cbd43194")) - 4
    patient.poke(patient.segment(), at, (SEGMENT - at - 1).to_bytes(4))


def change_born_times(patient: Patient) -> None:
    """Two words of one block, in fields that only the block checksum covers."""
    for number in (50, 60):
        patient.flip(patient.segment(), patient.record(number) + 46, 1)


def lose_a_segment(patient: Patient) -> None:
    patient.segment(1).unlink()


def lose_a_segment_of_a_broker(patient: Patient) -> None:
    patient.without_us()
    patient.segment(1).unlink()


def leave_a_tail(patient: Patient) -> None:
    used = len(patient.segment(3).read_bytes().rstrip(b"\0"))
    patient.poke(patient.segment(3), used + 1_000, b"garbage")


def lengthen_a_segment(patient: Patient) -> None:
    with patient.segment(1).open("ab") as file:
        file.write(b"x")


def shorten_a_segment(patient: Patient) -> None:
    data = patient.segment(1).read_bytes()
    patient.segment(1).write_bytes(data[: SEGMENT // 2])


def take_a_queue_offset(patient: Patient) -> None:
    """The message after entry 50 says that it is entry 50 too."""
    patient.without_checksums()
    patient.poke(patient.segment(), patient.record(51) + 20, (50).to_bytes(8))
    patient.poke(patient.queue(), 51 * QUEUE_ENTRY_SIZE, ENTRY.pack(*patient.entry(50)))


def impossible_queue_offset(patient: Patient) -> None:
    patient.without_checksums()
    patient.poke(patient.segment(), patient.record(51) + 20, (1 << 40).to_bytes(8))


def lose_entries(patient: Patient) -> None:
    patient.poke(patient.queue(), 200, bytes(60))


def wrong_entry(patient: Patient) -> None:
    patient.flip(patient.queue(), 207, 4)


def entry_of_the_neighbour(patient: Patient) -> None:
    patient.poke(patient.queue(), 200, ENTRY.pack(*patient.entry(11)))


def swapped_records(patient: Patient) -> None:
    """Two records with each other's queue offsets, and entries to match."""
    patient.without_checksums()
    first, second = patient.entry(10), patient.entry(11)
    patient.poke(patient.segment(), first[0] + 20, (11).to_bytes(8))
    patient.poke(patient.segment(), second[0] + 20, (10).to_bytes(8))
    patient.poke(patient.queue(), 200, ENTRY.pack(*second) + ENTRY.pack(*first))


def wrong_tags_code(patient: Patient) -> None:
    patient.flip(patient.queue(), 219, 1)


def entries_beyond(patient: Patient) -> None:
    patient.poke(patient.queue(), 200, ENTRY.pack(1 << 40, 200, 0) * 2)


def last_entry_beyond(patient: Patient) -> None:
    patient.poke(patient.queue(2, 2), 99 * 20, ENTRY.pack(1 << 40, 200, 0))


def queue_of_blanks(patient: Patient) -> None:
    path = patient.queue(7)
    path.parent.mkdir()
    blanks = ENTRY.pack(0, 0x7FFFFFFF, 0) * 4
    path.write_bytes(blanks.ljust(patient.config.queue_file_size, b"\0"))


def lose_a_queue(patient: Patient) -> None:
    shutil.rmtree(patient.queue(1).parent)


def lose_a_queue_file(patient: Patient) -> None:
    patient.queue(1, 1).unlink()


def lengthen_a_queue_file(patient: Patient) -> None:
    with patient.queue(1, 1).open("ab") as file:
        file.write(b"x")


def misplaced_queue_file(patient: Patient) -> None:
    patient.queue(1, 1).rename(patient.queue(1).with_name(segment_name(2_020)))


def cut_an_index_file(patient: Patient) -> None:
    patient.index().write_bytes(patient.index().read_bytes()[:-20])


def wrong_index_header(patient: Patient) -> None:
    patient.flip(patient.index(), 7, 4)


def wrong_index_link(patient: Patient) -> None:
    patient.flip(patient.index(), ITEMS_AT + 20 * 9 + 19, 4)


def wrong_index_hash(patient: Patient) -> None:
    patient.flip(patient.index(), ITEMS_AT + 20 * 9 + 3, 1)


def item_beyond(patient: Patient) -> None:
    patient.poke(patient.index(), ITEMS_AT + 20 * 9 + 4, (1 << 40).to_bytes(8))


def lose_an_index_file(patient: Patient) -> None:
    patient.index().unlink()


def checkpoint_ahead(patient: Patient) -> None:
    patient.poke(patient.paths.checkpoint, 8, (1 << 50).to_bytes(8))


def short_checkpoint(patient: Patient) -> None:
    patient.paths.checkpoint.write_bytes(b"short")


def torn_table(patient: Patient) -> None:
    shutil.copy(patient.paths.config / "topics.json", patient.paths.config / "topics.json.bak")
    (patient.paths.config / "topics.json").write_text('{"dataVersion":{"cou')


def table_without_backup(patient: Patient) -> None:
    (patient.paths.config / "topics.json").write_text('{"dataVersion":{"cou')
    (patient.paths.config / "topics.json.bak").write_text("")


def torn_backup(patient: Patient) -> None:
    (patient.paths.config / "topics.json.bak").write_text("{")


def damage_state(patient: Patient) -> None:
    patient.poke(patient.paths.state, 0, b"NOTSTATE")


def foreign_state(patient: Patient) -> None:
    patient.flip(patient.paths.state, 16, 1)


def damage_manifest(patient: Patient) -> None:
    patient.flip(patient.paths.manifest, 60, 1)


def damage_report(patient: Patient) -> None:
    patient.paths.recovery_report.write_text("{")


def damage_archive(patient: Patient) -> None:
    patient.paths.archive.write_text('{"offset": -1}')


def damage_pins(patient: Patient) -> None:
    patient.paths.pins.write_text('{"pins": 1}')


def damage_clock(patient: Patient) -> None:
    patient.paths.clock.write_text('{"steps": 1}')


def damage_pause(patient: Patient) -> None:
    patient.paths.write_pause.write_text("{")


def damage_dead_letters(patient: Patient) -> None:
    patient.paths.dead_letters.write_text("{")


def damage_journal(patient: Patient) -> None:
    patient.paths.journal_of("topics.json").write_text("torn\n{}\n")


def change_broker_conf(patient: Patient) -> None:
    path = patient.paths.broker_conf
    path.write_text(path.read_text().replace("maxIndexNum=400", "maxIndexNum=401"))


def empty_quarantine_entry(patient: Patient) -> None:
    (patient.paths.quarantine / "left").mkdir()


def quarantine_entry_without_description(patient: Patient) -> None:
    (patient.paths.quarantine / "left").mkdir()
    (patient.paths.quarantine / "left" / "data").write_bytes(b"kept")


def stray_file_of_the_quarantine(patient: Patient) -> None:
    (patient.paths.quarantine / "left").write_bytes(b"kept")


def strays(patient: Patient) -> None:
    (patient.root / "commitlog" / "strange").write_bytes(b"mine")
    (patient.root / "commitlog" / "folder").mkdir()
    (patient.root / "commitlog" / "folder" / "inner").write_bytes(b"mine too")
    (patient.queue().parent / "strange").touch()


def not_closed(patient: Patient) -> None:
    abandon(open_store(patient.root))


DAMAGES: dict[Kind, list[Damage]] = {
    Kind.RECORD_BODY: [damage_body, damage_two_words],
    Kind.RECORD_BROKEN: [damage_magic],
    Kind.RECORD_ODD: [damage_stated_offset, unsafe_topic, blank_of_another_size],
    Kind.BLOCK_CHANGED: [change_born_times],
    Kind.LOG_GAP: [lose_a_segment, lose_a_segment_of_a_broker],
    Kind.DATA_MISSING: [lose_a_segment],
    Kind.LOG_TAIL: [leave_a_tail],
    Kind.SEGMENT_LENGTH: [lengthen_a_segment, shorten_a_segment],
    Kind.QUEUE_OFFSET_TAKEN: [take_a_queue_offset],
    Kind.ENTRY_MISSING: [lose_entries, impossible_queue_offset],
    Kind.ENTRY_WRONG: [wrong_entry, entry_of_the_neighbour],
    Kind.ENTRY_BEYOND: [entries_beyond],
    Kind.ENTRY_ORDER: [entry_of_the_neighbour, swapped_records],
    Kind.ENTRY_TAGS: [wrong_tags_code],
    Kind.QUEUE_HOLE: [lose_entries, queue_of_blanks],
    Kind.QUEUE_MISSING: [lose_a_queue],
    Kind.QUEUE_FILE: [lose_a_queue_file, lengthen_a_queue_file, misplaced_queue_file],
    Kind.INDEX_FILE: [cut_an_index_file],
    Kind.INDEX_HEADER: [wrong_index_header],
    Kind.INDEX_CHAIN: [wrong_index_link],
    Kind.INDEX_ITEM: [wrong_index_hash],
    Kind.INDEX_BEYOND: [item_beyond],
    Kind.INDEX_MISSING: [lose_an_index_file],
    Kind.CHECKPOINT: [checkpoint_ahead, short_checkpoint],
    Kind.CONFIG: [torn_table, table_without_backup],
    Kind.CONFIG_BACKUP: [torn_backup, table_without_backup],
    Kind.OURS: [
        *(damage_state, foreign_state, damage_manifest, damage_report, damage_archive),
        *(damage_pins, damage_clock, damage_pause, damage_dead_letters, damage_journal),
        *(change_broker_conf, empty_quarantine_entry, quarantine_entry_without_description),
        stray_file_of_the_quarantine,
    ],
    Kind.STRAY_REFUSED: [strays],
    Kind.NOT_CLOSED: [not_closed],
}
"""By kind, the damages that ``verify`` reports as it."""
