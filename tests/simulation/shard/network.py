"""Connections between processes: in order within one, in any order across them; they break.

Loss and duplication of packets show as TCP shows them: as delay. A partition holds what is sent
until it heals, or until one end gives up. A machine without power says nothing; a killed process
closes its connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.simulation.shard.events import Events, Process

DELAY_S: Final = 0.002
"""Typical time from one machine to another."""
SLOW_S: Final = 0.4
"""Longest time of a slow packet: a loss and its retransmission."""
SLOW_CHANCE: Final = 0.03
PIECES_CHANCE: Final = 0.1
"""How often bytes arrive in two pieces."""
RETRY_S: Final = 0.3
"""Time after which a sender tries again to reach the other side of a partition."""

Address = tuple[str, int]


class End:
    """One process's end of a connection."""

    def __init__(self, network: Network, process: Process) -> None:
        self.process = process
        self.peer: End
        self.is_open = True
        self.on_receive: Callable[[object], object] = lambda item: None
        self.on_lost: Callable[[], object] = lambda: None
        """Called once, in the process, when the other end closed or the connection broke."""
        self._network = network
        self._in_flight: deque[tuple[float, object]] = deque()
        self._is_armed = False

    def send(self, item: object) -> None:
        """Send bytes, or any value, to the other end; nothing on a closed connection. Bytes may
        arrive in two pieces."""
        rng = self._network.events.rng
        if isinstance(item, bytes) and len(item) > 1 and rng.random() < PIECES_CHANCE:
            at = rng.randrange(1, len(item))
            self._send(item[:at])
            item = item[at:]
        self._send(item)

    def _send(self, item: object) -> None:
        if self.is_open:
            due = self._network.events.now + self._network.delay()
            if self._in_flight:
                due = max(due, self._in_flight[-1][0])
            self._in_flight.append((due, item))
            self._arm(due)

    def close(self) -> None:
        """Close the connection: the other end learns it after what was sent before."""
        if self.is_open:
            self.send(_CLOSED)
            self.is_open = False

    def vanish(self) -> None:
        """End without a word, as a machine that loses power."""
        self.is_open = False
        self._in_flight.clear()

    def break_off(self) -> None:
        """Break the connection: both ends learn it, and what is in flight is lost."""
        for end in (self, self.peer):
            end._in_flight.clear()
            end._lose()

    def _arm(self, when: float) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._network.events.at(when, self._deliver)

    def _deliver(self) -> None:
        self._is_armed = False
        events, flight = self._network.events, self._in_flight
        if flight and self._network.is_blocked(self.process.name, self.peer.process.name):
            self._arm(events.now + RETRY_S)
            return
        while flight and flight[0][0] <= events.now:
            self._hand_over(flight.popleft()[1])
        if flight:
            self._arm(flight[0][0])

    def _hand_over(self, item: object) -> None:
        peer, events = self.peer, self._network.events
        if item is _CLOSED:
            peer._lose()
        elif peer.is_open and peer.process.alive:
            events.at(events.now, lambda: peer.is_open and peer.on_receive(item), peer.process)
        elif peer.process.machine.is_up:  # a reset comes back
            self._lose()

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            self._network.events.after(0, self.on_lost, self.process)


_CLOSED: Final = object()
_OPENED: Final = object()


class Network:
    """All connections, the listening ports, and which machines cannot reach which."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.slow_chance = SLOW_CHANCE
        self._listeners: dict[Address, tuple[Process, Callable[[End], object]]] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._redirects: dict[str, str] = {}
        """By machine, the one at which its new connections arrive."""
        self._ends: list[End] = []

    # faults

    def delay(self) -> float:
        """Time that the next packet takes."""
        rng = self.events.rng
        if rng.random() < self.slow_chance:
            return rng.random() * SLOW_S
        return DELAY_S * (0.5 + rng.random())

    def is_blocked(self, origin: str, target: str) -> bool:
        """Whether packets from one machine do not reach another."""
        return (origin, target) in self._blocked

    def block(self, origin: str, target: str) -> None:
        """Have no packet from one machine reach another, in this direction alone."""
        self._blocked.add((origin, target))

    def heal(self) -> None:
        """Have all machines reach each other."""
        self._blocked.clear()

    def redirect(self, origin: str, target: str) -> None:
        """Break all connections of a machine, and have its new ones arrive at another one."""
        self._redirects[origin] = target
        for end in self._open_ends():
            if origin in (end.process.name, end.peer.process.name):
                end.break_off()

    def direct(self, origin: str) -> None:
        """Have new connections of a machine arrive where they should."""
        self._redirects.pop(origin, None)

    def break_between(self, one: str, other: str) -> None:
        """Break the connections between two machines."""
        for end in self._open_ends():
            if {end.process.name, end.peer.process.name} == {one, other}:
                end.break_off()

    def end_process(self, process: Process, *, silent: bool) -> None:
        """Close what a process has open, or let it vanish with its machine."""
        for address in [each for each, (by, _) in self._listeners.items() if by is process]:
            del self._listeners[address]
        for end in self._open_ends():
            if end.process is process:
                end.vanish() if silent else end.close()

    def _open_ends(self) -> list[End]:
        self._ends = [end for end in self._ends if end.is_open]
        return list(self._ends)

    # connections

    def listen(self, process: Process, port: int, accept: Callable[[End], object]) -> None:
        """Accept connections at a port of the process's machine."""
        self._listeners[process.name, port] = process, accept

    def connect(
        self,
        process: Process,
        address: Address,
        opened: Callable[[End], object],
        refused: Callable[[], object],
    ) -> None:
        """Connect to an address. Neither callback comes while the machine cannot be reached."""
        self.events.after(self.delay(), lambda: self._arrive(process, address, opened, refused))

    def _arrive(
        self,
        process: Process,
        address: Address,
        opened: Callable[[End], object],
        refused: Callable[[], object],
    ) -> None:
        if not process.alive:
            return
        target = self._redirects.get(process.name, address[0])
        found = self._listeners.get((target, address[1]))
        if self.is_blocked(process.name, target) or self.is_blocked(target, process.name):
            self.events.after(RETRY_S, lambda: self._arrive(process, address, opened, refused))
        elif found is None or not found[0].alive:
            self.events.after(self.delay(), refused, process)
        else:
            near, far = End(self, process), End(self, found[0])
            near.peer, far.peer = far, near
            self._ends += [near, far]
            near.on_receive = lambda item: opened(near)  # of the first item; it then has its own
            near.on_lost = refused
            far.send(_OPENED)
            self.events.after(0, lambda: found[1](far), far.process)
