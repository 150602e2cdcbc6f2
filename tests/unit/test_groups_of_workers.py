"""Tests of one ``xdist_group`` run in one worker."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("one-worker")
def test_the_id_of_a_test_in_a_worker_ends_with_its_group(request: pytest.FixtureRequest) -> None:
    is_in_worker = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@one-worker") == is_in_worker


@pytest.fixture(scope="module")
def shared() -> str:
    return "made once"


def test_tests_that_share_a_fixture_of_their_module_are_of_one_group(
    request: pytest.FixtureRequest, shared: str
) -> None:
    is_in_worker = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@test_groups_of_workers") == is_in_worker
