"""Crashes of a simulated disk: a kill, and power cuts, which lose what is not synced."""

from __future__ import annotations

import random
from typing import Final

from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss

CRASHES: Final = (None, *Loss)
"""A kill (None), and power cuts."""


def crashed(disk: SimulatedDisk, loss: Loss | None, rng: random.Random) -> SimulatedDisk:
    """The disk that a crash at this moment leaves; ``rng`` decides what a power cut loses."""
    return disk.kill() if loss is None else disk.power_cut(rng.getrandbits(32), loss)
