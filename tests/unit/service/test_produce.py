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
from mqstore.storage._kernel import Sends, count_json_values, has_distinct_members
from mqstore.storage.codec import batch, properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import PropertyError, StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.wire.examples import stores as examples
from mqstore.wire.produce import NewMessage
from mqstore.writer import produce
from mqstore.writer.ordering import queue_of
from tests.unit.storage.sends import COUNT_MAX, sends_of
from tests.unit.storage.stores import open_store

HOST = Host(b"\x7f\0\0\1", 10911)
FORMAT = StoreFormat.V4_9


@pytest.fixture(scope="module")
def sends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sends]:
    with open_store(tmp_path_factory.mktemp("store")) as store:
        yield sends_of(store, "orders", queues=3)


def _decode(value: Any) -> list[NewMessage]:
    return produce.decode_request(json.dumps(value).encode(), 100, heavy=False).messages


def _build(sends: Sends, **members: Any) -> tuple[Message, str]:
    batch = sends.read(_decode({"messages": [members]}), HOST)
    (message,), (key,) = batch.messages(), batch.keys
    return message, key


def _refusal(sends: Sends, **members: Any) -> Problem | PropertyError:
    with pytest.raises((Problem, PropertyError)) as caught:
        _build(sends, **members)
    error = caught.value
    assert isinstance(error, (Problem, PropertyError))
    return error


def test_example_of_the_api_pages_is_a_request() -> None:
    assert _decode(examples.PRODUCE)[0].body == "hello"


def test_absent_fields_take_their_defaults(sends: Sends) -> None:
    message, key = _build(sends)
    assert (message.body, message.flag) == (b"", 0)
    assert properties.decode(message.properties) == {"UNIQ_KEY": key}
    assert len(key) == 32


def test_fields_become_properties(sends: Sends) -> None:
    message, key = _build(sends, tags="t", keys=["a", "b"], properties={"p": "1"}, uniqKey="mine")
    found = properties.decode(message.properties)
    assert found == {"TAGS": "t", "KEYS": "a b", "p": "1", "UNIQ_KEY": "mine"}
    assert key == "mine"


def test_a_delay_level_becomes_a_property(sends: Sends) -> None:
    assert properties.decode(_build(sends, delayLevel=18)[0].properties)["DELAY"] == "18"
    assert "DELAY" not in properties.decode(_build(sends, delayLevel=0)[0].properties)


def test_a_level_that_is_none_is_refused_with_those_that_are(sends: Sends) -> None:
    error = _refusal(sends, delayLevel=19)
    assert isinstance(error, Problem)
    assert error.kind is problems.MESSAGE_INVALID
    assert "1 (1s), 2 (5s)" in str(error.detail)
    assert "18 (2h)" in str(error.detail)


@given(st.binary(max_size=200))
def test_base64_body_is_stored_as_its_bytes(sends: Sends, body: bytes) -> None:
    assert _build(sends, bodyBase64=base64.b64encode(body).decode())[0].body == body


@given(st.binary(max_size=200), st.integers(0, 31))
def test_a_body_that_is_not_what_its_checksum_says_is_refused(
    sends: Sends, body: bytes, bit: int
) -> None:
    encoded = base64.b64encode(body).decode()
    assert _build(sends, bodyBase64=encoded, crc32c=crc32c(body))[0].body == body
    error = _refusal(sends, bodyBase64=encoded, crc32c=crc32c(body) ^ 1 << bit)
    assert isinstance(error, Problem)
    assert error.kind is problems.CHECKSUM_MISMATCH


def test_a_texts_checksum_is_that_of_its_utf8(sends: Sends) -> None:
    assert _build(sends, body="é", crc32c=crc32c("é".encode()))[0].body == "é".encode()


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
def test_what_cannot_be_stored_is_refused_with_422(sends: Sends, members: dict[str, Any]) -> None:
    error = _refusal(sends, **members)
    problem = error if isinstance(error, Problem) else problems.from_storage(error)
    assert problem is not None
    assert problem.kind.status == 422
    assert problem.detail


plain = st.text(st.characters(codec="utf-8", exclude_characters="\0\1\2 "), min_size=1, max_size=9)


a_tag = plain.filter(lambda text: text == text.strip() and "||" not in text)


@given(st.dictionaries(plain.map("p-".__add__), plain, max_size=4), a_tag, st.lists(plain))
def test_properties_are_encoded_as_the_codec_does(
    sends: Sends, given_: dict[str, str], tags: str, keys: list[str]
) -> None:
    expected = dict(given_) | ({"KEYS": " ".join(keys)} if keys else {})
    expected |= {"UNIQ_KEY": "u", "TAGS": tags}
    built, _ = _build(sends, tags=tags, keys=keys, properties=given_, uniqKey="u")
    assert built.properties == properties.encode(expected, trailing_separator=False)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"messages": [}'])
def test_no_json_is_400(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        produce.decode_request(body, 10, heavy=False)
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
        produce.decode_request(start * 50_000, 10, heavy=False)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(Problem):
        produce.decode_request(b'{"messages": [{"body": "\\ud800"}]}', 10, heavy=False)


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
            found.append(produce.decode_request(each, 10, heavy=each is heavy))
        except Problem as problem:
            found.append(problem.kind)
    assert found[0] == found[1]


def test_a_heavy_request_says_which_message_is_wrong() -> None:
    messages = [{"body": "x"}] * 2_000 + [{"body": 1}]
    with pytest.raises(Problem) as caught:
        produce.decode_request(json.dumps({"messages": messages}).encode(), 10_000, heavy=True)
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
        produce.decode_request(body, 10_000, heavy=True)
    assert caught.value.kind is problems.BODY_TOO_LARGE
    assert caught.value.extra["limit"] == limit


def test_commas_of_a_text_are_no_values() -> None:
    text = 'a,"b",\\,' * 100_000
    body = json.dumps({"messages": [{"body": text}]}).encode()
    assert produce.decode_request(body, 10, heavy=False).messages[0].body == text


@given(st.recursive(st.text(max_size=4), lambda inner: st.lists(inner, max_size=4)))
def test_the_kernel_counts_what_a_json_text_holds(value: Any) -> None:
    def commas(found: Any) -> int:
        if not isinstance(found, list):
            return 0
        return max(0, len(found) - 1) + sum(map(commas, found))

    text = json.dumps(value).encode()
    assert count_json_values(text, 1 << 40) == 1 + commas(value)
    assert count_json_values(text, 1) <= 2


def _queues(sends: Sends, *messages: dict[str, Any]) -> list[int]:
    batch = sends.read(_decode({"messages": list(messages)}), HOST)
    return [each.queue_id for each in batch.messages()]


def test_messages_of_one_request_go_to_one_queue(sends: Sends) -> None:
    assert _queues(sends, {"queueId": 2}, {}) == [2, 2]
    for refused in (
        [{"queueId": 2}, {"queueId": 1}],
        [{"queueId": 3}],
        [{"queueId": 1}, {"queueId": 1, "orderingKey": "a"}],
    ):
        with pytest.raises(Problem):
            _queues(sends, *refused)


def test_queues_take_turns_unless_one_is_requested(sends: Sends) -> None:
    (first,) = _queues(sends, {})
    assert [_queues(sends, {}) for _ in range(3)] == [[(first + n) % 3] for n in (1, 2, 3)]
    key = queue_of("a", 3)
    assert _queues(sends, {"orderingKey": "a"}, {"orderingKey": "a"}) == [key, key]
    assert _queues(sends, {"orderingKey": "a"}, {}) == [key, (first + 1) % 3]


def _batch(encoded: bytes) -> bytes:
    message = Message("orders", 1, b"body", encoded, HOST, HOST, 1, 7)
    return batch.encode_batch([message, message])


def test_batch_of_rocketmqs_clients_is_taken_as_encoded(sends: Sends) -> None:
    encoded = properties.encode(
        {"UNIQ_KEY": "k", "WAIT": "true", "TAGS": "t", "a": "b"}, trailing_separator=False
    )
    read = sends.read_batch(_batch(encoded), HOST, 1)
    assert read.keys == ["k", "k"]
    assert [(m.body, m.flag, m.topic) for m in read.messages()] == [(b"body", 7, "orders")] * 2
    with pytest.raises(Problem):
        sends.read_batch(_batch(encoded) * COUNT_MAX, HOST, 1)


@pytest.mark.parametrize("name", ["DELAY", "TRAN_MSG", "REAL_TOPIC", "INNER_MULTI_QUEUE_OFFSET"])
def test_batch_may_not_forge_what_the_store_acts_on(sends: Sends, name: str) -> None:
    encoded = properties.encode({name: "1"}, trailing_separator=False)
    with pytest.raises(PropertyError):
        sends.read_batch(_batch(encoded), HOST)


def test_a_requests_key_names_the_messages_without_a_key(sends: Sends) -> None:
    for own, stored in (
        (b"", b"UNIQ_KEY\x01k~0"),
        (b"TAGS\x01t", b"UNIQ_KEY\x01k~0\x02TAGS\x01t"),
        (b"UNIQ_KEY\x01own", b"UNIQ_KEY\x01own"),
    ):
        read = sends.read_batch(_batch(own), HOST, 1, lambda n: [f"k~{i}" for i in range(n)])
        assert read.messages()[0].properties == stored


@given(st.binary(max_size=300))
def test_hostile_batch_is_refused_or_taken_never_a_defect(sends: Sends, data: bytes) -> None:
    with contextlib.suppress(StorageError, Problem):
        sends.read_batch(data, HOST)


@given(
    st.recursive(
        st.text(max_size=4) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(
                st.tuples(st.sampled_from(["a", "b", 'q"', "\\", "é"]), inner), max_size=3
            ).map(lambda pairs: _Members(pairs))
        ),
    )
)
def test_what_the_kernel_takes_for_distinct_members_is(value: Any) -> None:
    repeated = False

    def text(found: Any) -> str:
        nonlocal repeated
        if isinstance(found, _Members):
            repeated = repeated or len({name for name, _ in found}) < len(found)
            return f"{{{', '.join(f'{json.dumps(n)}:{text(v)}' for n, v in found)}}}"
        if isinstance(found, list):
            return f"[{','.join(map(text, found))}]"
        return json.dumps(found)

    written = text(value).encode()
    assert not (has_distinct_members(written) and repeated)
    if not repeated and b"\\" not in written and max(map(written.count, (b"{", b"["))) < 3:
        assert has_distinct_members(written)


class _Members(list[tuple[str, Any]]):
    """Members of an object, in which names may repeat."""


@pytest.mark.parametrize(
    ("address", "packed"),
    [("1.2.3.4", b"\1\2\3\4"), ("::ffff:1.2.3.4", b"\1\2\3\4"), ("::1", b"\0" * 15 + b"\1")],
)
def test_client_address_becomes_born_host(address: str, packed: bytes) -> None:
    assert produce.client_host(address, 5) == Host(packed, 5)
