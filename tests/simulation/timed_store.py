"""Messages with a time of delivery for a store on a simulated machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.delay import timer, timer_files
from mqstore.storage.layout import TIMER_TOPIC
from tests.simulation.delayed_store import DelayedStore
from tests.unit.storage.puts import put_message


def small_wheel() -> Iterator[None]:
    """A wheel of 256 s, which rolls after 40 s, and files of 12 units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_files, "WHEEL_SLOTS", 256)
        patch.setattr(timer_files, "TIMER_LOG_FILE_SIZE", 12 * timer_files.UNIT_SIZE + 20)
        patch.setattr(timer, "ROLL_WINDOW_MS", 40_000)
        yield


class TimedStore(DelayedStore):
    """``DelayedStore`` with messages that name their times; each is in the body too."""

    def timed(self, number: int, delay_ms: int, durability: object = None) -> int:
        """Put a message that is due after a time; returns that time."""
        due_ms = self.machine.clock.now_ms() + delay_ms
        message = self.message(number, 0)
        table = properties.decode(message.properties) | {"TIMER_DELIVER_MS": str(due_ms)}
        encoded = properties.encode(
            table, trailing_separator=self.format.trailing_property_separator
        )
        put_message(self.store, message.replace(properties=encoded), durability)  # type: ignore[arg-type]
        return due_ms

    def waiting(self) -> list[Record]:
        return self.records(TIMER_TOPIC, 0)

    def arrivals(self) -> list[tuple[int, int, int]]:
        """Number, time of delivery, and time at which it came, of all copies."""
        return [
            (
                int(found.body),
                int((found.properties or {})["TIMER_DELIVER_MS"]),
                found.store_timestamp_ms,
            )
            for found in self.records("T", 3)
        ]
