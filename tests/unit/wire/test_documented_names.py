"""Patterns of names in the documents, beside the names that the engine accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.storage.errors import GroupNameError, TopicNameError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.topic_names import (
    check_group,
    check_new_topic,
    check_send_topic,
    is_safe_path,
)
from mqstore.wire.operation import GROUP_SCHEMA, NEW_TOPIC_SCHEMA, TOPIC_SCHEMA

PREFIXES = ("", "%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_")
PARTS = st.text("%|azAZ09_-+./\\ \n\0é", max_size=12) | st.text("a", max_size=255) | st.text()
NAMES = st.builds("{}{}{}{}".format, st.sampled_from(PREFIXES), PARTS, st.sampled_from("+_"), PARTS)
NAMES |= st.builds(str.__add__, st.sampled_from(PREFIXES), PARTS)


def is_documented(schema: Mapping[str, object], name: str) -> bool:
    """Whether a JSON schema allows a name: its ``$`` is the end, as ECMA-262 has it."""
    pattern = str(schema["pattern"]).removesuffix("$")
    return re.fullmatch(pattern, name) is not None and len(name) <= int(str(schema["maxLength"]))


@given(NAMES)
@example("%RETRY%g+T")
@example("%LMQ%home.temp\n")
@example("%RETRY%" + "g" * 248)
def test_each_topic_that_may_have_queues_may_be_named_by_a_read(name: str) -> None:
    if is_safe_path(name):
        assert is_documented(TOPIC_SCHEMA, name)


@given(NAMES, st.sampled_from(StoreFormat))
@example("%RETRY%" + "g" * 248, StoreFormat.V5_X)
def test_each_topic_that_a_request_may_write_is_allowed_by_the_documents(
    name: str, store_format: StoreFormat
) -> None:
    for check in (check_send_topic, check_new_topic):
        with suppress(TopicNameError):
            check(name, store_format)
            assert is_documented(NEW_TOPIC_SCHEMA, name)


@given(NAMES)
def test_each_group_that_a_request_may_name_is_allowed_by_the_documents(name: str) -> None:
    with suppress(GroupNameError):
        check_group(name)
        assert is_documented(GROUP_SCHEMA, name)


def test_names_that_no_request_may_write_are_not_in_that_pattern() -> None:
    for name in ("%RETRY%g+T", "%LMQ%home.temp", "a+b", ""):
        assert not is_documented(NEW_TOPIC_SCHEMA, name)
    assert not is_documented(TOPIC_SCHEMA, "a+b")
