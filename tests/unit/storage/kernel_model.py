"""The kernel once more, slow and obvious: what its functions answer, said in plain Python.

Written from the format's description and RocketMQ's behaviour, not from the kernel. Property tests
in test_kernel.py hold the two together.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from mqstore.storage import layout
from mqstore.storage._kernel import Defect, Stop
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.java_text import decode_utf8
from mqstore.storage.codec.record import Message

MASK_32 = 0xFFFFFFFF
MASK_64 = 0xFFFFFFFFFFFFFFFF
KEYS_MAX = 64
TORN_RUN = 512


def java_hash(text: str) -> int:
    """String.hashCode, unsigned."""
    hashed = 0
    for unit in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit[0]) & MASK_32
    return hashed


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def index_hash(key: str) -> int:
    hashed = abs(signed(java_hash(key)))
    return 0 if hashed == 2**31 else hashed


# Records ---------------------------------------------------------------------------------------


@dataclass
class Parts:
    """A record taken apart; ``size`` stays 0 until the parts add up to TOTALSIZE."""

    size: int = 0
    version: int = 0
    crc: int = 0
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_time: int = 0
    born_host: bytes = b""
    store_time: int = 0
    store_host: bytes = b""
    reconsume_times: int = 0
    prepared_offset: int = 0
    body: bytes = b""
    topic: bytes = b""
    properties: bytes = b""


class Reader:
    """Takes fields off the front of a record; ValueError where it ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def length(self, size: int) -> int:
        return int.from_bytes(self.take(size))


def check(
    data: bytes, position: int, end: int, physical_offset: int, verify_body: bool
) -> tuple[Defect, int]:
    defect, parts, blank_size = take_apart(data[position:end], physical_offset)
    if defect is Defect.NONE and verify_body:
        defect = checksums(data[position : position + parts.size], parts)
    return defect, blank_size if defect is Defect.BLANK else parts.size


def take_apart(data: bytes, physical_offset: int) -> tuple[Defect, Parts, int]:
    parts = Parts()
    if len(data) < 8:
        return Defect.TRUNCATED, parts, 0
    total, magic = struct.unpack_from(">iI", data)
    if magic == layout.MAGIC_BLANK:
        return Defect.BLANK, parts, total
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return Defect.MAGIC_UNKNOWN, parts, 0
    parts.version = 1 if magic == layout.MAGIC_V1 else 2
    if total < layout.RECORD_FIXED_SIZE + parts.version - 1:
        return Defect.SIZE_WRONG, parts, 0
    if total > len(data):
        return Defect.TRUNCATED, parts, 0
    defect = read_fields(data[:total], parts)
    if defect is Defect.NONE:
        parts.size = total
        defect = judge(parts, physical_offset)
    return defect, parts, 0


def read_fields(data: bytes, parts: Parts) -> Defect:
    fixed = layout.RECORD_FIXED_SIZE + parts.version - 1
    sys_flag = int.from_bytes(data[36:40])
    fixed += 12 * bool(sys_flag & 0x10) + 12 * bool(sys_flag & 0x20)
    if len(data) < fixed:
        return Defect.SIZE_WRONG
    reader = Reader(data)
    reader.take(8)
    parts.crc = reader.number(4)
    parts.queue_id = reader.number(4)
    parts.flag = reader.number(4)
    parts.queue_offset = reader.number(8)
    parts.physical_offset = reader.number(8)
    parts.sys_flag = reader.number(4)
    parts.born_time = reader.number(8)
    parts.born_host = reader.take(20 if sys_flag & 0x10 else 8)
    parts.store_time = reader.number(8)
    parts.store_host = reader.take(20 if sys_flag & 0x20 else 8)
    parts.reconsume_times = reader.number(4)
    parts.prepared_offset = reader.number(8)
    try:
        parts.body = reader.take(reader.number(4))
        parts.topic = reader.take(reader.length(parts.version))
        parts.properties = reader.take(reader.length(2))
    except ValueError:
        return Defect.LENGTHS_DISAGREE
    return Defect.NONE if reader.at == len(data) else Defect.LENGTHS_DISAGREE


def judge(parts: Parts, physical_offset: int) -> Defect:
    if physical_offset >= 0 and parts.physical_offset != physical_offset:
        return Defect.MISPLACED
    if any(int.from_bytes(host[-4:]) > 65535 for host in (parts.born_host, parts.store_host)):
        return Defect.HOST_INVALID
    topic_max = 127 if parts.version == 1 else 255
    if not 0 < len(parts.topic) <= topic_max or b"\0" in parts.topic:
        return Defect.TOPIC_INVALID
    if parts.properties and torn_properties(parts.properties):
        return Defect.PROPERTIES_MALFORMED
    return Defect.NONE


def torn_properties(data: bytes) -> bool:
    if len(data) > 32767 or data[0] == 0 or data[-1] == 0 or b"\x01" not in data:
        return True
    return bytes(TORN_RUN) in data


def checksums(data: bytes, parts: Parts) -> Defect:
    if parts.body and zlib.crc32(parts.body) & 0x7FFFFFFF != parts.crc:
        return Defect.BODY_CORRUPT
    tail = data[-20:]
    if len(parts.properties) < 20 or tail[:9] != b"__CRC32#\x01" or tail[19:] != b"\x02":
        return Defect.NONE
    digits = tail[9:19].decode("latin-1")
    if not (digits.isascii() and digits.isdigit()):
        return Defect.CRC_MISMATCH
    right = int(digits[::-1]) == zlib.crc32(data[:-20]) & 0x7FFFFFFF
    return Defect.NONE if right else Defect.CRC_MISMATCH


def decode(
    data: bytes, position: int, end: int, physical_offset: int, verify_body: bool, with_body: bool
) -> tuple[object, ...]:
    defect, size = check(data, position, end, physical_offset, verify_body)
    if defect is not Defect.NONE:
        return defect, size
    p = take_apart(data[position:end], physical_offset)[1]
    born, stored = Host.unpack(p.born_host), Host.unpack(p.store_host)
    topic = p.topic.decode() if well_formed(p.topic) else None
    return (
        *(p.size, p.version, p.crc, p.queue_id, p.flag, p.queue_offset, p.physical_offset),
        *(p.sys_flag, p.born_time, born, p.store_time, stored, p.reconsume_times),
        *(p.prepared_offset, p.body if with_body else b"", topic, p.topic, p.properties),
    )


def read_entries(
    entries: bytes, log: bytes, topic: bytes, queue_id: int, index: int, most: int
) -> list[bytes]:
    """The records of a log from offset 0 that consecutive entries name, while they are plain."""
    read: list[bytes] = []
    for number in range(len(entries) // 20):
        offset, size, _ = struct.unpack_from(">qiq", entries, number * 20)
        if not 0 <= offset <= offset + size <= len(log) or size <= 0:
            break
        defect, found = check(log, offset, len(log), offset, True)
        parts = take_apart(log[offset:], offset)[1]
        own = (found, parts.topic, parts.queue_id, parts.queue_offset)
        if defect is not Defect.NONE or own != (size, topic, queue_id, index + number):
            break
        is_tombstone = parts.prepared_offset == signed(layout.TOMBSTONE_MARK, 64)
        if is_tombstone or (read and sum(map(len, read)) + size > most):
            break
        read.append(log[offset : offset + size])
    return read


def encode(
    message: Message, version: int, queue_offset: int, physical_offset: int, store_time: int
) -> bytes:
    body = message.body or b""
    topic = message.topic.encode()
    sys_flag = message.sys_flag & ~0x30
    sys_flag |= 0x10 * (len(message.born_host.address) == 16)
    sys_flag |= 0x20 * (len(message.store_host.address) == 16)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    record = b"".join(
        [
            struct.pack(">Iii", crc, message.queue_id, message.flag),
            struct.pack(">qqi", queue_offset, physical_offset, sys_flag),
            struct.pack(">q", message.born_timestamp_ms),
            message.born_host.packed,
            struct.pack(">q", store_time),
            message.store_host.packed,
            struct.pack(">i", message.reconsume_times),
            struct.pack(">q", message.prepared_transaction_offset),
            struct.pack(">i", len(body)) + body,
            len(topic).to_bytes(version) + topic,
            len(message.properties).to_bytes(2) + message.properties,
        ]
    )
    magic = layout.MAGIC_V1 if version == 1 else layout.MAGIC_V2
    return struct.pack(">iI", len(record) + 8, magic) + record


def check_run(
    data: bytes, position: int, end: int, base: int, verify_body: bool, max_records: int
) -> tuple[Defect, int, int, int, list[int]]:
    starts: list[int] = []
    store_time = 0
    while position < end and len(starts) < max_records:
        defect, size = check(data, position, end, base + position, verify_body)
        if defect is not Defect.NONE:
            return defect, position, len(starts), store_time, starts
        starts.append(position)
        store_time = take_apart(data[position:end], -1)[1].store_time
        position += size
    return Defect.NONE, position, len(starts), store_time, starts


def count_topics(data: bytes, position: int, end: int) -> dict[bytes, list[int]]:
    counts: dict[bytes, list[int]] = {}
    while position < end:
        defect, found, _ = take_apart(data[position:end], -1)
        if defect is not Defect.NONE:
            break
        counted = counts.setdefault(found.topic, [0, 0])
        counted[0] += 1
        counted[1] += found.size
        position += found.size
    return counts


def find_record(
    data: bytes, position: int, end: int, base: int, verify_body: bool, stop: int = 2**63 - 1
) -> int:
    for at in range(position, min(end, stop)):
        if check(data, at, end, base + at, verify_body)[0] is Defect.NONE:
            return at
    return -1


# Index files -----------------------------------------------------------------------------------


@dataclass
class IndexModel:
    """An index file's bytes, or none yet."""

    data: bytearray | None
    slots: int
    index_num: int

    def get(self, at: int, size: int) -> int:
        assert self.data is not None
        return int.from_bytes(self.data[at : at + size], signed=True)

    def set(self, at: int, size: int, value: int) -> None:
        assert self.data is not None
        self.data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size)

    @property
    def count(self) -> int:
        return max(self.get(36, 4), 1)

    def slot_at(self, hashed: int) -> int:
        return 40 + 4 * (hashed % self.slots)

    def item_at(self, number: int) -> int:
        return 40 + 4 * self.slots + 20 * number

    def put(self, hashed: int, physical_offset: int, store_time: int) -> bool:
        count = self.count
        if count >= self.index_num:
            return False
        previous = self.get(self.slot_at(hashed), 4)
        if not 0 < previous <= count:
            previous = 0
        item = self.item_at(count)
        self.set(item, 4, hashed)
        self.set(item + 4, 8, physical_offset)
        self.set(item + 12, 4, self.seconds(store_time))
        self.set(item + 16, 4, previous)
        self.set(self.slot_at(hashed), 4, count)
        if count == 1:
            self.set(0, 8, store_time)
            self.set(16, 8, physical_offset)
        if previous == 0:
            self.set(32, 4, self.get(32, 4) + 1)
        self.set(36, 4, count + 1)
        self.set(24, 8, physical_offset)
        self.set(8, 8, store_time)
        return True

    def seconds(self, store_time: int) -> int:
        begin = self.get(0, 8)
        difference = signed(store_time - begin, 64)
        if begin <= 0 or difference < 0:
            return 0
        return min(difference // 1000, 2**31 - 1)

    def find(self, hashed: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        found: list[int] = []
        number = self.get(self.slot_at(hashed), 4)
        if self.count <= 1 or number > min(self.count, self.index_num - 1):
            return found
        while number > 0 and len(found) < limit:
            item = self.item_at(number)
            seconds = self.get(item + 12, 4)
            if seconds < 0:
                break
            time = signed(self.get(0, 8) + seconds * 1000, 64)
            if self.get(item, 4) == hashed and begin_ms <= time <= end_ms:
                found.append(self.get(item + 4, 8))
            previous = self.get(item + 16, 4)
            if previous >= number or time < begin_ms:
                break
            number = previous
        return found


# Dispatch --------------------------------------------------------------------------------------


@dataclass
class QueueModel:
    data: bytearray | None
    first_index: int
    entries: int
    next_index: int

    def holds(self, index: int) -> bool:
        return self.data is not None and 0 <= index - self.first_index < self.entries

    def entry(self, index: int) -> tuple[int, int, int]:
        assert self.data is not None
        at = 20 * (index - self.first_index)
        offset, size, code = struct.unpack_from(">qiq", self.data, at)
        return offset, size, code

    def put(self, physical_offset: int, size: int, code: int) -> None:
        assert self.data is not None
        at = 20 * (self.next_index - self.first_index)
        struct.pack_into(">qiq", self.data, at, physical_offset, size, code)
        self.next_index += 1


@dataclass
class DispatchModel:
    data: bytes
    base: int
    queues: dict[bytes, QueueModel] | None
    index: IndexModel | None
    index_tags: bool
    skip_index_below: int
    touched: set[bytes] = field(default_factory=set)

    def run(self, position: int, end: int, max_records: int) -> tuple[Stop, int, int, int]:
        records = 0
        store_time = 0
        while position < end:
            if records >= max_records:
                return Stop.LIMIT, position, records, store_time
            defect, parts, _ = take_apart(self.data[position:end], self.base + position)
            stop = self.one(defect, parts)
            if stop is not None:
                return stop, position, records, store_time
            position += parts.size
            records += 1
            store_time = parts.store_time
        return Stop.END, position, records, store_time

    def one(self, defect: Defect, parts: Parts) -> Stop | None:
        if defect is not Defect.NONE:
            return Stop.BLANK if defect is Defect.BLANK else Stop.DEFECT
        found = properties.decode(parts.properties)
        if self.special(parts, found):
            return Stop.SPECIAL
        hashes = self.hashes(parts, found)
        if isinstance(hashes, Stop):
            return hashes
        key = parts.topic + parts.queue_id.to_bytes(4, signed=True)
        writes_entry = False
        if self.queues is not None and parts.sys_flag & 0xC in (0, 8):
            queue = self.queues.get(key)
            if queue is None:
                return Stop.QUEUE
            tags = found.get("TAGS")
            code = signed(java_hash(tags)) if tags else 0
            writes_entry = not self.stands(queue, parts, code)
            if writes_entry and not (
                parts.queue_offset == queue.next_index and queue.holds(parts.queue_offset)
            ):
                return Stop.QUEUE
            if writes_entry:
                queue.put(parts.physical_offset, parts.size, code)
                self.touched.add(key)
        for hashed in hashes:
            assert self.index is not None
            assert self.index.put(hashed, parts.physical_offset, parts.store_time)
        return None

    def special(self, parts: Parts, found: dict[str, str]) -> bool:
        texts = [parts.topic]
        values = read_values(parts.properties)
        texts.append(values.get(b"TAGS", b""))
        return (
            "INNER_MULTI_DISPATCH" in found
            or bool(parts.sys_flag & 0x40)
            or parts.topic == b"SCHEDULE_TOPIC_XXXX"
            or any(not well_formed(text) for text in texts)
        )

    def stands(self, queue: QueueModel, parts: Parts, code: int) -> bool:
        index = parts.queue_offset
        if not (queue.holds(index) and index < queue.next_index):
            return False
        *place, found = queue.entry(index)
        return place == [parts.physical_offset, parts.size] and (found == code or found < -(2**31))

    def hashes(self, parts: Parts, found: dict[str, str]) -> list[int] | Stop:
        if self.index is None or parts.physical_offset < self.skip_index_below:
            return []
        if self.index.data is None or self.index.count >= self.index.index_num:
            return Stop.INDEX
        if parts.sys_flag & 0xC == 0xC:
            return []
        keys = properties.index_keys(found.get("UNIQ_KEY"), found.get("KEYS"))
        if self.index_tags and found.get("TAGS"):
            keys.append("T#" + found["TAGS"])
        values = read_values(parts.properties)
        if len(keys) > KEYS_MAX or not all(
            well_formed(values.get(name, b"")) for name in (b"UNIQ_KEY", b"KEYS")
        ):
            return Stop.SPECIAL
        if self.index.count + len(keys) > self.index.index_num:
            return Stop.INDEX
        return [index_hash(f"{decode_utf8(parts.topic)}#{key}") for key in keys]


@dataclass
class PutModel:
    """A log's end with its queues and index: one plain message put, dispatched and published."""

    log: bytearray
    position: int
    room_end: int
    max_offset: int
    newest_ms: int
    body_max: int
    next_offsets: dict[tuple[str, int], int]
    queues: dict[bytes, QueueModel]
    index: IndexModel | None
    index_tags: bool
    skip_index_below: int

    def put(self, message: Message, now_ms: int) -> tuple[int, int, int, int] | None:
        """Physical offset, size, queue offset and time; None, and nothing done, if not plain."""
        place = message.topic, message.queue_id
        if place not in self.next_offsets or not self.is_plain(message):
            return None
        number, time = self.next_offsets[place], max(now_ms, self.newest_ms)
        record = encode(message, 1, number, self.max_offset, time)
        queue = self.queues.get(message.topic.encode() + message.queue_id.to_bytes(4))
        if len(record) > self.room_end - self.position or queue is None:
            return None
        if queue.next_index != number or not queue.holds(number):
            return None
        dispatch = DispatchModel(
            b"", 0, self.queues, self.index, self.index_tags, self.skip_index_below
        )
        defect, parts, _ = take_apart(record, self.max_offset)
        if dispatch.one(defect, parts) is not None:
            return None
        placed = self.max_offset, len(record), number, time
        self.log[self.position : self.position + len(record)] = record
        self.next_offsets[place] = number + 1
        self.newest_ms = time
        self.position += len(record)
        self.max_offset += len(record)
        return placed

    def is_plain(self, message: Message) -> bool:
        body, encoded = message.body or b"", message.properties
        names = [part.partition(b"\x01")[:2] for part in encoded.split(b"\x02")]
        return (
            message.topic.isascii()
            and 0 < len(message.topic) <= 127
            and message.queue_id >= 0
            and message.sys_flag & 0xC in (0, 8)
            and len(body) <= self.body_max
            and len(body) < 65536
            and (not encoded or (b"\x01" in encoded and b"\0" not in encoded))
            and not (encoded[-20:-11] == b"__CRC32#\x01" and encoded[-1:] == b"\x02")
            and (b"DELAY", b"\x01") not in names
        )


def read_values(data: bytes) -> dict[bytes, bytes]:
    """Properties as bytes, by RocketMQ's rules."""
    values = {}
    for part in data.split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if name and value:
            values[name] = value
    return values


def well_formed(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
