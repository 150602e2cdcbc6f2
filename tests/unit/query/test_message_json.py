"""The kernel's JSON of a message is that of the general way, or there is none."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import message_views
from mqstore.service.message_bodies import BodyForm, BodyShape
from mqstore.storage._kernel import message_json
from mqstore.storage.codec import record
from mqstore.storage.errors import RecordError
from tests.unit.service.stored import stored
from tests.unit.storage import kernel_model as model
from tests.unit.storage.record_examples import TIME, encoded_records, messages, plain_messages

SHARD = 3
FORMS = [BodyForm(), BodyForm(BodyShape.NONE), BodyForm(BodyShape.NONE, 3)]


def check(found: record.Record, form: BodyForm) -> bytes | None:
    """Return the kernel's JSON, which must be that of the general way if there is one."""
    kernel_form = message_views.kernel_form(SHARD, form)
    assert kernel_form is not None
    encoded = message_json(kernel_form, found)
    assert encoded in (None, msgspec.json.encode(message_views.message(found, SHARD, form)))
    return encoded


@given(encoded_records(), st.sampled_from(FORMS))
def test_any_record_is_shown_alike_or_left_to_the_general_way(raw: bytes, form: BodyForm) -> None:
    try:
        found = record.decode(raw, 0, len(raw), physical_offset=0)
    except RecordError:
        return
    check(found, form)


TEXT = st.text(max_size=60).map(lambda text: text.encode(errors="replace"))


@given(st.one_of(TEXT, st.binary(max_size=60)), st.integers(0, 3))
def test_bodies_are_shown_as_text_or_base64(body: bytes, repeat: int) -> None:
    assert check(stored(body * repeat), BodyForm()) is not None


@given(messages(properties=st.just(b"")), plain_messages())
def test_plain_records_are_encoded_by_the_kernel(
    odd: record.Message, plain: record.Message
) -> None:
    plain.topic = "orders"
    plain.flag, plain.reconsume_times = odd.flag, odd.reconsume_times
    plain.born_timestamp_ms = odd.born_timestamp_ms
    plain.prepared_transaction_offset = odd.prepared_transaction_offset
    raw = model.encode(plain, 1, 5, 0, TIME)
    found = record.decode(raw, 0, len(raw), physical_offset=0)
    names = [each.partition(b"\1")[0] for each in plain.properties.split(b"\2")]
    assert (check(found, BodyForm()) is None) == (len(set(names)) < len(names))


@pytest.mark.parametrize("size", range(1, 8))
def test_base64_has_its_padding(size: int) -> None:
    body = b"\xff" * size
    assert base64.b64encode(body) in (check(stored(body), BodyForm()) or b"")


@pytest.mark.parametrize(
    "properties",
    [
        b"a\x01b\x02a\x01c",
        b"a\x01\xff",
        b"\xff\x02a\x01b",
        b"\x02".join(b"n%d\x01v" % number for number in range(65)),
    ],
    ids=["repeated", "value", "name", "many"],
)
def test_odd_properties_are_left_to_the_general_way(properties: bytes) -> None:
    assert check(stored(raw=properties), BodyForm()) is None


def test_compressed_bodies_are_left_to_the_general_way() -> None:
    assert check(stored(sys_flag=0x1), BodyForm()) is None


@pytest.mark.parametrize(
    "form",
    [
        BodyForm(BodyShape.TEXT),
        BodyForm(BodyShape.JSON),
        BodyForm(BodyShape.BASE64),
        BodyForm(max_bytes=9),
    ],
)
def test_other_forms_of_bodies_have_no_kernel_form(form: BodyForm) -> None:
    assert message_views.kernel_form(SHARD, form) is None


def test_text_is_escaped_as_by_the_general_way() -> None:
    every = "".join(map(chr, [*range(0x100), 0x2028, 0xFFFD, 0x1F600]))
    for text in (every, every + "x" * 40, "x" * 40 + every):
        assert check(stored(text.encode()), BodyForm()) is not None
