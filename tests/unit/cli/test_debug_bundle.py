"""Redaction of a debug bundle: secret fields, tokens, and credentials in addresses."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.debug_bundle import REMOVED, SECRET_FIELDS, redacted, redactor

names = st.sampled_from(sorted(SECRET_FIELDS)) | st.sampled_from(["bodyBase64", "uniqKey", "topic"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("SECRET"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)


def without_secrets(value: Any) -> bool:
    if isinstance(value, dict):
        return all(
            (each in (REMOVED, None, False, 0) or not each)
            if name.lower() in SECRET_FIELDS
            else without_secrets(each)
            for name, each in value.items()
        )
    if isinstance(value, list):
        return all(map(without_secrets, value))
    return True


@given(plain)
def test_a_secret_field_has_no_value_at_any_depth(value: Any) -> None:
    assert without_secrets(redacted(value))


def test_other_fields_stay() -> None:
    value = {"topic": "orders", "lags": [{"group": "g", "lag": 3}]}
    assert redacted(value) == value


def test_tokens_and_credentials_are_removed_from_text() -> None:
    redact = redactor(["s3cret-token-0123456789"])
    text = json.dumps(
        {
            "why": "token s3cret-token-0123456789 was refused",
            "url": "https://user:pass@mq.example.com:8081/v1",
            "header": "authorization: Bearer abc.def-123",
        }
    )
    found = redact(text)
    assert not [each for each in ("s3cret", "pass", "abc.def") if each in found]
    assert "mq.example.com:8081/v1" in found
