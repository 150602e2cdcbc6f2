"""When a shard takes part: once all that answer know of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Set
from pathlib import Path

import pytest

from mqstore.service.joining import Joining
from mqstore.service.membership import Membership


class Others:
    """The list of each service by its address; a service without one does not reply."""

    def __init__(self, path: Path, own: int) -> None:
        self.path = path
        self.list(0, 1, 2)
        self.known: dict[str, Set[int]] = {}
        self.fetched: list[str] = []
        self.members = Membership(path, own)
        self.joining = Joining(self.members, self._known_at)

    def list(self, *numbers: int) -> None:
        entries = [
            {
                "shard": number,
                "storeHost": f"10.9.0.{number}:10911",
                "writerUrl": f"http://w{number}:1",
                "queryUrl": f"http://q{number}:1",
            }
            for number in numbers
        ]
        staged = self.path.with_suffix(".new")
        staged.write_text(json.dumps({"shards": entries}))
        staged.rename(self.path)

    def look(self) -> str | None:
        self.members.reload_if_changed()
        self.fetched.clear()
        asyncio.run(self.joining.check())
        assert self.joining.joined.is_set() == (self.joining.reason is None)
        return self.joining.reason

    async def _known_at(self, url: str) -> Set[int] | None:
        self.fetched.append(url)
        return self.known.get(url)


@pytest.fixture
def others(tmp_path: Path) -> Others:
    return Others(tmp_path / "shards.json", 2)


def test_a_shard_alone_has_joined(tmp_path: Path) -> None:
    async def no_reply(url: str) -> Set[int] | None:
        raise AssertionError(url)

    joining = Joining(Membership(None, 3), no_reply)
    assert joining.joined.is_set() and joining.reason is None


def test_nothing_is_decided_before_the_lists_of_the_others_are_fetched(others: Others) -> None:
    assert others.joining.reason is not None


SERVICES = ["http://w0:1", "http://q0:1", "http://w1:1", "http://q1:1"]


@pytest.mark.parametrize("behind", SERVICES)
def test_every_service_that_answers_must_know_of_a_shard(others: Others, behind: str) -> None:
    others.known = {url: {0, 1} if url == behind else {2} for url in SERVICES}
    assert others.look() == f"shard 2 is not in the lists of these shards yet: {behind[8]}"
    others.known[behind] = {0, 1, 2}
    assert others.look() is None
    assert sorted(others.fetched) == sorted(others.known)


def test_a_service_without_a_reply_is_not_waited_for(others: Others) -> None:
    assert others.look() is None


def test_it_is_decided_once_whatever_others_forget(others: Others) -> None:
    assert others.look() is None
    others.known = {"http://w0:1": {0}}
    others.list(0, 1, 2, 3)
    assert others.look() is None
    assert not others.fetched


def test_a_shard_that_is_gone_from_its_list_takes_no_part_until_all_know_of_it_again(
    others: Others,
) -> None:
    assert others.look() is None
    others.list(0, 1)
    assert others.look() == "shard 2 is not in the list of shards"
    others.list(0, 1, 2)
    others.known = {"http://q1:1": {0, 1}}
    assert others.look() == "shard 2 is not in the lists of these shards yet: 1"
    others.known = {"http://q1:1": {0, 1, 2}}
    assert others.look() is None
