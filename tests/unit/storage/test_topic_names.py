"""Names that clients may use, and names that may become paths."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import GroupNameError, PropertyError, TopicNameError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.topic_names import (
    REFUSED_TOPICS,
    RESERVED_PROPERTIES,
    SYSTEM_TOPICS,
    check_group,
    check_key,
    check_new_topic,
    check_send_topic,
    check_tag,
    check_topic,
    check_user_property,
    is_safe_path,
    returning_group,
)

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X


TIMER_NAMES = 9
"""Reserved in 4.9 by us: stores of both generations have the timer."""


def test_the_lists_have_the_lengths_of_rocketmqs() -> None:
    assert [len(REFUSED_TOPICS[version]) for version in (V4, V5)] == [6, 8]
    assert [len(SYSTEM_TOPICS[version]) for version in (V4, V5)] == [9, 12]
    assert [len(RESERVED_PROPERTIES[version]) for version in (V4, V5)] == [31 + TIMER_NAMES, 53]


@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("topic", ["a", "Topic_1-x", "%RETRY%group", "%DLQ%g", "a|b", "x" * 127])
def test_ordinary_topics_may_be_sent_to(topic: str, version: StoreFormat) -> None:
    check_send_topic(topic, version)
    check_new_topic(topic, version)


@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a.b", "characters"),
        ("a/b", "characters"),
        ("..", "characters"),
        ("a\0", "characters"),
        ("a\n", "characters"),
        ("主题", "characters"),
        ("x" * 128, "127"),
    ],
)
def test_other_topics_are_refused_with_why(topic: str, why: str, version: StoreFormat) -> None:
    with pytest.raises(TopicNameError, match=why):
        check_topic(topic, version)


def test_retry_topics_may_be_longer_in_5_x() -> None:
    topic = "%RETRY%" + "g" * 248
    check_topic(topic, V5)
    with pytest.raises(TopicNameError):
        check_topic(topic, V4)
    with pytest.raises(TopicNameError):
        check_topic(topic + "g", V5)


@pytest.mark.parametrize("version", [V4, V5])
def test_topics_of_the_store_are_not_sent_to(version: StoreFormat) -> None:
    for topic in REFUSED_TOPICS[version]:
        with pytest.raises(TopicNameError, match="written by the store only"):
            check_send_topic(topic, version)
    check_send_topic("RMQ_SYS_TRACE_TOPIC", version)


@pytest.mark.parametrize("topic", ["TBW102", "rmq_sys_anything", "SCHEDULE_TOPIC_XXXX"])
def test_system_topics_are_not_created(topic: str) -> None:
    with pytest.raises(TopicNameError, match="system topic"):
        check_new_topic(topic, V4)


def test_groups_have_their_own_length() -> None:
    check_group("g" * 120)
    with pytest.raises(GroupNameError, match="120"):
        check_group("g" * 121)
    with pytest.raises(GroupNameError):
        check_group("")


@pytest.mark.parametrize("name", ["TAGS", "UNIQ_KEY", "INNER_MULTI_QUEUE_OFFSET", "__CRC32#"])
def test_reserved_properties_are_refused(name: str) -> None:
    with pytest.raises(PropertyError, match="reserved"):
        check_user_property(name, "v", V4)


@pytest.mark.parametrize(("text", "why"), [("\x01", "0x01"), ("a\x02", "0x02"), ("\0", "NUL")])
def test_separators_and_nul_are_refused_in_names_values_and_keys(text: str, why: str) -> None:
    with pytest.raises(PropertyError, match=why):
        check_user_property("n" + text, "v", V4)
    with pytest.raises(PropertyError, match=why):
        check_user_property("n", text, V4)
    with pytest.raises(PropertyError, match=why):
        check_key(text)


@pytest.mark.parametrize(("key", "why"), [("", "empty"), ("a b", "space"), ("\ud800", "surrogate")])
def test_keys_that_would_not_be_found_again_are_refused(key: str, why: str) -> None:
    with pytest.raises(PropertyError, match=why):
        check_key(key)


@pytest.mark.parametrize("tag", ["a||b", "||", " a", "a ", "\ta"])
def test_tags_that_no_filter_can_select_are_refused(tag: str) -> None:
    with pytest.raises(PropertyError, match="filter"):
        check_tag(tag)


def test_a_tag_that_a_filter_can_select_passes() -> None:
    for tag in ("a", "a|b", "a b", "*"):
        check_tag(tag)


def test_an_ordinary_property_and_key_pass() -> None:
    check_user_property("colour", "grün 😀", V5)
    check_key("order-1|ü")
    with pytest.raises(PropertyError, match="empty"):
        check_user_property("", "v", V5)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("%RETRY%group-a", True),
        ("%RETRY%group-a+topic", True),
        ("topic+x", False),
        ("%LMQ%home/temp", False),
        ("%LMQ%home.temp+", True),
        ("%LMQ%\ufffd", False),
        ("%LMQ%" + "x" * 251, False),
        ("x" * 255, True),
        ("x" * 256, False),
        (".", False),
        ("", False),
        ("a\n", False),
    ],
)
def test_what_may_become_a_directory(name: str, safe: bool) -> None:
    assert is_safe_path(name) is safe


@given(st.text() | st.text().map("%LMQ%".__add__))
def test_a_safe_path_is_one_plain_component(name: str) -> None:
    if is_safe_path(name):
        assert os.path.basename(name) == name  # noqa: PTH119 - the rule itself
        assert name not in (".", "..")
        assert "\0" not in name
        assert len(os.fsencode(name)) <= 255


@pytest.mark.parametrize(
    ("topic", "group"),
    [("%RETRY%g", "g"), ("%DLQ%g", "g"), ("%RETRY%g+T", "g"), ("T", None), ("a%RETRY%g", None)],
)
def test_the_group_is_parsed_from_the_name_of_a_retry_or_dead_letter_topic(
    topic: str, group: str | None
) -> None:
    assert returning_group(topic) == group
