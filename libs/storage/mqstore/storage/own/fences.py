"""Fences (``store/mqstore/fences.json``): who may still write in somebody's name.

A leader of another service appends under a fence: a name with an epoch that grows with each
leader. Once an epoch was answered, nothing gets in under a lower one, whatever crashes: it is on
disk first. Nor does anything get in before the fence was raised in this opening, were it to the
same epoch: a power cut may have taken the end of the log, so whoever appends looks again first.
The file is sealed by a checksum. One that cannot be read closes every fence: which
epochs it held is not known, and a person removes it when no old leader can be alive any more.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from mqstore.storage.errors import FencedOff, FenceRefused, FenceUnknown, StoreNotWritable
from mqstore.storage.own import sealed_json
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import replace_file

FENCES_MAX: Final = 64
"""Fences of one store; they never go."""
EPOCH_MAX: Final = 2**63 - 1
LEAP_MAX: Final = 1 << 20
"""How far one raise may go beyond the present epoch. A leader takes the next one, or that of its
Lease, which counts leaders. A raise to the maximum would leave no epoch to any later leader."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

log = logging.getLogger(__name__)


class Fence(BaseModel):
    """The lowest epoch that may write under a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    epoch: Annotated[int, Field(ge=0, le=EPOCH_MAX)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fences: tuple[Fence, ...]


class Fences:
    """The fences of one store. Every method may be called from any thread."""

    def __init__(self, files: FileSystem, paths: StorePaths) -> None:
        """Raises OSError."""
        self._files = files
        self._path = paths.fences
        self._changing = threading.Lock()
        """Held over a change of the file."""
        self._lock = threading.Lock()
        """Held over a look at the epochs and what rests on it. Taken after ``_changing``."""
        self.damage: str | None = None
        """Why the file cannot be read."""
        self._epochs: dict[str, int] = {}
        self._raised: set[str] = set()
        """In this opening."""
        try:
            self._epochs = {fence.name: fence.epoch for fence in self._load()}
        except ValueError as error:
            self.damage = str(error)
            log.error("%s cannot be read, so every fence is closed: %s", self._path, error)

    def all(self) -> list[Fence]:
        """By name. Raises StoreNotWritable (the file is damaged)."""
        self._require_readable()
        return [Fence(name=name, epoch=epoch) for name, epoch in sorted(self._epochs.items())]

    def get(self, name: str) -> Fence:
        """Raises FenceUnknown, StoreNotWritable."""
        self._require_readable()
        epoch = self._epochs.get(name)
        if epoch is None:
            raise FenceUnknown(f"there is no fence {name}; raise it to an epoch first")
        return Fence(name=name, epoch=epoch)

    def stands_at(self, name: str, epoch: int) -> bool:
        """Whether a raise would change nothing on the disk; a look without it."""
        return self._epochs.get(name, -1) >= epoch

    def raise_to(self, name: str, epoch: int) -> Fence:
        """Durable at return: nothing gets in under a lower epoch any more.

        The present epoch changes nothing. Blocks for the disk. Raises FencedOff (a lower one),
        FenceRefused (also for a leap of more than LEAP_MAX), StoreNotWritable, OSError.
        """
        with self._changing:
            self._check(name, epoch)
            if self._epochs.get(name) != epoch:
                self._raise_to(name, epoch)
            self._raised.add(name)
        return Fence(name=name, epoch=epoch)

    def reset(self, name: str) -> None:
        """Forget a fence, durably at return: any epoch may be raised again, and until then nothing
        gets in. Blocks for the disk. Raises FenceUnknown, StoreNotWritable, OSError."""
        with self._changing:
            epochs = {each.name: each.epoch for each in self.all() if each.name != name}
            if epochs.keys() == self._epochs.keys():
                raise FenceUnknown(f"there is no fence {name}")
            log.warning("fence %s was reset; it stood at epoch %d", name, self._epochs[name])
            self._save(epochs)
            self._raised.discard(name)

    @contextmanager
    def held(self, name: str, epoch: int) -> Iterator[None]:
        """While this is held the fence stays at ``epoch``, which it was raised to before.

        Raises FencedOff when it stands higher, FenceUnknown when it was not raised so far since the
        store was opened.
        """
        with self._lock:
            self._check(name, epoch)
            if self._epochs.get(name) != epoch:
                raise FenceUnknown(f"fence {name} was not raised to epoch {epoch} yet")
            if name not in self._raised:
                raise FenceUnknown(
                    f"fence {name} was not raised since the store was opened: raise it, and look "
                    "what the log has before you append"
                )
            yield

    def _raise_to(self, name: str, epoch: int) -> None:
        if NAME.fullmatch(name) is None:
            raise FenceRefused(f"{name[:100]!r} is no name of a fence; use letters, digits, . _ -")
        if not 0 <= epoch <= EPOCH_MAX:
            raise FenceRefused(f"epoch {epoch} is not between 0 and {EPOCH_MAX}")
        present = self._epochs.get(name, 0)
        if epoch - present > LEAP_MAX:
            raise FenceRefused(
                f"epoch {epoch} is more than {LEAP_MAX} above the present one ({present}); "
                "raise the fence to the next epoch"
            )
        epochs = {**self._epochs, name: epoch}
        if len(epochs) > FENCES_MAX:
            raise FenceRefused(f"there are {FENCES_MAX} fences already; use one of them")
        self._save(epochs)

    def _save(self, epochs: dict[str, int]) -> None:
        fences = tuple(Fence(name=name, epoch=epoch) for name, epoch in sorted(epochs.items()))
        text = _File(fences=fences).model_dump_json()
        replace_file(self._files, self._path, sealed_json.seal(text))
        with self._lock:  # after who holds it now: what they append is there before the answer
            self._epochs = epochs

    def _check(self, name: str, epoch: int) -> None:
        self._require_readable()
        present = self._epochs.get(name, -1)
        if epoch < present:
            raise FencedOff(name, epoch, present)

    def _require_readable(self) -> None:
        if self.damage is not None:
            raise StoreNotWritable(
                "fences",
                f"{self._path} cannot be read ({self.damage}): which epochs are over is not "
                "known; make sure that no old leader lives, then remove the file and restart",
            )

    def _load(self) -> tuple[Fence, ...]:
        if self._files.stat(self._path) is None:
            return ()
        raw = sealed_json.unseal(self._files.read(self._path))
        return _File.model_validate_json(raw).fences
