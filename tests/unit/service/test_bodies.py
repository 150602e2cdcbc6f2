from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.query import views
from mqstore.query.bodies import BodyForm, BodyShape, InflateBounds
from tests.unit.service.stored import stored

BOUNDS = InflateBounds(10_000, 1_000)


def _shown(
    body: bytes,
    shape: BodyShape = BodyShape.AUTO,
    max_bytes: int | None = None,
    inflate: InflateBounds | None = None,
    sys_flag: int = 0,
) -> dict[str, Any]:
    form = BodyForm(shape, max_bytes, inflate)
    view = views.message(stored(body, sys_flag=sys_flag), 0, form)
    shown: dict[str, Any] = json.loads(msgspec.json.encode(view))
    return {name: value for name, value in shown.items() if name in _BODY_FIELDS}


_BODY_FIELDS = {
    "body",
    "bodyBase64",
    "bodyJson",
    "bodySize",
    "bodyTruncated",
    "bodyProblem",
    "compression",
    "inflatedSize",
}


def test_body_is_text_where_it_is_and_else_base64() -> None:
    assert _shown("é".encode()) == {"bodySize": 2, "body": "é"}
    assert _shown(b"\xff\0") == {"bodySize": 2, "bodyBase64": "/wA="}


def test_body_in_the_shape_that_was_asked_for() -> None:
    assert _shown(b"\xff!", BodyShape.TEXT)["body"] == "\ufffd!"
    assert _shown(b"hi", BodyShape.BASE64) == {"bodySize": 2, "bodyBase64": "aGk="}
    assert _shown(b"hi", BodyShape.NONE) == {"bodySize": 2}
    big = b'{"a": 12345678901234567890123, "b": [1.10, null]}'
    assert _shown(big, BodyShape.JSON) == {"bodySize": 49, "bodyJson": json.loads(big)}


@pytest.mark.parametrize("body", [b"{", b"", b"[" * 100_000, b'"\xff"', b"nan", b"1 2"])
def test_body_that_is_no_json_says_so_and_is_shown(body: bytes) -> None:
    shown = _shown(body, BodyShape.JSON)
    assert "it is no JSON" in shown["bodyProblem"]
    assert "bodyJson" not in shown
    assert ("body" in shown) != ("bodyBase64" in shown)


def test_long_body_is_cut_and_says_so() -> None:
    assert _shown(b"x" * 10, max_bytes=4) == {"bodySize": 10, "body": "xxxx", "bodyTruncated": True}
    assert _shown(b"x" * 4, max_bytes=4) == {"bodySize": 4, "body": "xxxx"}
    assert "bodyProblem" in _shown(b"[1, 2, 3]", BodyShape.JSON, max_bytes=3)


@given(st.text(min_size=1, max_size=20), st.integers(0, 30))
def test_text_is_cut_between_characters(text: str, most: int) -> None:
    body = text.encode()
    shown = _shown(body, max_bytes=most)
    assert text.startswith(shown["body"])
    assert len(shown["body"].encode()) > min(most, len(body)) - 4


def test_binary_that_is_cut_stays_base64() -> None:
    shown = _shown(b"\xff" * 10, max_bytes=3)
    assert base64.b64decode(shown["bodyBase64"]) == b"\xff" * 3


def test_compressed_body_is_labelled_and_inflated_on_request_only() -> None:
    packed = zlib.compress(b"hello" * 10)
    stored_form = _shown(packed, sys_flag=1)
    assert stored_form["compression"] == "ZLIB"
    assert base64.b64decode(stored_form["bodyBase64"]) == packed
    assert _shown(packed, inflate=BOUNDS, sys_flag=1) == {
        "bodySize": len(packed),
        "body": "hello" * 10,
        "compression": "ZLIB",
        "inflatedSize": 50,
    }
    assert _shown(b"plain", inflate=BOUNDS) == {"bodySize": 5, "body": "plain"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (zlib.compress(bytes(10_001)), "longer than 10000"),
        (zlib.compress(bytes(5_000)), f"longer than {100 * len(zlib.compress(bytes(5_000)))}"),
        (b"plain", "no ZLIB data"),
        (zlib.compress(b"x" * 50)[:-1], "cut short"),
    ],
)
def test_body_that_cannot_be_inflated_is_shown_as_stored_with_the_reason(
    body: bytes, why: str
) -> None:
    bounds = InflateBounds(10_000, 100 if "10000" not in why else 10_000)
    shown = _shown(body, BodyShape.BASE64, inflate=bounds, sys_flag=1)
    assert why in shown["bodyProblem"]
    assert base64.b64decode(shown["bodyBase64"]) == body
