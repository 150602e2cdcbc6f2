"""Which topic, group and property names are allowed, and which topic may become a path.

Used by services (what clients may send) and by dispatch (what a record may create on disk).
Source: TopicValidator and MessageConst of RocketMQ 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from mqstore.storage._kernel import NameRules
from mqstore.storage.errors import (
    GroupNameError,
    PropertyError,
    StorageError,
    TopicNameError,
)
from mqstore.storage.layout import (
    KEY_SEPARATOR,
    LMQ_PREFIX,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TOMBSTONE,
    PROPERTY_TRANSACTION_KEY,
    PROPERTY_TRANSACTION_SIZE,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
    StoreFormat,
)

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
GROUP_LENGTH_MAX: Final = 120
"""Characters; leaves room for ``%RETRY%`` in front and a topic behind."""
FILE_NAME_LENGTH_MAX: Final = 255
"""Bytes of one path component on every file system in use."""

TAG_SEPARATOR: Final = "||"
"""Between the tags of a filter."""
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_POP_RETRY: Final = re.compile(r"%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+")
"""A retry topic of POP consumers under enableRetryTopicV2: a broker makes it, no client may."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd\ud800-\udfff/\\]")

REFUSED_TOPICS: Final[Mapping[StoreFormat, frozenset[str]]] = {
    StoreFormat.V4_9: frozenset(
        {
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
        }
    ),
    StoreFormat.V5_X: frozenset(
        {
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
            "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
            "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        }
    ),
}
"""Topics that a client must not send to (NOT_ALLOWED_SEND_TOPIC_SET)."""

_SYSTEM_4_9: Final = REFUSED_TOPICS[StoreFormat.V4_9] | {
    "TBW102",
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
}
SYSTEM_TOPICS: Final[Mapping[StoreFormat, frozenset[str]]] = {
    StoreFormat.V4_9: _SYSTEM_4_9,
    StoreFormat.V5_X: _SYSTEM_4_9 | REFUSED_TOPICS[StoreFormat.V5_X] | {"CHECKPOINT_TOPIC"},
}
"""Topics that the broker owns (SYSTEM_TOPIC_SET); with them go all names in ``rmq_sys_``."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)
"""Groups that brokers make for themselves; with them go all names in ``CID_RMQ_SYS_``."""

_RESERVED_4_9: Final = frozenset(
    {
        "TRACE_ON",
        "MSG_REGION",
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "UNIQ_KEY",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
    }
)
_TIMER: Final = frozenset(
    {
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
    }
)
"""Reserved in 4.9 too, where RocketMQ does not know them: stores of both have the timer."""
RESERVED_PROPERTIES: Final[Mapping[StoreFormat, frozenset[str]]] = {
    StoreFormat.V4_9: _RESERVED_4_9 | _TIMER,
    StoreFormat.V5_X: _RESERVED_4_9
    | _TIMER
    | {
        "ORIGIN_GROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__CRC32#",
        "_SYS_MSG_PRIORITY_",
    },
}
"""Names that RocketMQ's clients refuse as user properties (MessageConst.STRING_HASH_SET)."""

_STORE_ONLY_PROPERTIES: Final = frozenset(
    {
        "TRANSACTION_CHECK_TIMES",
        PROPERTY_SHARDING_KEY,
        "TRAN_PREPARED_QUEUE_OFFSET",
        "__CRC32#",
        PROPERTY_TOMBSTONE,
        PROPERTY_TRANSACTION_KEY,
        PROPERTY_TRANSACTION_SIZE,
    }
)
"""Not in every version's list, but the store acts on them, so no client may forge them."""


def check_topic(topic: str, store_format: StoreFormat) -> None:
    """Raise TopicNameError unless a client may name this topic at all (system topics included).

    The length is limited in characters as RocketMQ does (127; 255 for 5.x retry and dead-letter
    topics) and in UTF-8 bytes: a V1 record reads its length byte back as signed.
    """
    if _POP_RETRY.fullmatch(topic) is None:
        _check_pattern("topic", topic)
    limit = _topic_length_max(topic, store_format)
    if len(topic.encode()) > limit:
        raise TopicNameError(
            f"topic is {len(topic.encode())} bytes long, at most {limit} are allowed"
        )


def check_send_topic(topic: str, store_format: StoreFormat) -> None:
    """Raise TopicNameError unless a client may send to this topic."""
    _check_pattern("topic", topic)
    check_topic(topic, store_format)
    if topic in REFUSED_TOPICS[store_format]:
        raise TopicNameError(f"topic {topic} is written by the store only, send to another")


def check_new_topic(topic: str, store_format: StoreFormat) -> None:
    """Raise TopicNameError unless a client may create or change this topic."""
    _check_pattern("topic", topic)
    check_topic(topic, store_format)
    if is_system_topic(topic, store_format):
        raise TopicNameError(f"topic {topic} is a system topic, name another one")


@lru_cache(1024)
def check_group(group: str) -> None:
    """Raise GroupNameError unless this may be the name of a consumer or producer group."""
    _check_pattern("group", group, GroupNameError)
    if len(group) > GROUP_LENGTH_MAX:
        raise GroupNameError(
            f"group is {len(group)} characters long, at most {GROUP_LENGTH_MAX} are allowed"
        )


def check_own_group(group: str) -> None:
    """Raise GroupNameError unless a client may create, change or delete this group."""
    check_group(group)
    if is_system_group(group):
        raise GroupNameError(f"group {group} is RocketMQ's own, name another one")


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(topic: str, store_format: StoreFormat) -> bool:
    """Whether a topic is RocketMQ's own in this format."""
    return topic in SYSTEM_TOPICS[store_format] or topic.startswith(SYSTEM_PREFIX)


def is_lmq(name: str) -> bool:
    """Whether a name is that of a light message queue."""
    return name.startswith(LMQ_PREFIX)


def raw_name(topic: str) -> bytes:
    """The bytes of a queue directory's name; one that is no UTF-8 comes from the system with
    escapes."""
    return topic.encode("utf-8", "surrogateescape")


def is_safe_path(topic: str) -> bool:
    """Whether a queue directory of this name may be made.

    Topics follow RocketMQ's pattern, which has neither ``/`` nor ``.``; POP retry topics may have a
    ``+``. Names of light queues come from MQTT and are wider: anything but separators, control
    characters and what was no valid UTF-8.
    """
    if not topic or len(topic.encode("utf-8", "replace")) > FILE_NAME_LENGTH_MAX:
        return False
    if is_lmq(topic):
        return _CONTROL.search(topic) is None
    return _NAME.fullmatch(topic) is not None or _POP_RETRY.fullmatch(topic) is not None


def check_user_property(name: str, value: str, store_format: StoreFormat) -> None:
    """Raise PropertyError unless a client may set this property by itself."""
    if not name:
        raise PropertyError("property name is empty, give it one")
    if name == PROPERTY_SHARDING_KEY:
        raise PropertyError(
            f"property {name} is the ordering key; produce with orderingKey instead"
        )
    if name in RESERVED_PROPERTIES[store_format] or name in _STORE_ONLY_PROPERTIES:
        raise PropertyError(f"property {name} is reserved by RocketMQ, use another name")
    if not (is_plain(name) and is_plain(value)):
        check_property_text(f"property name {name!r}", name)
        check_property_text(f"value of property {name}", value)


def property_rules(
    free: Iterable[str], store_format: StoreFormat, *, refused: Iterable[str] = ()
) -> NameRules:
    """``check_user_property`` of all names but ``free`` ones, for the kernel, which leaves those
    that are ``refused`` besides to Python too."""
    names = RESERVED_PROPERTIES[store_format].union(_STORE_ONLY_PROPERTIES, refused)
    left = names.difference(free)
    return NameRules([name.encode() for name in free], [name.encode() for name in left])


def check_key(key: str) -> None:
    """Raise PropertyError unless this is one index key: KEYS joins them with spaces."""
    if not key:
        raise PropertyError("key is empty, leave it out")
    if KEY_SEPARATOR in key:
        raise PropertyError(f"key {key!r} contains a space, which separates keys")
    if not is_plain(key):
        check_property_text(f"key {key!r}", key)


def check_tag(tag: str) -> None:
    """Raise PropertyError unless a filter can select this tag: ``||`` separates the tags of a
    filter, which are stripped of spaces (FilterAPI.buildSubscriptionData of 4.9.7 and 5.4.0)."""
    if TAG_SEPARATOR in tag:
        raise PropertyError(
            f"tag {tag!r} contains {TAG_SEPARATOR}, which separates tags in a filter; a message has"
            " one tag"
        )
    if tag != tag.strip():
        raise PropertyError(f"tag {tag!r} begins or ends with a space, and no filter can; strip it")


def is_plain(text: str) -> bool:
    """Whether ``check_property_text`` accepts the text, by a quick check of ordinary text."""
    return text.isascii() and text.isprintable()


def check_property_text(what: str, text: str) -> None:
    """Raise PropertyError when the text cannot be stored in a record's properties."""
    for character, name in (
        (NAME_VALUE_SEPARATOR, "0x01"),
        (PROPERTY_SEPARATOR, "0x02"),
        ("\x00", "NUL"),
    ):
        if character in text:
            raise PropertyError(f"{what} contains {name}, remove it")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PropertyError(f"{what} contains half a surrogate pair, send valid UTF-8")


def _check_pattern(what: str, name: str, error: type[StorageError] = TopicNameError) -> None:
    if not name.strip():
        raise error(f"{what} is blank, give it a name")
    if _NAME.fullmatch(name) is None:
        raise error(f"{what} {name!r} has characters other than % | a-z A-Z 0-9 _ -")


def _topic_length_max(topic: str, store_format: StoreFormat) -> int:
    if store_format is StoreFormat.V5_X and topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return TOPIC_LENGTH_MAX_V2
    return TOPIC_LENGTH_MAX_V1


def returning_group(topic: str) -> str | None:
    """Return the group of a retry or dead-letter topic; None for another topic.

    5.x also has ``%RETRY%GROUP+TOPIC``.
    """
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix).partition("+")[0]
    return None
