"""Registered producers: leases, and rest for those that do not answer."""

from __future__ import annotations

import pytest

from mqstore.service.problems import OVERLOADED, Problem
from mqstore.writer.transactions import producers
from mqstore.writer.transactions.producers import Producer, Producers, Target

SECRET = "s" * 32


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.producers = Producers(lambda: self.now)

    def register(self, name: str, url: str = "https://a", lease_s: float = 90) -> Producer:
        target = Target(url, "1.2.3.4", "a")
        return self.producers.register("billing", name, target, SECRET, lease_s)

    def able(self) -> list[str]:
        return [each.name for each in self.producers.able("billing")]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lease_that_is_not_renewed_ends(bench: Bench) -> None:
    bench.register("one")
    bench.now = 89
    bench.register("two")
    bench.now = 90
    assert bench.able() == ["two"]
    assert bench.producers.find("billing", "one") is None
    bench.now = 179
    assert list(bench.producers) == []
    assert bench.producers.able_groups() == []


def test_one_that_fails_rests_for_longer_each_time_and_then_is_called_again(bench: Bench) -> None:
    one = bench.register("one", lease_s=3_600)
    rests = []
    for _ in range(8):
        bench.producers.failed(one, "refused")
        assert bench.able() == []
        rest_s = bench.producers.rest_s()
        assert rest_s is not None
        assert rest_s == bench.producers.rest_s("billing")
        assert bench.producers.rest_s("another") is None
        bench.now += rest_s - 0.5
        assert bench.able() == []
        bench.now += 0.5
        assert bench.able() == ["one"]
        rests.append(rest_s)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert bench.producers.rest_s("billing") is None
    bench.producers.answered(one)
    assert (one.failures, one.trouble) == (0, None)


def test_a_renewal_ends_no_rest_but_another_address_does(bench: Bench) -> None:
    bench.producers.failed(bench.register("one"), "refused")
    assert bench.register("one").trouble == "refused"
    assert bench.able() == []
    bench.register("one", "https://b")
    assert bench.able() == ["one"]


def test_a_failure_counts_for_a_registration_that_was_renewed_meanwhile(bench: Bench) -> None:
    called = bench.register("one")
    bench.register("one")
    bench.producers.failed(called, "refused")
    assert bench.able() == []


def test_the_one_that_answered_last_comes_last(bench: Bench) -> None:
    one, _ = bench.register("one"), bench.register("two")
    assert bench.able() == ["one", "two"]
    bench.producers.answered(one)
    assert bench.able() == ["two", "one"]


def test_a_removed_producer_is_not_called(bench: Bench) -> None:
    one = bench.register("one")
    assert bench.producers.remove("billing", "one")
    assert not bench.producers.remove("billing", "one")
    bench.producers.answered(one)
    assert bench.able() == []


def test_a_view_has_no_secret_and_a_coordinator_gets_it(bench: Bench) -> None:
    one = bench.register("one")
    assert SECRET not in bench.producers.view(one).model_dump_json()
    assert one.as_callable().secret == SECRET


def test_there_is_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "GROUP_MAX", 1)
    bench.register("one")
    bench.register("one")
    with pytest.raises(Problem) as refused:
        bench.register("two")
    assert refused.value.kind is OVERLOADED
