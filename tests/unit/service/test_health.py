from __future__ import annotations

from mqstore.service.health import STALL_S, Health


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_start_that_moves_on_is_live_however_long_it_takes() -> None:
    clock, seen = Clock(), [0]
    health = Health(clock)
    health.moves = lambda: seen[0]
    for _ in range(50):
        clock.now += STALL_S * 0.9
        seen[0] += 1
        assert health.is_live()[0]
        assert health.has_begun()[0]
        assert not health.is_ready()[0]


def test_a_start_without_progress_fails_its_probe_with_the_reason() -> None:
    clock = Clock()
    health = Health(clock)
    health.moves = lambda: "the same"
    assert health.is_live()[0]
    clock.now += STALL_S - 1
    assert health.is_live()[0]
    clock.now += 1
    live, report = health.is_live()
    assert not live
    assert report["detail"] == "starting has not moved for 300 s"
    health.ready()
    assert health.is_live()[0]


def test_a_start_that_waits_for_others_is_live() -> None:
    clock = Clock()
    health = Health(clock)
    clock.now += 10 * STALL_S
    assert health.is_live()[0]


def test_what_failed_is_neither_live_nor_started() -> None:
    health = Health()
    health.failed("the disk is gone")
    assert health.is_live() == (False, {"status": "failed", "detail": "the disk is gone"})
    assert not health.has_begun()[0]
