"""``mqstore check`` warns of groups that it could not look up, or not wholly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqstore.cli.check import Limits, groups_rows
from mqstore.client import Client, GroupLags
from mqstore.wire.examples.lags import LAGS


def row(limits: Limits, *ages: int | None, missing: tuple[int, ...] = ()) -> dict[str, Any]:
    """The row of the groups, where one group has a topic for each age."""
    group = LAGS["groups"][0]
    topics = [{**group["topics"][0], "lag": 3, "lagMs": age} for age in ages]
    shards = {"asked": [0, 1], "missing": missing, "why": {str(each): "down" for each in missing}}
    found = {**LAGS, "groups": [{**group, "topics": topics}], "next": None, "shards": shards}
    page = GroupLags.model_validate(found)
    client = cast(Client, SimpleNamespace(lags=lambda **_: page))
    return next(groups_rows(client, limits))


@pytest.mark.parametrize(
    ("age", "ages", "missing", "state", "detail"),
    [
        (1_000, (5, 10), (), "ok", "1 groups within their limits"),
        (None, (5, None), (), "ok", "1 groups, without a limit"),
        (1_000, (5, 2_000), (), "warning", "2s"),
        (1_000, (5, None), (), "warning", "messages, ?"),
        (1_000, (5,), (1,), "warning", "shard 1 is not included"),
    ],
)
def test_a_group_is_fine_only_if_that_was_looked_up(
    age: int | None,
    ages: tuple[int | None, ...],
    missing: tuple[int, ...],
    state: str,
    detail: str,
) -> None:
    found = row(Limits(None, age, 85, coordinator=False), *ages, missing=missing)
    assert found["state"] == state
    assert detail in found["detail"]
