"""Stores here are damaged all the time: what they log about it would only slow the tests down."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.compat.referee import VERSIONS, Referee, missing


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logger = logging.getLogger("mqstore")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)
    logging.disable(logging.NOTSET)  # the command, when it is called here, silences everything


@pytest.fixture(scope="session", params=VERSIONS)
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    """Real RocketMQ, as for tests/compat."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    referee = Referee(request.param)
    yield referee
    referee.close()
