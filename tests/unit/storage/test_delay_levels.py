"""The delay levels."""

from __future__ import annotations

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.delay_levels import DelayLevels


def test_rocketmqs_levels_are_eighteen_up_to_two_hours() -> None:
    levels = DelayLevels(StoreConfig().message_delay_level)

    assert levels.max_level == 18
    assert levels.delivery_time(1, 5) == 1_005
    assert levels.delivery_time(18, 0) == levels.delivery_time(99, 0) == 7_200_000


def test_the_level_of_a_delay_is_the_shortest_that_is_as_long() -> None:
    levels = DelayLevels("10s 1s 5s")

    found = [levels.level_of_delay(each) for each in (0, 1_000, 1_001, 5_001, 10_001)]
    assert found == [2, 2, 3, 1, None]


@pytest.mark.parametrize("text", ["", "1", "s", "1s  2s", "1w", "-1s", "1.5s"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        DelayLevels(text)


@pytest.mark.parametrize(
    ("delay", "code"),
    [("1", 1_010), ("+2", 5_010), ("77", 5_010), ("0", None), ("-1", None)],
)
def test_the_queue_code_is_the_delivery_time(delay: str, code: int | None) -> None:
    assert DelayLevels("1s 5s").queue_code(delay, 10) == code


@pytest.mark.parametrize("delay", [None, "", "x", "1_0", " 1", "99999999999999"])
def test_a_delay_that_is_no_level_has_no_code(delay: str | None) -> None:
    assert DelayLevels("1s 5s").queue_code(delay, 10) is None
