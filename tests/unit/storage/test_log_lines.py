"""Lines that a store's damage repeats are bounded, and their number is logged."""

from __future__ import annotations

import json
import logging

import pytest
from pydantic import BaseModel

from mqstore.storage.log_lines import FIRST, WINDOW_S, bounded_json, bounded_log

NAME = "tests.log_lines"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    logger = bounded_log(NAME)
    for each in logger.filters[:]:
        logger.removeFilter(each)
    caplog.set_level(logging.INFO, NAME)
    return bounded_log(NAME)


def test_repeated_lines_are_left_out_and_counted(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in range(5_000):
        log.warning("offset %d: damaged", offset)
    log.warning("another text")

    lines = caplog.messages
    assert len(lines) == FIRST + 3
    assert lines[0] == "offset 0: damaged"
    assert lines[FIRST].endswith("(number 100 of its kind within a minute)")
    assert lines[FIRST + 1].startswith("offset 999: damaged (number 1000 ")
    assert lines[-1] == "another text"


def test_a_later_minute_begins_anew(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    def handle(at: float) -> None:
        record = log.makeRecord(NAME, logging.ERROR, __file__, 1, "damaged", (), None)
        record.created = at
        log.handle(record)

    for _ in range(FIRST + 5):
        handle(1_000.0)
    handle(1_000.0 + WINDOW_S)
    handle(0.0)  # the clock was set back

    assert len(caplog.messages) == FIRST + 2
    assert caplog.messages[-2:] == ["damaged"] * 2


def test_one_filter_however_often_a_logger_is_requested(log: logging.Logger) -> None:
    assert bounded_log(NAME).filters == log.filters
    assert len(log.filters) == 1


class Plan(BaseModel):
    actions: tuple[int, ...]
    start: int = 0


def test_a_value_is_logged_with_the_first_items_of_its_lists() -> None:
    assert json.loads(bounded_json(Plan(actions=(1, 2)))) == {"actions": [1, 2], "start": 0}
    found = json.loads(bounded_json(Plan(actions=tuple(range(100_000)))))
    assert found["actions"] == [*range(FIRST)]
    assert found["actionsListed"] == f"{FIRST} of 100000"
