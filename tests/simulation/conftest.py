"""Stores here are damaged all the time: what they log about it would only slow the tests down."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logger = logging.getLogger("mqstore")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)
    logging.disable(logging.NOTSET)  # the command, when it is called here, silences everything
