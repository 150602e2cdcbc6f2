"""Messages between a leader and a follower in the model of the hand-over."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from mqstore.storage.metadata.log_history import LogHistory
from tests.simulation.shard.model_tables import LogPlace


@dataclass(frozen=True, slots=True)
class LeaderIntroduction:
    """The leader's log, as a follower compares it with its own."""

    history: LogHistory


@dataclass(frozen=True, slots=True)
class FollowerIntroduction:
    """A follower whose log has no records that the leader's lacks."""

    name: str
    end: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Some of the leader's log at an offset; nothing in a heartbeat."""

    offset: int
    data: Sized
    confirmed: int


@dataclass(frozen=True, slots=True)
class Deletions:
    """The leader's deletions of topics, sent before the log that follows them."""

    content: object


@dataclass(frozen=True, slots=True)
class Tables:
    """The leader's tables of a version, sent behind the log up to ``position``, once that is
    confirmed."""

    version: int
    changes: frozenset[int]
    position: int
    refers_to: LogPlace | None


@dataclass(frozen=True, slots=True)
class Report:
    """The end of what is on a follower's disk, and the version of its tables."""

    flushed: int
    tables: int
