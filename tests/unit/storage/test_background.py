"""The background services of a store, on a scheduler that records what is done to them."""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage.background import BackgroundServices
from mqstore.storage.seams import BackgroundService, ServiceHandle, Signal


class Handle:
    def __init__(self, name: str, calls: list[str]) -> None:
        self._name = name
        self._calls = calls

    def wake(self) -> None:
        self._calls.append(f"wake {self._name}")

    def stop(self) -> None:
        self._calls.append(f"stop {self._name}")


class RecordingScheduler:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_failure: Callable[[BaseException], None] | None = None

    def signal(self) -> Signal:
        raise NotImplementedError

    def start(
        self, service: BackgroundService, on_failure: Callable[[BaseException], None]
    ) -> ServiceHandle:
        self.calls.append(f"start {service.name}")
        self.on_failure = on_failure
        return Handle(service.name, self.calls)


class Service:
    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, now: float) -> float:
        return now


def test_services_are_woken_by_name_and_stopped_in_the_order_of_their_start() -> None:
    scheduler = RecordingScheduler()
    services = BackgroundServices(scheduler, lambda error: None)
    for name in ("dispatch", "retention"):
        services.start(Service(name))
    services.wake("dispatch")
    services.stop()
    assert scheduler.calls == [
        "start dispatch",
        "start retention",
        "wake dispatch",
        "stop dispatch",
        "stop retention",
    ]


def test_a_service_that_was_not_started_is_not_woken() -> None:
    scheduler = RecordingScheduler()
    services = BackgroundServices(scheduler, lambda error: None)
    services.wake("scrub")
    assert scheduler.calls == []
    assert not services.runs("scrub")
    services.start(Service("scrub"))
    assert services.runs("scrub")


def test_the_error_that_ends_a_service_is_reported() -> None:
    scheduler, errors = RecordingScheduler(), list[BaseException]()
    BackgroundServices(scheduler, errors.append).start(Service("scrub"))
    assert scheduler.on_failure is not None
    scheduler.on_failure(OSError("the disk is gone"))
    assert [str(each) for each in errors] == ["the disk is gone"]
