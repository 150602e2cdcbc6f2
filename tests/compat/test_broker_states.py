"""Each state of the inventory, left by a real broker: read and handed back, or refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.storage import inventory
from mqstore.storage.inventory import Subject, Verdict
from tests.compat import ours
from tests.compat.broker_states import (
    LIVES,
    REFUSED,
    TOPIC,
    UNWRITTEN,
    Recipe,
    expected,
    left_by_others,
    states_of,
    with_verdict,
    write,
)
from tests.compat.lives import KINDS, KINDS_OF_4, LEVELS, NOT_OURS, Account, Group, Life
from tests.compat.referee import Referee
from tests.services.service_processes import start, without_progress
from tests.unit.untouched import entries_of

pytestmark = [pytest.mark.referee]

OF_RECORDS = (Subject.RECORD_FLAG, Subject.PROPERTY)
"""Subjects that are looked for in no opening."""
UNCHANGED = ("left unchanged", "kept")
"""How actions begin for what mqstore does not write."""


def of_recipes(*recipes: Recipe, quick: frozenset[str]) -> pytest.MarkDecorator:
    """``make test-ci`` runs those that ``quick`` names, ``make nightly`` all."""
    return pytest.mark.parametrize(
        "referee, recipe",
        [
            pytest.param(
                each.version,
                each,
                id=str(each),
                marks=pytest.mark.slow if each.name in quick else pytest.mark.nightly,
            )
            for each in recipes
        ],
        indirect=["referee"],
    )


def contents_of(store: Path) -> dict[str, tuple[int, str]]:
    """Return mode and content of each file and directory."""
    return {name: (entry.mode, entry.content) for name, entry in entries_of(store).items()}


@of_recipes(*REFUSED, quick=frozenset({"other-stores", "rocksdb", "dledger"}))
def test_a_store_with_refused_states_is_not_changed(
    referee: Referee, recipe: Recipe, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write(referee, recipe, store)
    found = states_of(store)
    assert found - with_verdict(Verdict.READ) == recipe.leaves
    assert recipe.reads <= found
    before = contents_of(store)

    process = start(store)
    _, errors = process.communicate(timeout=60)

    assert process.wait() == 2, errors
    (line,) = without_progress(errors).splitlines()
    for name in recipe.leaves & with_verdict(Verdict.REFUSED):
        assert f"({name})" in line
    _, summary = ours.verify(store, recipe.config)
    assert summary["findings"]
    (info,) = ours.run_command("store", "info", str(store), "-o", "json").lines
    assert len(info["problems"]) >= len(recipe.leaves & with_verdict(Verdict.REFUSED))
    assert contents_of(store) == before


@of_recipes(*LIVES, quick=frozenset({"ordinary", "light-queues"}))
def test_a_store_with_other_states_is_used_and_handed_back(
    referee: Referee, recipe: Recipe, tmp_path: Path
) -> None:
    life, light = life_of(referee, recipe, tmp_path)
    account, is_5 = life.account, referee.format == "5.x"
    with life.at_broker(referee) as broker:
        recipe.make(broker.broker)
        broker.send(6)
        broker.send(4, batch=True, queue=1)
        broker.send(2, level=4)
        if is_5:
            broker.send(2, delayMs=3_000)
        if light is not None:
            broker.fan_out(4, light)
            broker.consume_light(light, part=True)
        broker.transact(1, 1, 1, visible=10)
        for group in account.groups.values():
            broker.consume(group, part=True)
    if "abort" in recipe.reads:
        with life.at_broker(referee, killed=True):
            pass
    found = states_of(life.store)
    assert not {name for name in found if name.startswith("unknown")}
    assert found - with_verdict(Verdict.READ) == recipe.leaves
    assert recipe.reads <= found
    before = named_files(life.store)
    with life.at_ours() as ours_:
        ours_.send(4)
        ours_.send(2, delay_level=4)
        if is_5:
            ours_.send(2, delay_s=3)
        ours_.transact(1, 1, 1)
        for group in account.groups.values():
            ours_.consume(group, part=True)
    assert named_files(life.store) == before
    (info,) = ours.run_command("store", "info", str(life.store), "-o", "json").lines
    named = recipe.leaves - {each.name for each in inventory.ALL if each.subject in OF_RECORDS}
    assert {
        name for name in named if not any(f"({name})" in line for line in info["states"])
    } == set()

    life.config = {name: life.config[name] for name in life.config.keys() - NOT_OURS}
    with life.at_broker(referee) as broker:
        broker.send(2)
        for group in account.groups.values():
            broker.consume(group, part=False)
        if light is not None:
            broker.consume_light(light, part=False)
    if recipe.name == "ordinary":
        found |= states_of(life.store)
        assert expected(recipe.version) - UNWRITTEN.keys() - left_by_others(recipe.version) <= found
    assert [group.name for group in account.groups.values() if account.due(group)] == []
    assert light is None or [each for each in light.groups.values() if light.due(each)] == []


def life_of(referee: Referee, recipe: Recipe, directory: Path) -> tuple[Life, Account | None]:
    """A life with a group of each kind, and the account of a light queue where there is one."""
    kinds = KINDS if referee.format == "5.x" else KINDS_OF_4
    account = Account(TOPIC, groups={f"by-{kind}": Group(f"by-{kind}", kind) for kind in kinds})
    config = {**recipe.config, "messageDelayLevel": LEVELS}
    if referee.format == "5.x":
        config["transactionOpBatchInterval"] = 100  # else an end of the broker waits for it
    light = None
    if "lmq-offsets" in recipe.reads:
        light = Account("%LMQ%device", groups={"%LMQ%r": Group("%LMQ%r", "pull")})
    own = {"store_format": referee.format}
    return Life(directory / "store", config, account, random.Random(1), own), light


def named_files(store: Path) -> dict[str, str]:
    """Contents of the files that mqstore serves a store without, or leaves unchanged."""
    states = [
        each
        for each in inventory.ALL
        if each.subject is Subject.FILE
        and (each.verdict is Verdict.NAMED or each.action.startswith(UNCHANGED))
    ]
    return {
        name: content
        for name, (_, content) in contents_of(store).items()
        for path in (name, "/".join(name.split("/")[:2]), name.split("/")[0])
        if any(state.matches(path) for state in states)
    }


def test_each_state_is_left_by_a_broker_or_has_a_reason() -> None:
    states = {each.name for each in inventory.ALL}
    others = {name for each in (*LIVES, *REFUSED) for name in each.leaves | each.reads}
    assert UNWRITTEN.keys() | others <= states
    assert not UNWRITTEN.keys() & others
    not_read = states - with_verdict(Verdict.READ)
    assert not_read - UNWRITTEN.keys() == others & not_read
