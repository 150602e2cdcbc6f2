"""The engine on a simulated machine: disk, clock and scheduling all follow one seed."""

from __future__ import annotations

import random

from mqstore.storage.seams import Seams
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import PowerCut, SimulatedDisk
from tests.simulation.inode import Loss
from tests.simulation.scheduler import Deadlock, SimulatedScheduler

__all__ = ["Deadlock", "Loss", "PowerCut", "SimulatedClock", "SimulatedDisk", "SimulatedMachine"]


class SimulatedMachine:
    """A disk, a clock and a scheduler under one seed.

    ``restart`` gives the machine that a new process finds on another disk, such as
    ``machine.disk.power_cut(seed)`` or ``machine.disk.kill()``, whose clock goes on from there.
    """

    def __init__(
        self, seed: int, *, clock: SimulatedClock | None = None, disk: SimulatedDisk | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.clock = clock or SimulatedClock()
        self.disk = disk or SimulatedDisk(self.clock)
        self.scheduler = SimulatedScheduler(self.random, self.clock)
        self.seams = Seams(self.disk, self.clock, self.scheduler, self.random)

    def restart(self, disk: SimulatedDisk) -> SimulatedMachine:
        return SimulatedMachine(self.random.getrandbits(64), clock=disk.clock, disk=disk)
