"""Which version of RocketMQ a long test runs with."""

from __future__ import annotations

import pytest

from tests.compat.referee import VERSIONS
from tests.long_runs import few_first


def mainly(version: str) -> pytest.MarkDecorator:
    """``make test-ci`` runs a long test with this version, ``make nightly`` with the others too."""
    versions = [version, *(each for each in VERSIONS if each != version)]
    return pytest.mark.parametrize(
        "referee", few_first(versions, others=pytest.mark.nightly), indirect=True
    )
