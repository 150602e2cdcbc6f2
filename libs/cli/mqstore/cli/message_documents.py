"""Messages of a store as documents of an export, and documents as messages of an import.

A document has the fields of the API's messages. Its place (physical and queue offset, message id,
store host) is information: an import gives another one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqstore.storage.errors import StorageError
from mqstore.storage.formats import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    TRANSACTION_MASK,
    Host,
    Record,
    StoreFormat,
    SysFlag,
    encode_properties,
    parse_host,
)
from mqstore.storage.puts import Message
from mqstore.storage.topic_names import check_topic

Document = dict[str, Any]

NOT_KEPT: Final = frozenset({"__CRC32#", "INNER_MULTI_QUEUE_OFFSET"})
"""Properties of a record in its place: a checksum over its offset, offsets of further queues."""
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "queueId": (0, 2**31 - 1),
    "flag": _INT32,
    "sysFlag": _INT32,
    "bornTimestamp": _INT64,
    "storeTimestamp": _INT64,
    "reconsumeTimes": _INT32,
}
_TEXTS: Final = ("topic", "body", "bodyBase64", "bornHost", "tags", "uniqKey")
_INFORMATION: Final = frozenset(
    {
        *("queueOffset", "physicalOffset", "size", "offsetMsgId", "storeHost", "bodySize", "shard"),
        *("sysFlagNames", "preparedTransactionOffset", "checkedBy"),
    }
)
"""Fields that an import does not use."""
_FIELDS: Final = (*_TEXTS, *_NUMBERS, "keys", "properties")


@dataclass(frozen=True, slots=True)
class Imported:
    """A message to be stored, without its store host."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    born_host: Host
    store_ms: int
    reconsume_times: int

    def message(self, store_format: StoreFormat, host: Host) -> Message:
        """The message for a store of this format and host. Raises StorageError, ValueError."""
        encoded = encode_properties(
            self.properties, trailing_separator=store_format.trailing_property_separator
        )
        return Message(
            self.topic,
            self.queue_id,
            self.body,
            encoded,
            self.born_host,
            host,
            self.born_ms,
            flag=self.flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """The fields by which a stored message is recognized."""
        named = tuple(sorted(self.properties.items()))
        return self.topic, self.queue_id, self.born_ms, named, self.body


def document_of(found: Record) -> Document:
    """The document of a stored message."""
    properties = kept_properties(found)
    document: Document = {
        "topic": found.topic,
        "queueId": found.queue_id,
        "queueOffset": found.queue_offset,
        "physicalOffset": found.physical_offset,
        "offsetMsgId": found.offset_message_id,
        "uniqKey": properties.get(PROPERTY_UNIQ_KEY),
        "tags": properties.get(PROPERTY_TAGS),
        "keys": properties.get(PROPERTY_KEYS, "").split(),
        "properties": properties,
        "flag": found.flag,
        "sysFlag": kept_flags(found.sys_flag),
        "bornTimestamp": found.born_timestamp_ms,
        "bornHost": host_text(found.born_host),
        "storeTimestamp": found.store_timestamp_ms,
        "storeHost": host_text(found.store_host),
        "reconsumeTimes": found.reconsume_times,
    }
    return document | body_fields(found.body or b"")


def body_fields(body: bytes) -> Document:
    """The body as text where it is UTF-8, else in base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def kept_properties(found: Record) -> dict[str, str]:
    """The properties that an import keeps."""
    properties = found.properties or {}
    return {name: value for name, value in properties.items() if name not in NOT_KEPT}


def kept_flags(sys_flag: int) -> int:
    """The system flags that an import keeps: those of the body and the tags."""
    return sys_flag & ~(TRANSACTION_MASK | _V6)


def identity_of(found: Record) -> tuple[object, ...]:
    """As ``Imported.identity``, of a stored message."""
    named = tuple(sorted(kept_properties(found).items()))
    return found.topic, found.queue_id, found.born_timestamp_ms, named, found.body or b""


def imported_of(document: object, store_format: StoreFormat, now_ms: int) -> Imported:
    """Check a document, and return its message; ``now_ms`` is the time of one without times.

    Raises ValueError that says what is wrong.
    """
    if not isinstance(document, Mapping):
        raise ValueError("it is no object")
    document = {name: value for name, value in document.items() if value is not None}
    _check_types(document)
    topic = document.get("topic")
    if topic is None:
        raise ValueError("it has no topic")
    store_ms = document.get("storeTimestamp", document.get("bornTimestamp", now_ms))
    try:
        check_topic(topic, store_format)
        properties = _properties(document)
        encode_properties(properties, trailing_separator=True)
    except StorageError as error:
        raise ValueError(str(error)) from None
    host = _born_host(document)
    return Imported(
        topic=topic,
        queue_id=document.get("queueId", 0),
        body=_body(document),
        properties=properties,
        flag=document.get("flag", 0),
        sys_flag=kept_flags(document.get("sysFlag", 0)),
        born_ms=document.get("bornTimestamp", store_ms),
        born_host=host,
        store_ms=store_ms,
        reconsume_times=document.get("reconsumeTimes", 0),
    )


def host_text(host: Host) -> str:
    """A host as ``address:port``, an IPv6 address in brackets."""
    address = f"[{host.address_text}]" if host.is_v6 else host.address_text
    return f"{address}:{host.port}"


def _born_host(document: Mapping[str, Any]) -> Host:
    text = document.get("bornHost", "127.0.0.1:0")
    try:
        return parse_host(text)
    except (ValueError, StorageError):
        raise ValueError(f"bornHost {text!r} is no address:port") from None


def _check_types(document: Mapping[str, Any]) -> None:
    for name, value in document.items():
        if name in _INFORMATION:
            continue
        if name not in _FIELDS:
            raise ValueError(f"{name} is no field of a message; use {', '.join(_FIELDS)}")
        if name in _TEXTS and not isinstance(value, str | bytes):
            raise ValueError(f"{name} is no text")
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}; it is an integer from {low} to {high}")


def _properties(document: Mapping[str, Any]) -> dict[str, str]:
    properties = document.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise ValueError("properties is no object")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"property {name!r} is no text")
    keys = document.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("keys is no list of texts")
    named = {
        PROPERTY_TAGS: document.get("tags"),
        PROPERTY_KEYS: " ".join(keys) or None,
        PROPERTY_UNIQ_KEY: document.get("uniqKey"),
    }
    found = {name: value for name, value in properties.items() if name not in NOT_KEPT}
    return {**{name: value for name, value in named.items() if value is not None}, **found}


def _body(document: Mapping[str, Any]) -> bytes:
    body, encoded = document.get("body"), document.get("bodyBase64")
    if (body is None) == (encoded is None):
        raise ValueError("it has not exactly one of body and bodyBase64")
    if body is not None:
        try:
            return body if isinstance(body, bytes) else body.encode()
        except UnicodeEncodeError:
            raise ValueError("body has half a surrogate pair") from None
    try:
        return base64.b64decode(str(encoded), validate=True)
    except ValueError:
        raise ValueError("bodyBase64 is no base64") from None
