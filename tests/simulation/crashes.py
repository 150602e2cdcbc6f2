"""Crashes of a simulated disk: a kill, and power cuts, which lose what is not synced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.long_runs import sampled_step
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss

CRASHES: Final = (None, *Loss)
"""A kill (None), and power cuts."""


def crashed(disk: SimulatedDisk, loss: Loss | None, rng: random.Random) -> SimulatedDisk:
    """The disk that a crash at this moment leaves; ``rng`` decides what a power cut loses."""
    return disk.kill() if loss is None else disk.power_cut(rng.getrandbits(32), loss)


def every(step: int) -> Callable[[], bool]:
    """Choose every ``step``-th place, and each one in ``make nightly``."""
    places, chosen = 0, sampled_step(step)

    def is_chosen() -> bool:
        nonlocal places
        places += 1
        return places % chosen == 0

    return is_chosen


class CrashPoints:
    """Crashes before the effects on a disk, any of which may be the last.

    The program goes on after each, on the disk without a crash.
    """

    def __init__(
        self,
        chance: random.Random,
        examine: Callable[[SimulatedDisk, Loss | None], object],
        is_chosen: Callable[[], bool] = lambda: True,
    ) -> None:
        """``examine`` checks the disk that a crash left; ``is_chosen`` is called before each
        effect, and says whether to crash there."""
        self.states = 0
        """Number of crashes that were examined."""
        self.error: BaseException | None = None
        """The first error of ``examine``; nothing is examined after it."""
        self._chance = chance
        self._examine = examine
        self._is_chosen = is_chosen

    @contextmanager
    def of(self, disk: SimulatedDisk) -> Iterator[None]:
        """Crash before effects on the disk. Raises the error of ``examine`` at the end too: the
        program may have taken it for one of the disk."""
        disk.before_effect = partial(self._crash, disk)
        try:
            yield
        finally:
            disk.before_effect = None
            if self.error is not None:
                raise self.error

    def _crash(self, disk: SimulatedDisk) -> None:
        if self.error is not None or not self._is_chosen():
            return
        self.states += 1
        loss = self._chance.choice(CRASHES)
        try:
            self._examine(crashed(disk, loss, self._chance), loss)
        except BaseException as error:
            self.error = error
            raise
