"""The connections of a leader to the copies of its log: which are admitted, and what they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.metadata.log_history import LogHistory, common_end
from mqstore.storage.replication.ha_frames import Confirmation
from mqstore.storage.replication.ha_handover import (
    FollowerIntroduction,
    LeaderIntroduction,
    fields_of,
)
from mqstore.storage.replication.leader_session import (
    LeaderOptions,
    LeaderSession,
    Peer,
    SlaveRefused,
)
from mqstore.storage.replication.stores import ReplicaStore

SLAVES_MAX: Final = 16
"""Maximum number of slaves that copy the log, and of connections that have not said yet who they
are."""


class Admission(Protocol):
    """The settings that admit copies of the log."""

    def may_connect(self, address: str) -> bool:
        """Whether a connection of this address is served until it has said who it is."""

    def admits_slave(self, address: str) -> bool:
        """Whether a slave of RocketMQ of this address may copy the log."""

    def counts(self, address: str, name: str | None) -> bool:
        """Whether a copy counts that has proved a ``replicaName``, or None."""


class Warn(Protocol):
    """Logs a warning whose number others decide."""

    def __call__(self, event: str, *, of: str = "", **figures: object) -> None:
        """``of``: of which of a few, so that its warnings are not hidden by those of others."""


class Connections:
    """The connections of one leader, without their sockets. Not thread-safe."""

    def __init__(
        self,
        store: ReplicaStore,
        name: str,
        options: LeaderOptions,
        admission: Admission,
        clock: Callable[[], float],
        warn: Warn,
    ) -> None:
        """``name`` is the leader's ``replicaName``."""
        self.store = store
        self.options = options
        self.clock = clock
        self.confirmation: Confirmation | None = None
        """The part of the log that all copies in sync have; None before it is known."""
        self.listeners: list[Callable[[], object]] = []
        """Called after each report of a copy, in their order."""
        self.has_had_followers = False
        """Whether a follower of mqstore was connected, or is."""
        self.refused = 0
        """Connections that were refused, or did not follow the protocol."""
        self._name = name
        self._admission = admission
        self._warn = warn
        self._sessions: list[LeaderSession] = []
        self._end = -1
        """The end of the log of which the sessions know."""

    @property
    def has_any(self) -> bool:
        """Whether there is a connection."""
        return bool(self._sessions)

    @property
    def slaves(self) -> list[LeaderSession]:
        """The copies that are connected and have reported where their logs end."""
        return [each for each in list(self._sessions) if each.requested is not None]

    def acknowledged_by(self, count: int) -> int | None:
        """The offset up to which at least ``count`` connected copies that count have acknowledged
        the log; None with fewer of them."""
        slaves = (each for each in self.slaves if each.counts)
        found = sorted((each.acknowledged for each in slaves), reverse=True)
        return found[count - 1] if len(found) >= count else None

    def connect(self, peer: Peer) -> LeaderSession | None:
        """Begin a session; None where the address may not connect."""
        session = LeaderSession(self, peer)
        if not self._admission.may_connect(peer.host):
            self.note_refusal("a slave is not in haAllowedSlaves", session)
            return None
        unknown = [each for each in self._sessions if not each.is_admitted]
        if len(unknown) >= SLAVES_MAX:
            silent = _first_of_most(unknown)
            self.note_refusal("a slave that says nothing is disconnected", silent)
            self._disconnect(silent)
        self._sessions.append(session)
        return session

    def note_end(self, session: LeaderSession) -> None:
        """Note that a connection has ended."""
        if session in self._sessions:
            self._sessions.remove(session)

    def end_all(self) -> None:
        """End all connections."""
        for session in list(self._sessions):
            self._disconnect(session)

    def confirm(self, confirmation: Confirmation) -> None:
        """Have the followers know what is confirmed."""
        self.confirmation = confirmation
        self.wake_all()

    def send_now(self) -> None:
        """Wake the sessions if the log has grown."""
        if (end := self.store.log_stream.end) != self._end:
            self._end = end
            self.wake_all()

    def wake_all(self) -> None:
        """Have all sessions look for something to send."""
        for session in self._sessions:
            session.wake()

    def notify(self) -> None:
        """Call the listeners."""
        for each in self.listeners:
            each()

    def note_refusal(
        self, event: str, session: LeaderSession, *, reason: str | None = None
    ) -> None:
        """Count a connection that is refused or does not follow the protocol, and log some.
        Refusals of one that counts are not hidden by those of others."""
        self.refused += 1
        of = session.host if session.counts else ""
        self._warn(event, of=of, slave=session.name, reason=reason, refused=self.refused)

    # called by sessions

    def introduce(self) -> LeaderIntroduction:
        """Return what the leader says of itself to a follower."""
        return LeaderIntroduction(**fields_of(self.store.store_id, self.store.epochs.history))

    def admit(self, session: LeaderSession) -> None:
        """Accept a follower that has introduced itself, or a slave of RocketMQ that has reported an
        offset, before it is sent anything of the log.

        Its earlier connection, which may be lost, ends: if it is of the same address, since a live
        one is not to be displaced. Raises SlaveRefused.
        """
        admission = self._admission
        if session.follower is None:
            if not admission.admits_slave(session.host):
                raise SlaveRefused("it is a slave of RocketMQ whose address haAllowedSlaves lacks")
            session.counts = admission.counts(session.host, None)
        else:
            _require_prefix(self.store.epochs.history, session.follower.history)
            session.counts = admission.counts(session.host, session.proven_name)
            self._warn_of_name(session)
            self._end_earlier(session, session.follower)
        if sum(each.is_admitted for each in self._sessions) >= SLAVES_MAX:
            self._disconnect(self._rival_of(session))
        session.is_admitted = True
        self.has_had_followers |= session.is_replica

    def _warn_of_name(self, session: LeaderSession) -> None:
        if not session.counts:
            self._warn(
                "a follower is never in sync: neither replicaNames names it, with a proof, nor "
                "haAllowedSlaves its very address",
                replica=session.name,
            )
        elif session.name == self._name:
            self._warn(
                "a follower has the leader's replicaName and is never in sync: give it another one",
                replica=session.name,
                address=session.address,
            )

    def _end_earlier(self, session: LeaderSession, introduction: FollowerIntroduction) -> None:
        """End the earlier connection of a follower. Raises SlaveRefused where it is another's."""
        for other in list(self._sessions):
            if other is session or other.follower is None or other.name != session.name:
                continue
            if other.follower.store_id != introduction.store_id:
                raise SlaveRefused(
                    f"its replicaName {session.name} is that of the follower at {other.address}: "
                    "give each follower a name of its own"
                )
            if other.host != session.host:
                raise SlaveRefused(
                    f"{session.name} is connected from {other.address}; that connection ends when "
                    "it has reported nothing for haHousekeepingInterval"
                )
            self._disconnect(other)

    def _rival_of(self, session: LeaderSession) -> LeaderSession:
        """Return the copy that is disconnected for a further one.

        It does not count, or is of an address that has more connections. Raises SlaveRefused.
        """
        admitted = [each for each in self._sessions if each.is_admitted]
        others = [each for each in admitted if not each.counts]
        if session.counts and others:
            return _first_of_most(others)
        rivals = admitted if session.counts else others
        number = Counter(each.host for each in rivals)
        found = _first_of_most(rivals) if rivals else None
        if found is None or number[found.host] <= number[session.host] + 1:
            found = next((each for each in rivals if each.host == session.host), None)
        if found is None:
            raise SlaveRefused(f"{SLAVES_MAX} slaves are connected")
        return found

    def _disconnect(self, session: LeaderSession) -> None:
        """End a connection; it counts for nothing from now on."""
        self.note_end(session)
        session.disconnect()


def _first_of_most(sessions: Sequence[LeaderSession]) -> LeaderSession:
    """Return the oldest connection of the address that has most of them."""
    number = Counter(each.host for each in sessions)
    return max(sessions, key=lambda each: number[each.host])


def _require_prefix(own: LogHistory, follower: LogHistory) -> None:
    """Raise SlaveRefused unless this log has all that a follower's has."""
    try:
        end = common_end(own, follower)
    except LeaderLogRefused as error:
        raise SlaveRefused(f"it cannot follow: {error}") from None
    if end != follower.end:
        raise SlaveRefused(
            f"its log has bytes from {end} to {follower.end} that this one lacks, and it has not "
            "cut them"
        )
