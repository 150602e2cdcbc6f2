"""The exchanges of the lean client, in our HTTP and in RocketMQ's remoting protocol.

Both send the same body, unique key, key and tag, to the same queue. The remoting headers are JSON
with the fields and the order of RocketMQ 4.9.7's Java client.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.bench import lean
from tests.bench.lean import Exchange, Part, Protocol, literal
from tests.bench.workload import QUEUES, TOPIC

GROUP: Final = "bench"
BROKER: Final = "bench-broker"
"""The name of the peer's broker (`peer/Broker.java`)."""
CLIENT_VERSION: Final = 407
"""RocketMQ's MQVersion.V4_9_7."""
PREPARED: Final = 4
"""MessageSysFlag.TRANSACTION_PREPARED_TYPE."""
COMMIT: Final = 8
"""MessageSysFlag.TRANSACTION_COMMIT_TYPE."""
WITH_SUBSCRIPTION: Final = 4
"""PullSysFlag.FLAG_SUBSCRIPTION."""
SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, END_TRANSACTION, PULL_MESSAGE = 310, 320, 37, 11
VIEW_MESSAGE_BY_ID, SEARCH_OFFSET_BY_TIMESTAMP = 33, 29
POP_MESSAGE, BATCH_ACK_MESSAGE = 200050, 200151
POP_VERSION: Final = 493
"""RocketMQ's MQVersion.V5_4_0."""
INVISIBLE_S: Final = 60
"""Time of a lease: popInvisibleTime of RocketMQ's consumer, and our default."""

_PRODUCE: Final = f"/v1/topics/{TOPIC}/messages"
_BATCH: Final = "application/x-rocketmq-batch"
_ITEM: Final = struct.Struct(">iiiii")
_SIZES: Final = {b"K": 32, b"N": 10, b"Q": 1, b"U": 27}
"""Bytes of the parts whose values have a fixed size."""

_SLOTS: Final[Mapping[str, Part]] = {
    "@key@": lean.unique_key(),
    "@number@": lean.number(),
    "@queue@": lean.QUEUE,
    "@born@": lean.TIME,
    "@opaque@": lean.OPAQUE,
    "@first@": lean.captured(0),
    "@offset@": lean.captured_offset(1),
    "@run@": lean.RUN,
    "@now@": lean.NOW,
    "@length@": lean.LENGTH,
    "@items@": lean.ITEMS,
}
"""Parts of a text that the client fills in."""
_KEYS: Final = "order-@number@"
_TAG: Final = "paid"
_SHARED_GROUP: Final = f"{GROUP}-@run@"
"""A group of each run, which has received nothing yet."""


def body_of(size: int) -> bytes:
    """A body that JSON carries without escapes, as long in both protocols."""
    return b"x" * size


def our_send(size: int, *, is_timed: bool = False) -> Exchange:
    """One message as JSON; ``is_timed``: its body says when it was sent."""
    content = json.dumps({"messages": [_message(size, is_timed=is_timed) | {"queueId": 12321}]})
    return _http([_post(_PRODUCE, content.replace("12321", "@queue@"))])


def our_batch(size: int, count: int) -> Exchange:
    """A batch as RocketMQ's clients encode it."""
    items = _batch(size, count)
    head = _head(f"{_PRODUCE}?queueId=@queue@", _BATCH, _size(items))
    parts = [*_parts(head), *items, lean.REQUEST_END]
    return Exchange(Protocol.HTTP, tuple(parts), count)


def our_transaction(size: int) -> Exchange:
    """A begin and its commit."""
    spec = {"producerGroup": GROUP, "topic": TOPIC, "messages": [_message(size)]}
    begin = [*_post("/v1/transactions", json.dumps(spec))]
    commit = [*_post("/v1/transactions/@first@:commit", "")]
    return _http([begin, [lean.capture(0, b'"transactionId":"')], commit])


def our_pull(count: int, end: int) -> Exchange:
    """Records of a queue as they stand in the log; from offset 0 again at the offset ``end``."""
    text = (
        f"GET /v1/topics/{TOPIC}/queues/@queue@/messages?max={count}&offset=@first@ HTTP/1.1\r\n"
        "host: localhost\r\naccept: application/x-rocketmq-records\r\n\r\n"
    )
    parts = [*_parts(text), lean.REQUEST_END, lean.capture(0, b"\r\nx-mqstore-next: ")]
    return Exchange(Protocol.HTTP, tuple(parts), 0, end)


def our_messages(ids: Sequence[str], batch: int = 1) -> Exchange:
    """Messages by their ids, one at a time or many in a request."""
    if batch == 1:
        return _http([_get(f"/v1/messages/{each}") for each in ids], len(ids))
    batches = [ids[at : at + batch] for at in range(0, len(ids), batch)]
    requests = [_post("/v1/messages:get", json.dumps({"ids": each})) for each in batches]
    return _http(requests, len(ids))


def our_offsets(searches: Sequence[tuple[int, int]], batch: int = 1) -> Exchange:
    """The offset of a time in a queue, one at a time; or of the first time in many queues."""
    if batch == 1:
        path = f"/v1/topics/{TOPIC}/queues"
        singles = [_get(f"{path}/{queue}/offset?timestamp={at}") for queue, at in searches]
        return _http(singles, len(searches))
    requests = []
    for begin in range(0, len(searches), batch):
        part = searches[begin : begin + batch]
        queues = [{"topic": TOPIC, "queueId": queue} for queue, _ in part]
        content = {"timestamp": part[0][1], "queues": queues}
        requests.append(_post("/v1/offsets:by-time", json.dumps(content)))
    return _http(requests, len(searches))


def our_receive(count: int, wait_s: int) -> Exchange:
    """A receive that waits, and the acknowledgement of its messages."""
    spec = {"topics": {TOPIC: {}}, "max": count, "wait": wait_s, "invisibleS": INVISIBLE_S}
    group = f"/v1/groups/{_SHARED_GROUP}"
    receive = _post(f"{group}:receive", json.dumps(spec))
    head = _head(f"{group}:ack", "application/json", "@length@")
    acknowledge = [*_parts(head + '{"receipts":[@items@]}'), lean.REQUEST_END]
    return _http([receive, [lean.capture_texts(b'"receipt":"')], acknowledge], messages=0)


def their_send(size: int, *, is_timed: bool = False) -> Exchange:
    """SEND_MESSAGE_V2 of one message; ``is_timed``: its body says when it was sent."""
    header = _send_header(_properties(), is_batch=False)
    body = _parts(_timed_body(size)) if is_timed else [literal(body_of(size))]
    return _remoting([_command(SEND_MESSAGE_V2, header, body)])


def their_batch(size: int, count: int) -> Exchange:
    """SEND_BATCH_MESSAGE."""
    command = _command(SEND_BATCH_MESSAGE, _send_header("", is_batch=True), _batch(size, count))
    return _remoting([command], count)


def their_transaction(size: int) -> Exchange:
    """SEND_MESSAGE_V2 of a half message, and END_TRANSACTION that is answered."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02{_properties()}"
    header = _send_header(properties, is_batch=False, sys_flag=PREPARED)
    begin = _command(SEND_MESSAGE_V2, header, [literal(body_of(size))])
    captures = [lean.capture(0, b'"queueOffset":"'), lean.capture(1, b'"msgId":"')]
    decision = {
        "producerGroup": GROUP,
        "commitLogOffset": "@offset@",
        "msgId": "@key@",
        "tranStateTableOffset": "@first@",
        "commitOrRollback": str(COMMIT),
        "fromTransactionCheck": "false",
    }
    return _remoting([begin, captures, _command(END_TRANSACTION, decision)])


def their_pull(count: int, end: int) -> Exchange:
    """PULL_MESSAGE; from offset 0 again at the offset ``end``."""
    header = {
        "queueId": "@queue@",
        "maxMsgNums": str(count),
        "sysFlag": str(WITH_SUBSCRIPTION),
        "suspendTimeoutMillis": "0",
        "commitOffset": "0",
        "topic": TOPIC,
        "queueOffset": "@first@",
        "expressionType": "TAG",
        "subscription": "*",
        "subVersion": "0",
        "consumerGroup": GROUP,
    }
    command = _command(PULL_MESSAGE, header)
    parts = (*command, lean.capture(0, b'"nextBeginOffset":"'))
    return Exchange(Protocol.REMOTING, parts, 0, end)


def their_messages(offsets: Sequence[int]) -> Exchange:
    """VIEW_MESSAGE_BY_ID of each message, whose id RocketMQ's client decodes to its offset."""
    commands = [_command(VIEW_MESSAGE_BY_ID, {"offset": str(each)}) for each in offsets]
    return _remoting(commands, len(offsets))


def their_offsets(searches: Sequence[tuple[int, int]]) -> Exchange:
    """SEARCH_OFFSET_BY_TIMESTAMP of each queue and time."""
    headers = [
        {"topic": TOPIC, "queueId": str(queue), "timestamp": str(at)} for queue, at in searches
    ]
    commands = [_command(SEARCH_OFFSET_BY_TIMESTAMP, each) for each in headers]
    return _remoting(commands, len(searches))


def their_pop(count: int, poll_ms: int, *, is_from_end: bool = False) -> Exchange:
    """POP_MESSAGE of any queue, and BATCH_ACK_MESSAGE of its messages; a new group begins at the
    first one, or behind the last one."""
    header = {
        "pollTime": str(poll_ms),
        "invisibleTime": str(INVISIBLE_S * 1000),
        "queueId": "-1",
        "bornTime": "@born@",
        "maxMsgNums": str(count),
        "bname": BROKER,
        "topic": TOPIC,
        "expType": "TAG",
        "exp": "*",
        "consumerGroup": _SHARED_GROUP,
        "initMode": "1" if is_from_end else "0",
        "order": "false",
    }
    pop = _command(POP_MESSAGE, header, version=POP_VERSION)
    start = f'{{"t":"{TOPIC}","r":"0","c":"{GROUP}-'.encode()
    body = _parts(f'{{"acks":[@items@],"brokerName":"{BROKER}"}}')
    acknowledge = _command(BATCH_ACK_MESSAGE, {}, body, version=POP_VERSION)
    return _remoting([pop, [lean.capture_popped(start)], acknowledge], messages=0)


def _message(size: int, *, is_timed: bool = False) -> dict[str, object]:
    body = _timed_body(size) if is_timed else body_of(size).decode()
    return {"body": body, "keys": [_KEYS], "tags": _TAG, "uniqKey": "@key@"}


def _timed_body(size: int) -> str:
    return "@now@" + "x" * (size - _SIZES[b"U"])


def _properties() -> str:
    return f"UNIQ_KEY\x01@key@\x02KEYS\x01{_KEYS}\x02TAGS\x01{_TAG}"


def _get(path: str) -> list[Part]:
    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
    return [literal(head.encode()), lean.REQUEST_END]


def _post(path: str, content: str) -> list[Part]:
    body = _parts(content)
    head = _head(path, "application/json", _size(body))
    return [*_parts(head), *body, lean.REQUEST_END]


def _head(path: str, media_type: str, size: int | str) -> str:
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: {media_type}\r\ncontent-length: {size}\r\n\r\n"
    )


def _send_header(properties: str, *, is_batch: bool, sys_flag: int = 0) -> dict[str, str]:
    """SendMessageRequestHeaderV2; the first message makes the topic."""
    return {
        "a": GROUP,
        "b": TOPIC,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": "@queue@",
        "f": str(sys_flag),
        "g": "@born@",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
    }


def _command(
    code: int,
    header: Mapping[str, str],
    body: Sequence[Part] = (),
    version: int = CLIENT_VERSION,
) -> list[Part]:
    """A frame of the remoting protocol; the client fills in its two lengths."""
    command: dict[str, object] = {
        "code": code,
        "extFields": header,
        "flag": 0,
        "language": "JAVA",
        "opaque": 12321,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if not header:
        del command["extFields"]
    text = json.dumps(command, separators=(",", ":")).replace("12321", "@opaque@")
    return [*_parts(text), lean.HEADER_END, *body, lean.REQUEST_END]


def _batch(size: int, count: int) -> list[Part]:
    """Messages as MessageDecoder.encodeMessages encodes them."""
    return [part for index in range(count) for part in _item(body_of(size), index)]


def _item(body: bytes, index: int) -> Iterator[Part]:
    properties = _parts(_properties(), index)
    length = _size(properties)
    total = _ITEM.size + len(body) + 2 + length
    crc = zlib.crc32(body) & 0x7FFFFFFF
    yield literal(_ITEM.pack(total, 0, crc, 0, len(body)) + body + length.to_bytes(2, "big"))
    yield from properties


def _parts(text: str, index: int = 0) -> list[Part]:
    """A text's parts; the slots of a message are those of the exchange's message ``index``."""
    parts: list[Part] = []
    for piece in _pieces(text):
        if piece == "@key@":
            parts.append(lean.unique_key(index))
        elif piece == "@number@":
            parts.append(lean.number(index))
        elif piece in _SLOTS:
            parts.append(_SLOTS[piece])
        elif piece:
            parts.append(literal(piece.encode()))
    return parts


def _pieces(text: str) -> Iterator[str]:
    words = text.split("@")
    for position, word in enumerate(words):
        yield word if position % 2 == 0 else f"@{word}@"


def _size(parts: Sequence[Part]) -> int:
    """Bytes of parts whose values have a fixed size."""
    return sum(_SIZES.get(kind, len(data)) for kind, data in parts)


def _http(requests: Sequence[Sequence[Part]], messages: int = 1) -> Exchange:
    return Exchange(Protocol.HTTP, tuple(part for each in requests for part in each), messages)


def _remoting(requests: Sequence[Sequence[Part]], messages: int = 1) -> Exchange:
    return Exchange(Protocol.REMOTING, tuple(part for each in requests for part in each), messages)
