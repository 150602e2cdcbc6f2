from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage._kernel import LogEnd, count_json_values
from mqstore.storage.codec import batch, properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.errors import PropertyError, StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.system.threads import production_seams
from mqstore.wire.examples import stores as examples
from mqstore.wire.produce import NewMessage
from mqstore.writer import produce
from tests.unit.storage.stores import open_store

HOST = Host(b"\x7f\0\0\1", 10911)
ORIGIN = produce.Origin("orders", 1, HOST, HOST, 1_700_000_000_000)
FORMAT = StoreFormat.V4_9
LEVELS = DelayLevels(StoreConfig().message_delay_level)


def _decode(value: Any) -> list[NewMessage]:
    return produce.decode_request(json.dumps(value).encode(), 100).messages


def _build(**members: Any) -> tuple[Message, str]:
    (message,) = _decode({"messages": [members]})
    return produce.build(message, ORIGIN, UniqueKeys(production_seams()), FORMAT, LEVELS)


def _refusal(**members: Any) -> Problem | PropertyError:
    with pytest.raises((Problem, PropertyError)) as caught:
        _build(**members)
    error = caught.value
    assert isinstance(error, (Problem, PropertyError))
    return error


def test_example_of_the_api_pages_is_a_request() -> None:
    assert _decode(examples.PRODUCE)[0].body == "hello"


def test_absent_fields_take_their_defaults() -> None:
    message, key = _build()
    assert (message.body, message.flag, message.queue_id) == (b"", 0, 1)
    assert properties.decode(message.properties) == {"UNIQ_KEY": key}
    assert len(key) == 32


def test_fields_become_properties() -> None:
    message, key = _build(tags="t", keys=["a", "b"], properties={"p": "1"}, uniqKey="mine")
    found = properties.decode(message.properties)
    assert found == {"TAGS": "t", "KEYS": "a b", "p": "1", "UNIQ_KEY": "mine"}
    assert key == "mine"


def test_a_delay_level_becomes_a_property() -> None:
    assert properties.decode(_build(delayLevel=18)[0].properties)["DELAY"] == "18"
    assert "DELAY" not in properties.decode(_build(delayLevel=0)[0].properties)


def test_a_level_that_is_none_is_refused_with_those_that_are() -> None:
    error = _refusal(delayLevel=19)
    assert isinstance(error, Problem)
    assert error.kind is problems.MESSAGE_INVALID
    assert "1 (1s), 2 (5s)" in str(error.detail)
    assert "18 (2h)" in str(error.detail)


@given(st.binary(max_size=200))
def test_base64_body_is_stored_as_its_bytes(body: bytes) -> None:
    assert _build(bodyBase64=base64.b64encode(body).decode())[0].body == body


@given(st.binary(max_size=200), st.integers(0, 31))
def test_a_body_that_is_not_what_its_checksum_says_is_refused(body: bytes, bit: int) -> None:
    encoded = base64.b64encode(body).decode()
    assert _build(bodyBase64=encoded, crc32c=crc32c(body))[0].body == body
    error = _refusal(bodyBase64=encoded, crc32c=crc32c(body) ^ 1 << bit)
    assert isinstance(error, Problem)
    assert error.kind is problems.CHECKSUM_MISMATCH


def test_a_texts_checksum_is_that_of_its_utf8() -> None:
    assert _build(body="é", crc32c=crc32c("é".encode()))[0].body == "é".encode()


@pytest.mark.parametrize("header", [b"x", b"-1", b"4294967296", b"1 ", b"0x1", b"9" * 40])
def test_a_header_that_is_no_checksum_is_refused(header: bytes) -> None:
    with pytest.raises(Problem) as error:
        produce.crc32c_of(header)
    assert error.value.kind is problems.BAD_PARAMETER
    assert produce.crc32c_of(b"4294967295") == 2**32 - 1


@pytest.mark.parametrize(
    "members",
    [
        {"body": 1},
        {"body": "a", "bodyBase64": "YQ=="},
        {"bodyBase64": "%%%"},
        {"bodyBase64": "YQ"},
        {"bodyBase64": "é"},
        {"queueId": -1},
        {"queueId": 2**31},
        {"queueId": "0"},
        {"flag": 2**31},
        {"keys": "a"},
        {"properties": {"a": 1}},
        {"unknownField": 1},
        {"delayLevel": 19},
        {"delayLevel": -1},
        {"crc32c": -1},
        {"crc32c": 2**32},
        {"crc32c": 1},
        {"properties": {"TAGS": "a"}},
        {"properties": {"a": "x\u0001y"}},
        {"properties": {"a\u0002": "x"}},
        {"properties": {"a": "x\u0000"}},
        {"properties": {"": "x"}},
        {"properties": {"a": ""}},
        {"tags": "a\u0002b"},
        {"tags": "a\u0000b"},
        {"keys": ["with space"]},
        {"keys": [""]},
        {"keys": ["a\u0001"]},
        {"uniqKey": "with space"},
        {"uniqKey": ""},
    ],
)
def test_what_cannot_be_stored_is_refused_with_422(members: dict[str, Any]) -> None:
    error = _refusal(**members)
    problem = error if isinstance(error, Problem) else problems.from_storage(error)
    assert problem is not None
    assert problem.kind.status == 422
    assert problem.detail


plain = st.text(st.characters(codec="utf-8", exclude_characters="\0\1\2 "), min_size=1, max_size=9)


a_tag = plain.filter(lambda text: text == text.strip() and "||" not in text)


@given(st.dictionaries(plain.map("p-".__add__), plain, max_size=4), a_tag, st.lists(plain))
def test_properties_are_encoded_as_the_codec_does(
    given_: dict[str, str], tags: str, keys: list[str]
) -> None:
    expected = dict(given_) | ({"KEYS": " ".join(keys)} if keys else {})
    expected |= {"UNIQ_KEY": "u", "TAGS": tags}
    for store_format in StoreFormat:
        message = NewMessage(tags=tags, keys=keys, properties=dict(given_), uniq_key="u")
        keys_ = UniqueKeys(production_seams())
        built, _ = produce.build(message, ORIGIN, keys_, store_format, LEVELS)
        trailing = store_format.trailing_property_separator
        assert built.properties == properties.encode(expected, trailing_separator=trailing)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"messages": [}'])
def test_no_json_is_400(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        produce.decode_request(body, 10)
    assert caught.value.kind is problems.BAD_JSON


@pytest.mark.parametrize(
    "value", [[], {}, {"messages": []}, {"messages": [{}], "durability": "never"}, None]
)
def test_json_of_another_shape_is_422(value: Any) -> None:
    with pytest.raises(Problem) as caught:
        _decode(value)
    assert caught.value.kind is problems.BODY_INVALID


@pytest.mark.parametrize("start", [b"[", b'{"messages":[{"properties":', b'{"a":'])
def test_deep_nesting_is_refused(start: bytes) -> None:
    with pytest.raises(Problem):
        produce.decode_request(start * 50_000, 10)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(Problem):
        produce.decode_request(b'{"messages": [{"body": "\\ud800"}]}', 10)


def test_too_many_messages_are_413() -> None:
    with pytest.raises(Problem) as caught:
        _decode({"messages": [{}] * 101})
    assert caught.value.kind is problems.BODY_TOO_LARGE


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "body": st.text(max_size=5),
                "keys": st.lists(st.sampled_from(["a", 'b"', "c,d", "\\"]), max_size=3),
                "properties": st.dictionaries(st.sampled_from(['p"', "q,"]), st.text(max_size=3)),
                "flag": st.sampled_from([0, 1, "no"]),
                "unknown": st.none(),
            },
        ),
        max_size=4,
    ),
    st.sampled_from([None, "sync", "never"]),
)
def test_a_heavy_request_is_decoded_as_any_other(messages: list[Any], durability: Any) -> None:
    body = json.dumps({"messages": messages, "durability": durability}).encode()
    heavy = body + b" " * produce.HEAVY_SIZE
    assert produce.is_heavy(heavy, is_json=True) and not produce.is_heavy(body, is_json=True)
    found: list[object] = []
    for each in (body, heavy):
        try:
            found.append(produce.decode_request(each, 10))
        except Problem as problem:
            found.append(problem.kind)
    assert found[0] == found[1]


def test_a_heavy_request_says_which_message_is_wrong() -> None:
    messages = [{"body": "x"}] * 2_000 + [{"body": 1}]
    with pytest.raises(Problem) as caught:
        produce.decode_request(json.dumps({"messages": messages}).encode(), 10_000)
    assert caught.value.kind is problems.BODY_INVALID
    assert str(caught.value.detail).startswith("message 2000: expected `str | null`")


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"messages":[' + b",".join([b"{}"] * 400_001) + b"]}", produce.VALUES_MAX),
        (
            b'{"messages":[{"keys":[' + b",".join([b'"k"'] * 30_000) + b"]}]}",
            produce.MESSAGE_VALUES_MAX,
        ),
    ],
    ids=["messages", "keys"],
)
def test_more_values_than_a_request_needs_are_refused_before_they_are_decoded(
    body: bytes, limit: int
) -> None:
    with pytest.raises(Problem) as caught:
        produce.decode_request(body, 10_000)
    assert caught.value.kind is problems.BODY_TOO_LARGE
    assert caught.value.extra["limit"] == limit


def test_commas_of_a_text_are_no_values() -> None:
    text = 'a,"b",\\,' * 100_000
    body = json.dumps({"messages": [{"body": text}]}).encode()
    assert produce.decode_request(body, 10).messages[0].body == text


@given(st.recursive(st.text(max_size=4), lambda inner: st.lists(inner, max_size=4)))
def test_the_kernel_counts_what_a_json_text_holds(value: Any) -> None:
    def commas(found: Any) -> int:
        if not isinstance(found, list):
            return 0
        return max(0, len(found) - 1) + sum(map(commas, found))

    text = json.dumps(value).encode()
    assert count_json_values(text, 1 << 40) == 1 + commas(value)
    assert count_json_values(text, 1) <= 2


def test_messages_of_one_request_go_to_one_queue() -> None:
    assert produce.requested_queue(_decode({"messages": [{"queueId": 2}, {}]})) == 2
    with pytest.raises(Problem):
        produce.requested_queue(_decode({"messages": [{"queueId": 2}, {"queueId": 1}]}))


def test_queues_take_turns_unless_one_is_requested() -> None:
    chooser = produce.QueueChooser()
    assert [chooser.choose("t", 3, None) for _ in range(4)] == [0, 1, 2, 0]
    assert chooser.choose("t", 3, 2) == 2
    with pytest.raises(Problem):
        chooser.choose("t", 3, 3)


def _batch(encoded: bytes) -> bytes:
    message = ORIGIN.message(b"body", encoded, 7)
    return batch.encode_batch([message, message])


def test_batch_of_rocketmqs_clients_is_taken_as_encoded() -> None:
    encoded = properties.encode(
        {"UNIQ_KEY": "k", "WAIT": "true", "TAGS": "t", "a": "b"}, trailing_separator=False
    )
    messages, keys, _ = produce.build_batch(_batch(encoded), ORIGIN, FORMAT, 10)
    assert keys == ["k", "k"]
    assert [(m.body, m.flag, m.topic) for m in messages] == [(b"body", 7, "orders")] * 2


@pytest.mark.parametrize("name", ["DELAY", "TRAN_MSG", "REAL_TOPIC", "INNER_MULTI_QUEUE_OFFSET"])
def test_batch_may_not_forge_what_the_store_acts_on(name: str) -> None:
    encoded = properties.encode({name: "1"}, trailing_separator=False)
    with pytest.raises(PropertyError):
        produce.build_batch(_batch(encoded), ORIGIN, FORMAT, 10)


@given(st.binary(max_size=300))
def test_hostile_batch_is_refused_or_taken_never_a_defect(data: bytes) -> None:
    with contextlib.suppress(StorageError, Problem):
        produce.build_batch(data, ORIGIN, FORMAT, 10)


@pytest.fixture(scope="module")
def log_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogEnd]:
    with open_store(tmp_path_factory.mktemp("store")) as store:
        yield store.log.end


NAMES = sorted(produce.CLIENT_PROPERTIES | {"DELAY", "TRAN_MSG", "REAL_TOPIC", "mine", "\xfc", ""})
property_lists = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "", "\0", "ä"])))


@given(property_lists, st.integers(1, 3))
def test_what_the_kernel_reads_of_a_batch_is_what_python_takes(
    log_end: LogEnd, found: list[tuple[str, str]], max_count: int
) -> None:
    encoded = "\x02".join(f"{name}\x01{value}" for name, value in found).encode()
    read = produce.read_batch(_batch(encoded), ORIGIN, log_end, FORMAT, max_count)
    if read is not None:
        messages, keys, _ = produce.build_batch(_batch(encoded), ORIGIN, FORMAT, max_count)
        assert (len(read), read.keys) == (len(messages), keys)


def test_a_batch_as_clients_send_it_is_read_by_the_kernel(log_end: LogEnd) -> None:
    sent = _batch(b"UNIQ_KEY\x01k\x02WAIT\x01true\x02TAGS\x01t\x02mine\x01b")
    assert produce.read_batch(sent, ORIGIN, log_end, FORMAT, 2) is not None
    assert produce.read_batch(sent, ORIGIN, log_end, FORMAT, 1) is None


@pytest.mark.parametrize(
    ("address", "packed"),
    [("1.2.3.4", b"\1\2\3\4"), ("::ffff:1.2.3.4", b"\1\2\3\4"), ("::1", b"\0" * 15 + b"\1")],
)
def test_client_address_becomes_born_host(address: str, packed: bytes) -> None:
    assert produce.client_host(address, 5) == Host(packed, 5)
