"""The kernel's JSON of any record is that of the model."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.message_bodies import BodyForm
from mqstore.service.message_views import message_form
from mqstore.storage.codec import record
from mqstore.storage.errors import RecordError
from mqstore.storage.reads import messages_json
from mqstore.wire.messages import BodyShape
from tests.unit.service import message_model
from tests.unit.service.stored import stored
from tests.unit.storage.record_examples import encoded_records

SHARD = 3
FORMS = [
    BodyForm(),
    BodyForm(max_bytes=3),
    *map(BodyForm, BodyShape),
    BodyForm(BodyShape.NONE, 3),
]


def check(found: record.Record, form: BodyForm) -> bytes:
    """Return the kernel's JSON, which must be that of the model."""
    encoded = messages_json(message_form(SHARD, form), [found])
    assert encoded == msgspec.json.encode(message_model.message(found, SHARD, form))
    return encoded


@given(encoded_records(), st.sampled_from(FORMS))
def test_any_record_is_shown_as_by_the_model(raw: bytes, form: BodyForm) -> None:
    for decode in (record.decode, record.decode_self_checked):
        try:
            check(decode(raw, 0, len(raw), physical_offset=0), form)
        except RecordError:
            return


TEXT = st.text(max_size=60).map(lambda text: text.encode(errors="replace"))


@given(st.one_of(TEXT, st.binary(max_size=60)), st.integers(0, 3))
def test_bodies_are_shown_as_text_or_base64(body: bytes, repeat: int) -> None:
    check(stored(body * repeat), BodyForm())


@pytest.mark.parametrize("size", range(1, 8))
def test_base64_has_its_padding(size: int) -> None:
    body = b"\xff" * size
    assert base64.b64encode(body) in check(stored(body), BodyForm())


@pytest.mark.parametrize(
    "properties",
    [
        b"a\x01b\x02a\x01c",
        b"a\x01\xff",
        b"\xff\x02a\x01b",
        b"TAGS\x01t\x02KEYS\x01a  b\x02UNIQ_KEY\x01u\x02a\x01\xed\xa0\x80",
        b"\x02".join(b"n%d\x01v" % number for number in range(65)),
    ],
    ids=["repeated", "value", "name", "keys", "many"],
)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_odd_properties_are_shown_as_java_decodes_them(properties: bytes, form: BodyForm) -> None:
    check(stored(raw=properties), form)


def test_a_topic_is_shown_as_java_decodes_it() -> None:
    raw = bytearray(stored().raw)
    at = raw.index(b"orders")
    for name in (b"ord\xc3\xa9s"[:6], b"or\xffers", b'or"\\rs'):
        raw[at : at + 6] = name
        check(record.decode(raw, 0, len(raw), physical_offset=0), BodyForm())


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_compressed_body_says_so(form: BodyForm) -> None:
    assert b'"compression":"ZLIB"' in check(stored(sys_flag=0x1), form)


def test_a_record_without_its_body_has_no_json() -> None:
    raw = stored(b"body").raw
    found = record.decode(raw, 0, len(raw), physical_offset=0, with_body=False)
    with pytest.raises(ValueError, match="body"):
        messages_json(message_form(SHARD, BodyForm()), [found])


def test_text_is_escaped_as_msgspec_escapes_it() -> None:
    every = "".join(map(chr, [*range(0x100), 0x2028, 0xFFFD, 0x1F600]))
    for text in (every, every + "x" * 40, "x" * 40 + every):
        check(stored(text.encode()), BodyForm())
