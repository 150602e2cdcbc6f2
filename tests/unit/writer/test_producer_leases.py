"""Registered producers: leases, and rest for those that do not answer."""

from __future__ import annotations

import pytest

from mqstore.service.problems import CLIENT_OVER_SHARE, OVERLOADED, PRODUCER_TAKEN, Problem
from mqstore.writer.transactions import producers
from mqstore.writer.transactions.producers import Producer, Producers, Target

SECRET = "s" * 32


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        """Number of times that the clock was read."""
        self.producers = Producers(self.clock)

    def clock(self) -> float:
        self.looks += 1
        return self.now

    def register(
        self,
        name: str,
        url: str = "https://a",
        lease_s: float = 90,
        *,
        group: str = "billing",
        secret: str = SECRET,
    ) -> Producer:
        target = Target(url, "1.2.3.4", "a")
        return self.producers.register(group, name, target, secret, lease_s)

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
    assert bench.producers.able_groups(["billing"]) == []


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


def test_one_client_takes_its_share_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 10)
    known = Producers(lambda: 0.0, client_share=40)

    def register(name: str, client: str | None, address: str = "1.2.3.4") -> Producer:
        target = Target(f"https://{name}", address, "a")
        return known.register("billing", name, target, SECRET, 90, client=client)

    for number in range(4):
        register(f"a{number}", "10.0.0.1")
    with pytest.raises(
        Problem, match=r"10\.0\.0\.1 has registered its share of 4 producers"
    ) as refused:
        register("a4", "10.0.0.1")
    assert refused.value.kind is CLIENT_OVER_SHARE
    register("a3", "10.0.0.1")
    register("a3", "10.0.0.1", "1.2.3.5")
    for number in range(4):
        register(f"b{number}", None)
    with pytest.raises(Problem):
        register("b4", None)
    known.remove("billing", "a0")
    register("a4", "10.0.0.1")
    assert len(list(known)) == 8


def test_a_registration_belongs_to_the_application_that_knows_its_secret(bench: Bench) -> None:
    one = bench.register("one")
    with pytest.raises(Problem) as refused:
        bench.register("one", "https://b", secret="t" * 32)
    assert refused.value.kind is PRODUCER_TAKEN
    assert SECRET not in refused.value.detail
    with pytest.raises(Problem):
        bench.producers.remove("billing", "one", "t" * 32)
    assert [*bench.producers] == [one]

    bench.now = 90  # its lease is over
    assert bench.register("one", secret="t" * 32).secret == "t" * 32
    assert bench.producers.remove("billing", "one", "t" * 32)
    bench.register("one")
    assert bench.producers.remove("billing", "one")  # an administrator


def test_a_look_costs_the_same_however_many_groups_are_registered(bench: Bench) -> None:
    count = 2_500
    for number in range(count):
        bench.now += 0.001
        bench.register("one", group=f"g{number}")
        bench.producers.able_groups(["g0"])
        bench.producers.rest_s()
    assert bench.looks < 10 * count

    bench.now = 91
    bench.looks = 0
    for number in range(count):
        bench.now += 0.001
        assert bench.producers.find(f"g{number}", "one") is None
    assert bench.looks < 10 * count


def test_renewals_and_failures_leave_no_times_behind(bench: Bench) -> None:
    for _ in range(20):
        for number in range(100):
            bench.now += 0.001
            one = bench.register(f"p{number}", lease_s=3_600)
            bench.producers.failed(one, "refused")
            bench.producers.answered(one)
        for each in [*bench.producers]:
            bench.producers.remove("billing", each.name)
    kept = [len(each._heap) for each in (bench.producers._lapses, bench.producers._rests)]
    assert max(kept) <= producers.OUTDATED_MIN
