"""Scripts: what is to be put into a store, independent of who puts it.

A script is what `referee/src/main/java/referee/Script.java` describes; the same script drives the
real RocketMQ and our own store (`ours.py`). `expected_messages` says what must then be in the log.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
TRANSACTION_BITS = 0xC
NOT_IN_QUEUES = (0x4, 0xC)  # prepared, rollback
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAY_LEVELS = 18
BORN_HOST = "127.0.0.1|40000"
STORE_HOST = "127.0.0.1|10911"

End = Literal["shutdown", "halt", "haltMidWrite"]
Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Put:
    """One message. `properties_raw` is stored as it stands, instead of `properties`."""

    topic: str
    queue_id: int = 0
    body: bytes | None = b""
    properties: Properties | None = ()
    properties_raw: str | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    born_host: str = BORN_HOST
    store_host: str = STORE_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def to_json(self) -> dict[str, Any]:
        line = _common(self) | {
            "op": "put",
            "body": None if self.body is None else _base64(self.body),
            "flag": self.flag,
            "pto": self.prepared_transaction_offset,
        }
        if self.properties_raw is not None:
            line["propsRaw"] = self.properties_raw
        return line


@dataclass(frozen=True)
class Part:
    """One message of a batch."""

    body: bytes = b""
    properties: Properties | None = ()
    flag: int = 0


@dataclass(frozen=True)
class Batch:
    """Messages for one queue, put at once. `properties` are the batch's own."""

    topic: str
    parts: tuple[Part, ...]
    queue_id: int = 0
    properties: Properties | None = None
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    born_host: str = BORN_HOST
    store_host: str = STORE_HOST
    reconsume_times: int = 0

    def to_json(self) -> dict[str, Any]:
        return _common(self) | {
            "op": "batch",
            "messages": [
                {"body": _base64(p.body), "flag": p.flag, "props": _pairs(p.properties)}
                for p in self.parts
            ],
        }


@dataclass(frozen=True)
class Flush:
    def to_json(self) -> dict[str, Any]:
        return {"op": "flush"}


@dataclass(frozen=True)
class WaitDispatch:
    def to_json(self) -> dict[str, Any]:
        return {"op": "waitDispatch"}


@dataclass(frozen=True)
class WaitDelayed:
    """Until all delayed messages are delivered; the script's config has `deliverDelayed`."""

    def to_json(self) -> dict[str, Any]:
        return {"op": "waitDelayed"}


@dataclass(frozen=True)
class Sleep:
    ms: int

    def to_json(self) -> dict[str, Any]:
        return {"op": "sleep", "ms": self.ms}


Operation = Put | Batch | Flush | WaitDispatch | WaitDelayed | Sleep


@dataclass(frozen=True)
class Script:
    """Settings by RocketMQ's names, operations, and how the process ends."""

    config: Mapping[str, Any]
    operations: Sequence[Operation]
    end: End = "shutdown"
    wait_dispatch: bool = True
    halt_after_puts: int = 1

    @property
    def halts(self) -> bool:
        return self.end != "shutdown"

    def ending(self, end: End, **how: Any) -> Script:
        return replace(self, end=end, **how)

    def to_json_lines(self) -> str:
        end = {
            "op": "end",
            "how": self.end,
            "waitDispatch": self.wait_dispatch,
            "afterPuts": self.halt_after_puts,
        }
        lines = [{"config": dict(self.config)}, *(op.to_json() for op in self.operations), end]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    @classmethod
    def from_json_lines(cls, text: str) -> Script:
        first, *operations, end = (json.loads(line) for line in text.splitlines())
        return cls(
            config=first["config"],
            operations=[_operation(line) for line in operations],
            end=end["how"],
            wait_dispatch=end["waitDispatch"],
            halt_after_puts=end["afterPuts"],
        )


def _operation(line: Mapping[str, Any]) -> Operation:
    match line["op"]:
        case "put":
            return Put(
                **_common_of(line),
                body=None if line["body"] is None else base64.b64decode(line["body"]),
                properties_raw=line.get("propsRaw"),
                flag=line["flag"],
                prepared_transaction_offset=line["pto"],
            )
        case "batch":
            parts = (
                Part(base64.b64decode(part["body"]), _tuples(part["props"]), part["flag"])
                for part in line["messages"]
            )
            return Batch(**_common_of(line), parts=tuple(parts))
        case "flush":
            return Flush()
        case "waitDispatch":
            return WaitDispatch()
        case "waitDelayed":
            return WaitDelayed()
        case "sleep":
            return Sleep(line["ms"])
        case other:
            raise ValueError(f"no such operation: {other}")


def _common_of(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": line["topic"],
        "queue_id": line["queueId"],
        "properties": _tuples(line["props"]),
        "sys_flag": line["sysFlag"],
        "born_timestamp_ms": line["bornTs"],
        "born_host": line["bornHost"],
        "store_host": line["storeHost"],
        "reconsume_times": line["reconsume"],
    }


def _tuples(pairs: list[list[str]] | None) -> Properties | None:
    return None if pairs is None else tuple((name, value) for name, value in pairs)


def _common(operation: Put | Batch) -> dict[str, Any]:
    return {
        "topic": operation.topic,
        "queueId": operation.queue_id,
        "sysFlag": operation.sys_flag,
        "bornTs": operation.born_timestamp_ms,
        "bornHost": operation.born_host,
        "storeHost": operation.store_host,
        "reconsume": operation.reconsume_times,
        "props": _pairs(operation.properties),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _pairs(properties: Properties | None) -> list[list[str]] | None:
    return None if properties is None else [list(pair) for pair in properties]


def java_host(host: str) -> str:
    """ "IP|port" as Java prints it: IPv6 as eight unpadded groups, without "::"."""
    text, port = host.rsplit("|", 1)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        text = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"{text}|{port}"


@dataclass
class Expected:
    """The expected fields of a script's record in a dump, without `props` (see `props_fit`)."""

    fields: dict[str, Any]
    props: dict[str, str] | None
    has_queue_offsets: bool = False  # INNER_MULTI_QUEUE_OFFSET is added
    answers: dict[str, Any] = field(default_factory=dict)

    def props_fit(self, found: dict[str, str] | None) -> bool:
        if self.has_queue_offsets:
            found = {k: v for k, v in (found or {}).items() if k != "INNER_MULTI_QUEUE_OFFSET"}
        return found == self.props


def expected_messages(
    script: Script, answers: Sequence[Mapping[str, Any]], store_format: str
) -> list[Expected]:
    """The records that the acknowledged puts of a script must have left, in log order."""
    expected: list[Expected] = []
    for answer in answers:
        assert answer["status"] == "PUT_OK", answer
        operation = script.operations[answer["op"]]
        if isinstance(operation, Put):
            records = [_expected_put(operation, script.config, store_format)]
        else:
            assert isinstance(operation, Batch)
            records = [_expected_part(operation, part, store_format) for part in operation.parts]
        ids = answer["msgId"].split(",")
        assert len(ids) == len(records) == answer["count"], answer
        for i, (record, message_id) in enumerate(zip(records, ids, strict=True)):
            record.answers = {
                "qoff": answer["qoff"] + i,
                "storeTs": answer["storeTs"],
                "offsetMsgId": message_id,
                "off": int(message_id[-16:], 16),
            }
        expected += records
    return sorted(expected, key=lambda record: int(record.answers["off"]))


def after_delay(put: Put) -> Put:
    """
    As stored: one with a delay goes to SCHEDULE_TOPIC_XXXX and keeps its own topic in properties.
    In 4.9 the store does that, in 5.x the broker before it.
    """
    props = visible(put.properties) or {}
    level = min(int(props.get("DELAY", "0")), DELAY_LEVELS)
    if level <= 0 or put.sys_flag & TRANSACTION_BITS in NOT_IN_QUEUES:
        return put
    props["DELAY"] = str(level)
    props |= {"REAL_TOPIC": put.topic, "REAL_QID": str(put.queue_id)}
    return replace(put, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=tuple(props.items()))


def _expected_put(put: Put, config: Mapping[str, Any], store_format: str) -> Expected:
    if put.properties_raw is not None:
        props = visible_raw(put.properties_raw)
    else:
        put = after_delay(put)
        props = visible(put.properties)
    dispatched = bool(config.get("enableMultiDispatch")) and "INNER_MULTI_DISPATCH" in (props or {})
    if dispatched and props and store_format == "4.9":  # 5.x drops WAIT, then puts it back
        props = {k: v for k, v in props.items() if k != "WAIT"}
    fields = _expected_common(put, put.body or b"", put.flag) | {
        "topic": put.topic,
        "q": put.queue_id,
        "pto": put.prepared_transaction_offset,
    }
    return Expected(fields, props, dispatched)


def _expected_part(batch: Batch, part: Part, store_format: str) -> Expected:
    """4.9 adds the batch's own properties to each record, 5.x does not (FORMATS: Batch)."""
    props = visible(part.properties)
    if store_format == "4.9" and visible(batch.properties):
        props = (props or {}) | (visible(batch.properties) or {})
    fields = _expected_common(batch, part.body, part.flag)
    return Expected(fields | {"topic": batch.topic, "q": batch.queue_id, "pto": 0}, props)


def _expected_common(operation: Put | Batch, body: bytes, flag: int) -> dict[str, Any]:
    sys_flag = operation.sys_flag
    if ":" in operation.born_host:
        sys_flag |= BORN_HOST_V6
    if ":" in operation.store_host:
        sys_flag |= STORE_HOST_V6
    return {
        "flag": flag,
        "sysFlag": sys_flag,
        "bornTs": operation.born_timestamp_ms,
        "bornHost": java_host(operation.born_host),
        "storeHost": java_host(operation.store_host),
        "reconsume": operation.reconsume_times,
        "bodyLen": len(body),
        "crcOk": True,
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def visible(properties: Properties | None) -> dict[str, str] | None:
    """The properties that a broker keeps: none without a value; None when none remain."""
    return {name: value for name, value in properties or () if name and value} or None


def visible_raw(text: str) -> dict[str, str] | None:
    """How RocketMQ reads a properties string; {} when there are bytes but no properties."""
    if not text:
        return None
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator and name and value:
            found[name] = value
    return found
