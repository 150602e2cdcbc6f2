"""Bounds that the contract names and the engine enforces are the same."""

from __future__ import annotations

from mqstore.storage.filter import expression
from mqstore.storage.rebuild import index_rebuilds
from mqstore.storage.retention import pins
from mqstore.wire import limits


def test_bounds_are_those_of_the_engine() -> None:
    assert limits.EXPRESSION_LENGTH_MAX == expression.EXPRESSION_LENGTH_MAX
    assert limits.PIN_LEASE_MAX_S == pins.LEASE_MAX_S
    assert limits.REBUILD_LEASE_MAX_S == index_rebuilds.LEASE_MAX_S
