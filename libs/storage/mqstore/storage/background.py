"""The background services of one open store: started together, woken by name, stopped together."""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage.seams import BackgroundService, Scheduler, ServiceHandle


class BackgroundServices:
    """Starts, wakes and stops services. One thread starts and stops; any thread may wake."""

    def __init__(self, scheduler: Scheduler, on_failure: Callable[[BaseException], None]) -> None:
        """``on_failure`` is called with the exception that ends a service."""
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._handles: dict[str, ServiceHandle] = {}

    def start(self, service: BackgroundService) -> None:
        """Run a service in the background; its name is unique within the store."""
        self._handles[service.name] = self._scheduler.start(service, self._on_failure)

    def wake(self, name: str) -> None:
        """Have a service make a step soon. No effect on one that was not started."""
        handle = self._handles.get(name)
        if handle is not None:
            handle.wake()

    def runs(self, name: str) -> bool:
        """Whether a service was started."""
        return name in self._handles

    def stop(self) -> None:
        """Stop all services in the order of their start. No step runs after this returns."""
        for handle in self._handles.values():
            handle.stop()
