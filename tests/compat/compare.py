"""Comparisons: of two dumps, of a dump with its script, of consume queue and index files."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.compat.scripts import SCHEDULE_TOPIC, Expected

QUERY_LIMIT = 64
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_HEADER_NAMES = ("beginTime", "endTime", "beginOffset", "endOffset", "slotCount", "indexCount")
INDEX_ENTRY = struct.Struct(">iqii")
QUEUE_ENTRY = struct.Struct(">qiq")
MOST_DIFFERENCES = 20

QueueKey = tuple[str, int]


@dataclass
class Dump:
    """The lines of a dump, sorted into what they are about."""

    recovered: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None
    log: list[dict[str, Any]] = field(default_factory=list)  # msg, blank and bad lines
    queues: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)  # min, max
    entries: dict[QueueKey, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    queries: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> Dump:
        dump = cls()
        for line in lines:
            dump._add(dict(line))
        return dump

    def _add(self, line: dict[str, Any]) -> None:
        match line["t"]:
            case "recovered":
                self.recovered = line
            case "checkpoint":
                self.checkpoint = line
            case "msg" | "blank" | "bad":
                self.log.append(line)
            case "queue":
                self.queues[line["topic"], line["q"]] = (line["min"], line["max"])
            case "cq":
                entries = self.entries.setdefault((line["topic"], line["q"]), {})
                entries[line["i"]] = (line["off"], line["size"], line["tagsCode"])
            case "query":
                self.queries[line["topic"], line["key"]] = line["offsets"]
            case other:
                raise AssertionError(f"a dump has no line {other!r}: {line}")

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [line for line in self.log if line["t"] == "msg"]

    def without_delivery_times(self) -> Dump:
        """
        Without the tags codes of SCHEDULE_TOPIC_XXXX entries, which 4.9 gets wrong after a crash:
        it recovers before it has read its delay levels, so the entries that recovery makes hold the
        code of TAGS, or 0, instead of the time of delivery.
        """
        entries = {
            key: {i: (off, size, 0) for i, (off, size, _) in found.items()}
            if key[0] == SCHEDULE_TOPIC
            else found
            for key, found in self.entries.items()
        }
        log = [
            line | {"tagsCode": 0} if line.get("topic") == SCHEDULE_TOPIC else line
            for line in self.log
        ]
        return replace(self, entries=entries, log=log)


def differences(ours: Dump, theirs: Dump) -> list[str]:
    """Differences between our view of a store and RocketMQ's, as text; [] without one."""
    found = [
        _differs(name, ours.recovered.get(name), theirs.recovered.get(name))
        for name in ("path", "minPhyOffset", "maxPhyOffset")
        if ours.recovered.get(name) != theirs.recovered.get(name)
    ]
    found += _log_differences(ours.log, theirs.log)
    # RocketMQ knows queues without entries that have no file yet (4.9: one for each delay level).
    found += _mapping_differences("queue", _used(ours.queues), _used(theirs.queues))
    for key in sorted(ours.entries.keys() | theirs.entries.keys()):
        found += _mapping_differences(
            f"entries of {key}", ours.entries.get(key, {}), theirs.entries.get(key, {})
        )
    found += _query_differences(ours.queries, theirs.queries)
    return _bounded(found)


def _used(queues: Mapping[QueueKey, tuple[int, int]]) -> dict[QueueKey, tuple[int, int]]:
    return {key: bounds for key, bounds in queues.items() if bounds != (0, 0)}


def _log_differences(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> list[str]:
    found = []
    mine = {line["off"]: line for line in ours}
    other = {line["off"]: line for line in theirs}
    for offset in sorted(mine.keys() | other.keys()):
        if offset not in mine:
            found.append(f"at {offset}: only RocketMQ sees {other[offset]}")
        elif offset not in other:
            found.append(f"at {offset}: only we see {mine[offset]}")
        else:
            found += _line_differences(mine[offset], other[offset])
    if not found and [line["off"] for line in ours] != [line["off"] for line in theirs]:
        found.append("the log lines are not in the same order")
    return found


def _line_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    names = sorted((ours.keys() | theirs.keys()) - {"why"})
    return [
        _differs(f"at {ours['off']}: {name}", ours.get(name), theirs.get(name))
        for name in names
        if ours.get(name, "(absent)") != theirs.get(name, "(absent)")
    ]


def _mapping_differences(
    what: str, ours: Mapping[Any, Any], theirs: Mapping[Any, Any]
) -> list[str]:
    return [
        _differs(f"{what} {key}", ours.get(key), theirs.get(key))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _query_differences(
    ours: Mapping[tuple[str, str], list[int]], theirs: Mapping[tuple[str, str], list[int]]
) -> list[str]:
    """
    RocketMQ lists a message twice when the key stands in it twice or recovery indexed it twice; a
    repeat costs it a place among the 64, so that its full answers may miss old messages of ours.
    """
    found = []
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key), theirs.get(key)
        if mine is None or other is None:
            found.append(_differs(f"query {key}", mine, other))
            continue
        distinct = sorted(set(mine)), sorted(set(other))
        repeats = len(other) - len(distinct[1])
        full = len(other) >= QUERY_LIMIT and repeats > 0
        same = (
            distinct[0][-len(distinct[1]) :] == distinct[1] if full else distinct[0] == distinct[1]
        )
        if not same:
            found.append(_differs(f"query {key}", *distinct))
    return found


def script_differences(expected: Sequence[Expected], dump: Dump) -> list[str]:
    """Differences between a dump and the puts of its script."""
    found: list[str] = []
    messages = {line["off"]: line for line in dump.messages}
    for record in expected:
        offset = record.answers["off"]
        line = messages.pop(offset, None)
        if line is None:
            found.append(f"at {offset}: lost {record.fields}")
            continue
        wanted = record.fields | record.answers | {"phys": offset}
        for name, value in wanted.items():
            if line[name] != value:
                found.append(_differs(f"at {offset}: {name}", line[name], value))
        if not record.props_fit(line["props"]):
            found.append(_differs(f"at {offset}: props", line["props"], record.props))
        found += _derived_differences(line)
    found += [f"at {offset}: never put: {line}" for offset, line in messages.items()]
    return _bounded(found)


def lost(expected: Sequence[Expected], dump: Dump) -> list[str]:
    """Acknowledged messages that a dump does not have at their offsets; for stores that crashed."""
    offsets = {line["off"] for line in dump.messages}
    return _bounded(
        [
            f"at {record.answers['off']}: lost {record.fields}"
            for record in expected
            if record.answers["off"] not in offsets
        ]
    )


def _derived_differences(line: Mapping[str, Any]) -> list[str]:
    """tags, keys and uniqKey repeat what the properties say."""
    props = line["props"] or {}
    return [
        _differs(f"at {line['off']}: {name}", line[name], props.get(source))
        for name, source in (("tags", "TAGS"), ("keys", "KEYS"), ("uniqKey", "UNIQ_KEY"))
        if line[name] != props.get(source)
    ]


def inconsistencies(dump: Dump) -> list[str]:
    """Whether a dump of an undamaged store agrees with itself: queues and queries with the log."""
    found: list[str] = []
    at = {line["off"]: line for line in dump.messages}
    for (topic, queue_id), entries in dump.entries.items():
        for index, (offset, size, tags_code) in entries.items():
            line = at.get(offset)
            if line is None:
                found.append(f"{topic} {queue_id} entry {index}: no record at {offset}")
            elif (line["size"], line["tagsCode"]) != (size, tags_code):
                found.append(f"{topic} {queue_id} entry {index}: {(size, tags_code)}, but {line}")
            elif line["topic"] == topic and (line["q"], line["qoff"]) != (queue_id, index):
                found.append(f"{topic} {queue_id} entry {index}: is not the queue's record {line}")
    for line in dump.messages:
        rolled_back, prepared = line["sysFlag"] & 0xC == 0xC, line["sysFlag"] & 0xC == 0x4
        entry = dump.entries.get((line["topic"], line["q"]), {}).get(line["qoff"])
        if not rolled_back and not prepared and (entry or (None,))[0] != line["off"]:
            found.append(f"at {line['off']}: entry {line['qoff']} is {entry}")
        for key in [line["uniqKey"], *(line["keys"] or "").split(" ")]:
            offsets = dump.queries.get((line["topic"], key), []) if key else []
            if (
                key
                and not rolled_back
                and len(offsets) < QUERY_LIMIT
                and line["off"] not in offsets
            ):
                found.append(f"at {line['off']}: not found by {key}: {offsets}")
    return _bounded(found)


def queue_file_differences(ours: Path, theirs: Path) -> list[str]:
    """Byte for byte, all ConsumeQueue files of two stores."""
    mine, other = _files(ours / "consumequeue"), _files(theirs / "consumequeue")
    found = []
    for name in sorted(mine.keys() | other.keys()):
        if name not in mine or name not in other:
            found.append(f"{name}: only {'RocketMQ has' if name in other else 'we have'} it")
        else:
            found += _entry_differences(name, QUEUE_ENTRY, mine[name], other[name])
    return _bounded(found)


def index_file_differences(ours: Path, theirs: Path, hash_slots: int) -> list[str]:
    """Byte for byte, all IndexFiles of two stores in order; not their names, which are times."""
    mine = [data for _, data in sorted(_files(ours / "index").items())]
    other = [data for _, data in sorted(_files(theirs / "index").items())]
    if len(mine) != len(other):
        return [_differs("number of index files", len(mine), len(other))]
    found = []
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        what = f"index file {i}"
        heads = INDEX_HEADER.unpack_from(a), INDEX_HEADER.unpack_from(b)
        for name, x, y in zip(INDEX_HEADER_NAMES, *heads, strict=True):
            if x != y:
                found.append(_differs(f"{what} {name}", x, y))
        slots_end = INDEX_HEADER.size + 4 * hash_slots
        slots = slice(INDEX_HEADER.size, slots_end)
        found += _entry_differences(f"{what} slots", struct.Struct(">i"), a[slots], b[slots])
        found += _entry_differences(f"{what} items", INDEX_ENTRY, a[slots_end:], b[slots_end:])
    return _bounded(found)


def fingerprint(directory: Path) -> dict[str, str]:
    """Digest of every file below a directory, to detect changes."""
    return {
        name: hashlib.sha256(data).hexdigest() for name, data in sorted(_files(directory).items())
    }


def _files(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def _entry_differences(what: str, layout: struct.Struct, ours: bytes, theirs: bytes) -> list[str]:
    if ours == theirs:
        return []
    if len(ours) != len(theirs):
        return [_differs(f"{what}: length", len(ours), len(theirs))]
    return [
        _differs(f"{what}: entry {i}", a, b)
        for i, (a, b) in enumerate(
            zip(layout.iter_unpack(ours), layout.iter_unpack(theirs), strict=True)
        )
        if a != b
    ]


def _differs(what: str, ours: object, theirs: object) -> str:
    return f"{what}: {ours!r}, but RocketMQ (or the script) has {theirs!r}"


def _bounded(found: list[str]) -> list[str]:
    if len(found) <= MOST_DIFFERENCES:
        return found
    return [*found[:MOST_DIFFERENCES], f"… and {len(found) - MOST_DIFFERENCES} more"]
