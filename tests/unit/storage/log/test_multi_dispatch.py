"""Multi-dispatch: INNER_MULTI_DISPATCH and the offsets that answer it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record, decode, encode_into, size_of
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import LmqQueuesExceeded, MessageInvalid
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.multi_dispatch import MultiDispatch, dispatched_queues, further_queues
from mqstore.storage.log.queue_offsets import QueueOffsets

HOST = Host.parse("127.0.0.1", 10911)
BOTH_ON = StoreConfig(enable_multi_dispatch=True, enable_lmq=True, max_lmq_consume_queue_num=3)
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X


def message(named: str, *, topic: str = "topic", queue_id: int = 4, more: str = "") -> Message:
    encoded = f"TAGS\x01a\x02INNER_MULTI_DISPATCH\x01{named}{more}".encode()
    return Message(topic, queue_id, b"", encoded, HOST, HOST, 0)


def dispatcher(
    store_format: StoreFormat = V4, config: StoreConfig = BOTH_ON
) -> tuple[MultiDispatch, QueueOffsets]:
    offsets = QueueOffsets()
    return MultiDispatch(config, store_format, offsets), offsets


def numbers(wrapped: Message) -> str:
    return properties.decode(wrapped.properties)["INNER_MULTI_QUEUE_OFFSET"]


@pytest.mark.parametrize("store_format", [V4, V5])
def test_the_offset_in_each_queue_becomes_a_property(store_format: StoreFormat) -> None:
    multi, offsets = dispatcher(store_format)
    offsets.set("%LMQ%client3", 0, 3)
    offsets.set("%LMQ%client1", 0, 7)
    put = message("%LMQ%client3,%LMQ%client1")
    assert multi.applies_to(put)
    wrapped, queues = multi.wrap(put)
    assert numbers(wrapped) == "3,7"
    multi.advance(queues)
    assert numbers(multi.wrap(put)[0]) == "4,8"


def test_4_9_drops_wait_and_the_last_separator() -> None:
    multi, _ = dispatcher(V4)
    wrapped, _ = multi.wrap(message("%LMQ%a", more="\x02WAIT\x01false\x02"))
    assert wrapped.properties == (
        b"TAGS\x01a\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010"
    )


def test_5_x_keeps_wait_and_ends_with_a_separator() -> None:
    multi, _ = dispatcher(V5)
    wrapped, _ = multi.wrap(message("%LMQ%a", more="\x02WAIT\x01false"))
    assert wrapped.properties.endswith(b"\x02WAIT\x01false\x02INNER_MULTI_QUEUE_OFFSET\x010\x02")


def test_offsets_that_a_message_brings_along_are_replaced() -> None:
    multi, _ = dispatcher()
    wrapped, _ = multi.wrap(message("%LMQ%a", more="\x02INNER_MULTI_QUEUE_OFFSET\x0199"))
    assert wrapped.properties.count(b"INNER_MULTI_QUEUE_OFFSET") == 1
    assert numbers(wrapped) == "0"


def test_a_light_queue_has_queue_id_zero_and_another_queue_the_messages_own() -> None:
    multi, _ = dispatcher()
    assert multi.wrap(message("%LMQ%a,other"))[1] == [("%LMQ%a", 0), ("other", 4)]


def test_without_enable_lmq_a_light_queue_is_an_ordinary_one_in_4_9() -> None:
    multi, _ = dispatcher(V4, StoreConfig(enable_multi_dispatch=True))
    assert multi.wrap(message("%LMQ%a"))[1] == [("%LMQ%a", 4)]


def test_a_queue_named_twice_advances_once() -> None:
    multi, offsets = dispatcher()
    wrapped, queues = multi.wrap(message("%LMQ%a,%LMQ%a"))
    multi.advance(queues)
    assert (numbers(wrapped), offsets.next("%LMQ%a", 0)) == ("0,0", 1)


@pytest.mark.parametrize(
    ("store_format", "config", "applies"),
    [
        (V4, StoreConfig(), False),
        (V4, StoreConfig(enable_lmq=True), False),
        (V4, StoreConfig(enable_multi_dispatch=True), True),
        (V5, StoreConfig(enable_multi_dispatch=True), False),
        (V5, StoreConfig(enable_lmq=True), True),
    ],
)
def test_it_is_off_unless_the_formats_own_setting_is_on(
    store_format: StoreFormat, config: StoreConfig, applies: bool
) -> None:
    assert dispatcher(store_format, config)[0].applies_to(message("%LMQ%a")) is applies


@pytest.mark.parametrize("topic", ["%RETRY%group", "rmq_sys_trace", "SCHEDULE_TOPIC_XXXX"])
def test_some_topics_never_dispatch_in_5_x(topic: str) -> None:
    assert not dispatcher(V5)[0].applies_to(message("%LMQ%a", topic=topic))
    assert dispatcher(V4)[0].applies_to(message("%LMQ%a", topic=topic))


def test_blank_queue_names_mean_no_dispatch() -> None:
    assert not dispatcher()[0].applies_to(message("  "))


@pytest.mark.parametrize("named", [",", "%LMQ%a,,%LMQ%b", "%LMQ%../x", "%LMQ%a/b", "%LMQ%é"])
def test_a_name_that_is_no_queue_is_refused(named: str) -> None:
    with pytest.raises(MessageInvalid, match="INNER_MULTI_DISPATCH"):
        dispatcher()[0].wrap(message(named))


def test_5_x_refuses_a_queue_that_it_would_not_dispatch_to() -> None:
    with pytest.raises(MessageInvalid, match="%LMQ%"):
        dispatcher(V5)[0].wrap(message("%LMQ%a,other"))


def test_new_light_queues_beyond_the_maximum_are_refused_and_known_ones_are_not() -> None:
    multi, _ = dispatcher()
    multi.advance(multi.wrap(message("%LMQ%a,%LMQ%b,%LMQ%c"))[1])
    multi.advance(multi.wrap(message("%LMQ%a,%LMQ%c"))[1])
    with pytest.raises(LmqQueuesExceeded, match="maxLmqConsumeQueueNum"):
        multi.wrap(message("%LMQ%a,%LMQ%d"))


@given(
    st.lists(
        st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%c"]), min_size=1, max_size=4),
        max_size=20,
    ),
    st.sampled_from([V4, V5]),
)
def test_each_queue_is_numbered_without_gaps(
    puts: list[list[str]], store_format: StoreFormat
) -> None:
    multi, _ = dispatcher(store_format)
    given_out: dict[str, list[int]] = {}
    for named in puts:
        wrapped, queues = multi.wrap(message(",".join(named)))
        multi.advance(queues)
        for name, number in dict(zip(named, numbers(wrapped).split(","), strict=True)).items():
            given_out.setdefault(name, []).append(int(number))
    assert all(found == list(range(len(found))) for found in given_out.values())


@pytest.mark.parametrize(
    ("offset", "expected"),
    [("7", [("%LMQ%a", 7)]), ("9" * 19, []), ("1" * 5_000, []), ("-1", []), ("", []), ("٣", [])],
)
def test_further_queues_have_offsets_that_a_queue_can_have(
    offset: str, expected: list[tuple[str, int]]
) -> None:
    assert further_queues(stored_in("topic", offset)) == expected


@pytest.mark.parametrize("topic", ["%RETRY%g", "%RETRY%g_T", "rmq_sys_T", "SCHEDULE_TOPIC_XXXX"])
def test_a_copy_in_a_topic_of_its_own_has_no_further_queues_in_5_x(topic: str) -> None:
    """A broker of 4.9 numbers a copy anew."""
    copy = stored_in(topic, "7")
    assert dispatched_queues(copy, V5) == []
    assert dispatched_queues(copy, V4) == [("%LMQ%a", 7)]
    assert dispatched_queues(stored_in("T", "7"), V5) == [("%LMQ%a", 7)]


def stored_in(topic: str, offset: str) -> Record:
    encoded = f"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01{offset}".encode()
    stored = Message(topic, 0, b"", encoded, HOST, HOST, 0)
    buffer = bytearray(size_of(stored, 1))
    encode_into(
        buffer,
        0,
        stored,
        version=1,
        queue_offset=0,
        physical_offset=0,
        store_timestamp_ms=0,
    )
    return decode(buffer, 0, len(buffer), physical_offset=0)
