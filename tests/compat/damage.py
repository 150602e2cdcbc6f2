"""Every kind of damage of docs/reliability.md, done to a copy of a store."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.compat.compare import Dump
from tests.compat.scripts import (
    BORN_HOST_V6,
    NOT_IN_QUEUES,
    STORE_HOST_V6,
    TRANSACTION_BITS,
)

BODY_POSITION = 88
"""Position of the body in a V1 record with IPv4 hosts."""
STORE_TIME_POSITION = 56
V6_EXTRA = 12
HOUR_MS = 3_600_000
PAGE = 4096
QUEUE_FILE_ENTRIES = 16

Line = Mapping[str, Any]


@dataclass
class Patient:
    """A store at rest that is being damaged, and what was in it."""

    root: Path
    segment_bytes: int
    messages: Sequence[Line]
    """``msg`` lines of the undamaged store, in log order."""
    end: int
    rng: random.Random
    touched: list[tuple[int, int]] = field(default_factory=list)
    """Physical ranges that the damage destroyed."""
    strays: dict[Path, bytes] = field(default_factory=dict)

    def untouched(self) -> list[Line]:
        """The messages that no damage reached."""
        return [
            line
            for line in self.messages
            if all(
                line["off"] + line["size"] <= start or line["off"] >= stop
                for start, stop in self.touched
            )
        ]

    def segment(self, offset: int) -> Path:
        return self.root / "commitlog" / f"{offset - offset % self.segment_bytes:020d}"

    def poke(self, offset: int, data: bytes) -> None:
        with self.segment(offset).open("r+b") as file:
            file.seek(offset % self.segment_bytes)
            file.write(data)

    def flip(self, offset: int) -> None:
        with self.segment(offset).open("r+b") as file:
            file.seek(offset % self.segment_bytes)
            (byte,) = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x40]))

    def hurt(self, line: Line) -> None:
        self.touched.append((line["off"], line["off"] + line["size"]))

    def add_stray(self, path: Path, content: bytes = b"mine") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.strays[path] = content

    def take_strays_away(self) -> None:
        """They must be as they were."""
        for path, content in self.strays.items():
            assert path.read_bytes() == content
            path.unlink()
            if path.parent.name == "notes":
                path.parent.rmdir()

    def remove_segment(self, number: int) -> None:
        """One of the segments that hold messages, by number from the first or the last."""
        bases = sorted({line["off"] // self.segment_bytes for line in self.messages})
        base = bases[number] * self.segment_bytes
        self.segment(base).unlink()
        self.touched.append((base, base + self.segment_bytes))

    def queue_directories(self) -> list[Path]:
        return sorted(path for path in self.root.glob("consumequeue/*/*") if any(path.iterdir()))

    def some_queue(self) -> list[Path]:
        """One of the queues, where any are left."""
        found = self.queue_directories()
        return [self.rng.choice(found)] if found else []


def torn(store: Patient) -> None:
    """The second half of the last record is zeros."""
    last = store.messages[-1]
    half = last["size"] // 2
    store.poke(last["off"] + half, bytes(last["size"] - half))
    store.hurt(last)


def torn_properties(store: Patient) -> None:
    """Only the last record's properties are zeros: no checksum covers them."""
    last = store.messages[-1]
    store.poke(last["off"] + last["size"] - 20, bytes(20))
    store.hurt(last)


def clock_back(store: Patient) -> None:
    """The writer's clock went an hour back, over a segment's end, and forth again: no damage."""
    count = len(store.messages)
    for line in store.messages[count // 4 : count // 2]:
        at = STORE_TIME_POSITION + V6_EXTRA * bool(line["sysFlag"] & BORN_HOST_V6)
        store.poke(line["off"] + at, struct.pack(">q", line["storeTs"] - HOUR_MS))
    store.messages = [
        {**line, "storeTs": line["storeTs"] - HOUR_MS * (count // 4 <= n < count // 2)}
        for n, line in enumerate(store.messages)
    ]


def flip_last(store: Patient) -> None:
    _flip_body(store, store.messages[::-1][:1])


def flip_middle(store: Patient) -> None:
    _flip_body(store, store.messages[-20:])


def flip_old(store: Patient) -> None:
    _flip_body(store, store.messages[11:])


def _flip_body(store: Patient, lines: Sequence[Line]) -> None:
    line = next(each for each in lines if each["bodyLen"])
    sys_flag = line["sysFlag"]
    v6 = bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6)
    store.flip(line["off"] + BODY_POSITION + V6_EXTRA * v6 + line["bodyLen"] // 2)
    store.hurt(line)


def garbage(store: Patient) -> None:
    """Bytes behind the end, as many as fit into its segment."""
    room = store.segment_bytes - store.end % store.segment_bytes
    store.poke(store.end, store.rng.randbytes(min(300, room)))


def bad_size(store: Patient) -> None:
    _poke_last(store, 0, struct.pack(">i", 0x7FFFFFFF))


def small_size(store: Patient) -> None:
    _poke_last(store, 0, struct.pack(">i", 10))


def bad_magic(store: Patient) -> None:
    _poke_last(store, 4, b"\xde\xad\xbe\xef")


def _poke_last(store: Patient, at: int, data: bytes) -> None:
    store.poke(store.messages[-1]["off"] + at, data)
    store.hurt(store.messages[-1])


def bad_magic_middle(store: Patient) -> None:
    line = store.messages[-25]
    store.poke(line["off"] + 4, b"\xde\xad\xbe\xef")
    store.hurt(line)


def bad_header_middle(store: Patient) -> None:
    line = store.messages[len(store.messages) // 2]
    store.poke(line["off"], store.rng.randbytes(60))
    store.hurt(line)


def bad_queue_offset_middle(store: Patient) -> None:
    """Size, magic and queue offset: only the queue knows what was there."""
    line = store.messages[-30]
    store.poke(line["off"], bytes(40))
    store.hurt(line)


def lost_page(store: Patient) -> None:
    """A page in the middle of a segment that a power cut left unwritten."""
    middle = store.messages[len(store.messages) // 2]["off"]
    start = middle - middle % PAGE
    store.poke(start, bytes(PAGE))
    store.touched.append((start, start + PAGE))


def topic_byte(store: Patient) -> None:
    """A letter of a topic: no checksum covers it, and what results is a topic too."""
    line = next(line for line in store.messages[-22:] if line["topic"] == "TopicTest")
    data = store.segment(line["off"]).read_bytes()
    start = line["off"] % store.segment_bytes
    at = data.index(b"TopicTest", start)
    store.poke(line["off"] - start + at + 5, b"B")
    store.hurt(line)


def no_last_queue_files(store: Patient) -> None:
    for directory in store.queue_directories():
        sorted(directory.iterdir())[-1].unlink()


def one_queue_gone(store: Patient) -> None:
    queues = sorted(store.root.glob("consumequeue/TopicTest/*"))
    for largest in sorted(queues, key=lambda queue: len(list(queue.iterdir())))[-1:]:
        shutil.rmtree(largest)


def no_queues(store: Patient) -> None:
    shutil.rmtree(store.root / "consumequeue", ignore_errors=True)


def empty_queue_file(store: Patient) -> None:
    """A halt while the last file of a queue was made."""
    for directory in store.some_queue():
        last = sorted(directory.iterdir())[-1]
        following = int(last.name) + QUEUE_FILE_ENTRIES * 20
        (directory / f"{following:020d}").write_bytes(b"")


def short_queue_file(store: Patient) -> None:
    for directory in store.some_queue():
        last = sorted(directory.iterdir())[-1]
        last.write_bytes(last.read_bytes()[: 20 * 2 + 7])


def hole_in_queue(store: Patient) -> None:
    """Three entries of a queue that a power cut left unwritten, with more of it behind them."""
    line = next(line for line in store.messages[-40:] if line["topic"] == "TopicTest")
    files = store.root / "consumequeue" / "TopicTest" / str(line["q"])
    number, index = divmod(line["qoff"], QUEUE_FILE_ENTRIES)
    path = files / f"{number * QUEUE_FILE_ENTRIES * 20:020d}"
    if path.exists():
        with path.open("r+b") as file:
            file.seek(20 * index)
            file.write(bytes(20 * min(3, QUEUE_FILE_ENTRIES - index)))


def short_index_file(store: Patient) -> None:
    for path in sorted(store.root.glob("index/*"))[:1]:
        path.write_bytes(path.read_bytes()[: 40 + 20 * 10])


def no_index(store: Patient) -> None:
    shutil.rmtree(store.root / "index", ignore_errors=True)


def empty_index_file(store: Patient) -> None:
    (store.root / "index").mkdir(exist_ok=True)
    now = datetime.now()
    (store.root / "index" / f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}").write_bytes(b"")


def no_checkpoint(store: Patient) -> None:
    (store.root / "checkpoint").unlink(missing_ok=True)


def zero_checkpoint(store: Patient) -> None:
    (store.root / "checkpoint").write_bytes(bytes(4096))


def empty_checkpoint(store: Patient) -> None:
    (store.root / "checkpoint").write_bytes(b"")


def short_file(store: Patient) -> None:
    """The last segment ends within its first records."""
    path = store.segment(store.messages[-1]["off"])
    base = int(path.name)
    inside = [line for line in store.messages if line["off"] >= base]
    cut = inside[len(inside) // 2]["off"] + 50
    path.write_bytes(path.read_bytes()[: cut - base])
    store.touched.append((cut, base + store.segment_bytes))
    for later in store.root.glob("commitlog/0*"):
        if int(later.name) > base:
            later.unlink()


def short_lone_segment(store: Patient) -> None:
    """Only the first segment is left, and only a part of it."""
    cut = store.messages[20]["off"] + 50
    path = store.segment(0)
    path.write_bytes(path.read_bytes()[:cut])
    store.touched.append((cut, 1 << 62))
    for later in store.root.glob("commitlog/0*"):
        if later != path:
            later.unlink()


def empty_last_segment(store: Patient) -> None:
    last = max(int(path.name) for path in store.root.glob("commitlog/0*"))
    (store.root / "commitlog" / f"{last + store.segment_bytes:020d}").write_bytes(b"")


def strange_file(store: Patient) -> None:
    store.add_stray(store.root / "commitlog" / "notes.txt")


def empty_strange_file(store: Patient) -> None:
    """5.x removes it, since it is empty and the last."""
    store.add_stray(store.root / "commitlog" / "notes.txt", b"")


def strange_directory(store: Patient) -> None:
    """5.x passes over it."""
    store.add_stray(store.root / "commitlog" / "notes" / "notes.txt")


def strange_queue_file(store: Patient) -> None:
    for directory in store.some_queue():
        store.add_stray(directory / "notes.txt")


def strange_topic_file(store: Patient) -> None:
    """Beside the topics and beside the queues, where brokers do not look."""
    topics = store.root / "consumequeue"
    for beside in (topics, topics / "notes", topics / "TopicTest", topics / "TopicTest" / "notes"):
        store.add_stray(beside / "notes.txt")


def no_last_segment(store: Patient) -> None:
    """With the empty one that was made ahead of need."""
    store.remove_segment(-1)
    for path in store.root.glob("commitlog/0*"):
        if int(path.name) >= store.touched[-1][1]:
            path.unlink()


def no_middle_segment(store: Patient) -> None:
    store.remove_segment(1)


def no_first_segment(store: Patient) -> None:
    store.remove_segment(0)


def no_commit_log(store: Patient) -> None:
    shutil.rmtree(store.root / "commitlog")
    store.touched.append((0, 1 << 62))


VARIANTS: dict[str, Callable[[Patient], None]] = {
    "torn": torn,
    "tornprops": torn_properties,
    "fliplast": flip_last,
    "flipmid": flip_middle,
    "flipold": flip_old,
    "garbage": garbage,
    "badsize": bad_size,
    "smallsize": small_size,
    "badmagic": bad_magic,
    "badmagicmid": bad_magic_middle,
    "badheadmid": bad_header_middle,
    "zeroheadmid": bad_queue_offset_middle,
    "lostpage": lost_page,
    "topicbyte": topic_byte,
    "nolastcq": no_last_queue_files,
    "onecqgone": one_queue_gone,
    "nocq": no_queues,
    "emptycq": empty_queue_file,
    "shortcq": short_queue_file,
    "holecq": hole_in_queue,
    "noindex": no_index,
    "emptyindex": empty_index_file,
    "shortindex": short_index_file,
    "nocheckpoint": no_checkpoint,
    "zerocheckpoint": zero_checkpoint,
    "emptycheckpoint": empty_checkpoint,
    "shortfile": short_file,
    "shortlone": short_lone_segment,
    "zerolenlast": empty_last_segment,
    "strangefile": strange_file,
    "strangeempty": empty_strange_file,
    "strangedir": strange_directory,
    "strangecq": strange_queue_file,
    "strangetopic": strange_topic_file,
    "nolastseg": no_last_segment,
    "nomidseg": no_middle_segment,
    "nofirstseg": no_first_segment,
    "nocommitlog": no_commit_log,
    "clockback": clock_back,
}
ALONE = frozenset(
    {
        *("nocommitlog", "nofirstseg", "nomidseg", "nolastseg", "shortfile", "shortlone"),
        *("strangeempty", "strangedir", "strangecq", "strangetopic"),
    }
)
TOGETHER: tuple[str, ...] = tuple(name for name in VARIANTS if name not in ALONE)
"""Those that can be combined in any order."""


def in_a_queue(line: Line) -> bool:
    return line["sysFlag"] & TRANSACTION_BITS not in NOT_IN_QUEUES


def places(line: Line) -> list[tuple[str, int, int]]:
    """Topic, queue id and queue offset of every entry that a message has."""
    if not in_a_queue(line):
        return []
    props = line["props"] or {}
    names = props.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = props.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    further = zip(names, offsets, strict=True) if offsets != [""] else ()
    light = [(name, 0, int(offset)) for name, offset in further]
    return [(line["topic"], line["q"], line["qoff"]), *light]


def is_in_its_queues(dump: Dump, line: Line) -> bool:
    """Whether each queue entry that a message should have is its own."""
    return all(
        dump.entries.get((topic, queue_id), {}).get(index, (None,))[0] == line["off"]
        for topic, queue_id, index in places(line)
    )
