"""Names of topics and groups that a broker allows, and that we do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.topic_names import (
    REFUSED_TOPICS,
    SYSTEM_TOPICS,
    check_group,
    check_new_topic,
    check_send_topic,
)
from tests.compat.referee import Referee

pytestmark = pytest.mark.referee

_PREFIXES = ("", "", "%RETRY%", "%DLQ%", "%RETRY%%DLQ%", "%retry%", "rmq_sys_", "%LMQ%", "RMQ_SYS_")
_PARTS = (
    "a",
    "Z",
    "9",
    "_",
    "-",
    "%",
    "|",
    "+",
    ".",
    " ",
    "\t",
    "@",
    "$",
    "/",
    "é",
    "中",
    "\u3000",
)
_LENGTHS = (1, 2, 7, 113, 114, 120, 121, 122, 127, 128, 248, 249, 250, 251, 255, 256)


def is_allowed(check: Callable[[str], None], name: str) -> bool:
    try:
        check(name)
    except StorageError:
        return False
    return True


@pytest.mark.slow
def test_the_names_that_a_broker_allows_are_allowed_and_no_others(referee: Referee) -> None:
    store_format = StoreFormat(referee.format)
    random = Random(37)
    names = [
        *("", *SYSTEM_TOPICS[store_format]),
        *(p + "".join(random.choices(_PARTS, k=random.randint(0, 4))) for p in _PREFIXES * 200),
        *(p + "a" * length for p in _PREFIXES for length in _LENGTHS),
    ]
    for name, theirs in zip(names, referee.judge(names), strict=True):
        is_topic = theirs["topic"]
        is_sent = is_topic and not theirs["isRefused"]
        assert is_allowed(lambda n: check_send_topic(n, store_format), name) == is_sent, name
        is_new = is_topic and not theirs["isSystem"]
        assert is_allowed(lambda n: check_new_topic(n, store_format), name) == is_new, name
        assert (name in REFUSED_TOPICS[store_format]) == theirs["isRefused"], name
        if theirs["group"] is not None:
            assert is_allowed(check_group, name) == theirs["group"], name
