"""Pins: leases on a range of the log for a running job or backup (``store/mqstore/pins.json``).

A pin expires unless its owner renews it in time, so that a dead job does not hold the log for long.
Pins outlive the process; the file is sealed by a checksum.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from mqstore.storage.errors import PinRefused, PinUnknown
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.holds import Hold
from mqstore.storage.seams import FileSystem, Seams

PINS_MAX: Final = 64
"""Maximum number of pins."""
LEASE_MAX_S: Final = 86_400
"""Longest lease in seconds."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

log = logging.getLogger(__name__)


class Pin(StrictValue):
    """One lease. Offsets are physical, times milliseconds since the epoch."""

    name: str
    from_offset: Annotated[int, Field(ge=0)]
    """Physical offset of the first byte needed."""
    to_offset: int | None
    """Physical offset behind the last byte; None: to the end of the log."""
    why: str
    """Purpose, as its owner says."""
    created_ms: int
    expires_ms: int
    """Time when it ends, unless it is put again before."""

    @property
    def hold(self) -> Hold:
        """The hold on the pinned range."""
        return Hold(
            kind="pin",
            name=self.name,
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            until_ms=self.expires_ms,
        )


class _File(StrictValue):
    pins: tuple[Pin, ...]


def read(files: FileSystem, path: Path) -> tuple[Pin, ...]:
    """Read the pins of a file, expired ones included; empty without one.

    Raises ValueError, OSError.
    """
    found = sealed_json.read(files, path, _File)
    return () if found is None else found.pins


class Pins:
    """The pins of one store.

    Any thread may read them, one at a time may change them; a change is durable when its call
    returns.
    """

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        """Load the pins; a file that cannot be read is set aside, and nothing is pinned."""
        self._path = paths.pins
        self._seams = seams
        self._pins = {pin.name: pin for pin in self._load(paths)}
        now_ms, now = seams.clock.now_ms(), seams.clock.monotonic()
        self._ends = {
            name: now + (pin.expires_ms - now_ms) / 1000 for name, pin in self._pins.items()
        }
        """Monotonic time at which each lease ends, so that a clock step ends none."""

    def live(self) -> list[Pin]:
        """The pins that have not expired, by name."""
        now = self._seams.clock.monotonic()
        return [pin for name, pin in sorted(self._pins.items()) if self._ends[name] > now]

    def get(self, name: str) -> Pin:
        """The live pin of this name. Raises PinUnknown."""
        for pin in self.live():
            if pin.name == name:
                return pin
        raise PinUnknown(f"there is no pin {name}, or it has ended; put it again")

    def put(
        self,
        name: str,
        from_offset: int,
        to_offset: int | None,
        *,
        lease_s: int,
        why: str,
        min_offset: int,
    ) -> Pin:
        """Create a pin, or renew it: its lease ends ``lease_s`` seconds from now.

        ``min_offset`` is the start of the log. Raises PinRefused (for a range below it, or too many
        pins), OSError.
        """
        if NAME.fullmatch(name) is None:
            raise PinRefused(f"{name[:100]!r} is no name of a pin; use letters, digits, . _ -")
        if to_offset is not None and to_offset <= from_offset:
            raise PinRefused(f"the range from {from_offset} to {to_offset} is empty")
        now_ms = self._seams.clock.now_ms()
        live = {pin.name: pin for pin in self.live()}
        known = live.get(name)
        if known is None and len(live) >= PINS_MAX:
            raise PinRefused(f"there are {PINS_MAX} pins already; end one, or wait for one to end")
        if from_offset < min_offset:
            raise PinRefused(
                f"the log begins at {min_offset}: what lies from {from_offset} on is not all "
                "there any more"
            )
        pin = Pin(
            name=name,
            from_offset=from_offset,
            to_offset=to_offset,
            why=why,
            created_ms=now_ms if known is None else known.created_ms,
            expires_ms=now_ms + lease_s * 1000,
        )
        end = self._seams.clock.monotonic() + lease_s
        self._ends.setdefault(name, end)  # until the save, an older lease of this name counts
        self._save({**live, name: pin})
        self._ends[name] = end
        return pin

    def remove(self, name: str) -> None:
        """Remove a pin. Raises PinUnknown, OSError."""
        self.get(name)
        self._save({pin.name: pin for pin in self.live() if pin.name != name})

    def _save(self, pins: dict[str, Pin]) -> None:
        content = _File(pins=tuple(pin for _, pin in sorted(pins.items())))
        sealed_json.write(self._seams.files, self._path, content)
        self._pins = pins

    def _load(self, paths: StorePaths) -> tuple[Pin, ...]:
        files = self._seams.files
        try:
            return read(files, self._path)
        except ValueError as error:
            log.error("the pins cannot be read, so nothing is pinned until it is again: %s", error)
        aside = Quarantine(files, self._seams.clock, paths.quarantine, paths.root)
        aside.move_file(self._path, "the pins cannot be read")
        return ()
