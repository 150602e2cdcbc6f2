"""How much of a long test runs in which tier: docs/testing.md says what each tier proves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def examples(count: int) -> int:
    """``count`` in ``make nightly`` (MQSTORE_EXPLORE), an eighth of it in the other tiers."""
    return count if "MQSTORE_EXPLORE" in os.environ else -(-count // 8)


def nightly_examples(count: int) -> int:
    """``count`` in ``make nightly`` (MQSTORE_EXPLORE), a hundredth of it in ``make test-ci``."""
    return count if "MQSTORE_EXPLORE" in os.environ else -(-count // 100)


def sampled_step(step: int) -> int:
    """Distance between the places that a test examines: ``step``, but 1 in ``make nightly``
    (MQSTORE_EXPLORE), which examines each place."""
    return 1 if "MQSTORE_EXPLORE" in os.environ else step


def few_first(
    values: Iterable[Any], count: int = 1, others: pytest.MarkDecorator = pytest.mark.slow
) -> list[Any]:
    """Return values for ``parametrize``: ``make test`` takes the first ``count``, ``make test-ci``
    the others, or ``make nightly`` where they are marked so.

    In a module that is itself marked ``slow``, ``make test-ci`` takes the first ones too.
    """
    found = list(values)
    return found[:count] + [pytest.param(each, marks=others) for each in found[count:]]
