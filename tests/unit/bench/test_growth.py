"""The growth table: its exponents, and what it fills stores with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.message_store import MessageStore
from mqstore.storage.shared_groups import SharedGroups
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.bench import growth
from tests.bench.growth import CONFIG, KINDS, SHARD, STEPS, Row, at_rest


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
def test_fixed_costs_do_not_hide_growth(exponent: float) -> None:
    values = [70 + 10 * step**exponent for step in STEPS]
    assert Row("topics", "query", "memory", values).exponent == pytest.approx(exponent)


def test_growth_within_the_noise_is_constant() -> None:
    assert Row("topics", "query", "start", [0.2, 0.15, 0.25]).exponent == 0
    assert Row("topics", "query", "start", [0.2, 0.2, 0.4]).exponent == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("last", "calls"), [(100, 3), (10_000, 9)])
def test_a_kind_above_linear_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int, calls: int
) -> None:
    sizes: list[int] = []

    def measured(kind: growth.Kind, count: int, directory: Path, rounds: int) -> object:
        sizes.append(count)
        return {
            "engine": {"save": 10.0 * (last if count == kind.unit * 100 else count / kind.unit)}
        }

    monkeypatch.setattr(growth, "_at", measured)
    (row,) = growth.measure("topics", tmp_path, 1)
    assert len(sizes) == calls
    assert (row.exponent > growth.WORST) == (last > 100)


def test_a_store_is_filled_with_as_many_as_are_meant(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG, production_seams()) as store:
        KINDS["queues"].fill(store, 3)
        KINDS["topics"].fill(store, 5)
        KINDS["groups"].fill(store, 7)
        assert len(store.queues.all()) == 3
        assert len(store.topics()) == 6
        assert len(store.groups.all()) == 7
        before = sum(queue.max_index for queue in store.queues.all())
        KINDS["messages"].fill(store, 100)
        assert sum(queue.max_index for queue in store.queues.all()) == before + 100
        KINDS["segments"].fill(store, 4)
        assert len(store.log.files.files) >= 4


def test_each_shared_group_has_a_state_and_turns_over_them_are_measured(tmp_path: Path) -> None:
    kind = KINDS["shared-groups"]
    with MessageStore.open(tmp_path / "store", CONFIG, production_seams()) as store:
        kind.fill(store, 6)
        groups = SharedGroups(store, production_seams(), SHARD)
        assert [each.done for each in groups.pending().values()] == [1] * 6
        assert kind.engine is not None
        assert kind.engine(store).keys() == {"save", "count"}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.spoil])
def test_damaged_and_aged_stores_are_spoiled_and_each_work_over_them_ends(
    tmp_path: Path, name: str
) -> None:
    kind, root = KINDS[name], tmp_path / "store"
    with MessageStore.open(root, kind.config, production_seams()) as store:
        kind.fill(store, 2_500 if name == "expired-messages" else 40)
    assert kind.spoil is not None
    kind.spoil(root, 40)

    assert list(Verification(root, kind.config, production_seams()).findings())
    costs = at_rest(kind, root)["engine"]
    assert set(costs) == set(kind.works)
