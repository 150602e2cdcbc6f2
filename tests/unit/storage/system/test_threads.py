from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

import pytest

from mqstore.storage.seams import ServiceHandle
from mqstore.storage.system.clock import SystemClock
from mqstore.storage.system.threads import ThreadScheduler, ThreadSignal, production_seams

PATIENCE_S: Final = 30.0
"""Long beyond doubt: only a failing test waits for it."""


class Recorder:
    """A service whose step calls ``act`` and records its time in ``steps``."""

    name = "recorder"

    def __init__(self, act: Callable[[], float] = lambda: math.inf) -> None:
        self.act = act
        self.steps: SimpleQueue[float] = SimpleQueue()

    def step(self, now: float) -> float:
        self.steps.put(now)
        return self.act()


def start(
    service: Recorder, on_failure: Callable[[BaseException], None] | None = None
) -> ServiceHandle:
    def fail(error: BaseException) -> None:
        raise AssertionError(error)

    return ThreadScheduler(SystemClock()).start(service, on_failure or fail)


def test_a_service_steps_at_once_and_then_only_when_woken() -> None:
    service = Recorder()
    handle = start(service)
    service.steps.get(timeout=PATIENCE_S)
    handle.wake()
    service.steps.get(timeout=PATIENCE_S)
    handle.stop()
    assert service.steps.empty()


def test_a_service_steps_again_when_it_said() -> None:
    service = Recorder(lambda: time.monotonic() + 0.001)
    handle = start(service)
    times = [service.steps.get(timeout=PATIENCE_S) for _ in range(3)]
    handle.stop()
    assert times == sorted(times)


def test_a_wake_during_a_step_brings_another() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def act() -> float:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return math.inf

    service = Recorder(act)
    handle = start(service)
    assert entered.wait(PATIENCE_S)
    handle.wake()
    go_on.set()
    service.steps.get(timeout=PATIENCE_S)
    service.steps.get(timeout=PATIENCE_S)
    handle.stop()


def test_no_step_begins_after_stop_returned() -> None:
    service = Recorder(lambda: 0.0)
    handle = start(service)
    service.steps.get(timeout=PATIENCE_S)
    handle.stop()
    count = service.steps.qsize()
    handle.wake()
    handle.stop()
    assert service.steps.qsize() == count
    assert "recorder" not in {thread.name for thread in threading.enumerate()}


def test_a_failed_step_is_reported_and_the_last() -> None:
    failures: SimpleQueue[BaseException] = SimpleQueue()

    def act() -> float:
        raise OSError("disk on fire")

    service = Recorder(act)
    handle = start(service, failures.put)
    assert str(failures.get(timeout=PATIENCE_S)) == "disk on fire"
    handle.wake()
    handle.stop()
    assert service.steps.qsize() == 1


def test_a_service_may_stop_itself() -> None:
    stopped = threading.Event()
    handles: SimpleQueue[ServiceHandle] = SimpleQueue()

    def act() -> float:
        handles.get(timeout=PATIENCE_S).stop()
        stopped.set()
        return 0.0

    service = Recorder(act)
    handle = start(service)
    handles.put(handle)
    assert stopped.wait(PATIENCE_S)
    handle.stop()
    assert service.steps.qsize() == 1


def test_many_wakers_lose_no_wake() -> None:
    done = 0
    wanted = 0
    caught_up = threading.Event()

    def act() -> float:
        nonlocal done
        done = wanted
        if done == 4000:
            caught_up.set()
        return math.inf

    lock = threading.Lock()
    service = Recorder(act)
    handle = start(service)

    def call() -> None:
        nonlocal wanted
        for _ in range(1000):
            with lock:
                wanted += 1
            handle.wake()

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert caught_up.wait(PATIENCE_S)
    handle.stop()


def test_wait_for_returns_when_notified_of_the_change() -> None:
    signal = ThreadSignal()
    values: list[int] = []
    answer: SimpleQueue[bool] = SimpleQueue()
    waiter = threading.Thread(
        target=lambda: answer.put(signal.wait_for(lambda: len(values) == 2, PATIENCE_S))
    )
    waiter.start()
    for value in range(2):
        values.append(value)
        signal.notify()
    assert answer.get(timeout=PATIENCE_S)
    waiter.join()


def test_wait_for_gives_up_in_time() -> None:
    assert not ThreadSignal().wait_for(lambda: False, 0.001)
    assert ThreadSignal().wait_for(lambda: True, 0)


def test_notify_wakes_every_waiter() -> None:
    signal = ThreadSignal()
    ready = threading.Event()
    answers: SimpleQueue[bool] = SimpleQueue()
    waiters = [
        threading.Thread(target=lambda: answers.put(signal.wait_for(ready.is_set, None)))
        for _ in range(3)
    ]
    for waiter in waiters:
        waiter.start()
    ready.set()
    signal.notify()
    assert all(answers.get(timeout=PATIENCE_S) for _ in waiters)


def test_production_seams_are_the_real_ones() -> None:
    seams = production_seams()
    assert seams.clock.now_ms() == pytest.approx(time.time() * 1000, abs=60_000)
    assert seams.clock.monotonic() <= seams.clock.monotonic()
    assert seams.scheduler.signal().wait_for(lambda: True, 0)
    assert 0 <= seams.random.random() < 1
