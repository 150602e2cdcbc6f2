"""Compares the histories of two logs: which bytes a follower and its leader have in common.

In an epoch one leader alone appends to the log of a shard. So two logs have the same bytes in each
epoch that both know, up to where it ends in one of them: the log matching rule of Raft, as
AutoSwitchHAService of RocketMQ 5 applies it. Plain decisions: nothing here reads a file or a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from mqstore.storage.errors import LeaderLogRefused


class Epoch(NamedTuple):
    """The time of one leader. Its bytes end where those of the next epoch begin."""

    number: int
    start: int
    """Physical offset of its first byte."""
    leader: str = ""
    """Store id of the leader: two stores that are promoted by hand may begin the same number."""


EPOCHS_MAX: Final = 1_000
"""Maximum number of known epochs, so that an introduction stays small: older ones are forgotten."""
NEVER_ELECTED: Final = (Epoch(0, 0),)
"""The epochs of a log whose leader was never elected or promoted."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """The epochs of a log, and its bounds as physical offsets."""

    log_id: str | None
    """Store id of the log's first leader, which all its copies share; None where it is unknown, as
    in a copy of a broker's log."""
    epochs: tuple[Epoch, ...]
    """In ascending order of both; at least one."""
    start: int
    end: int

    @property
    def newest(self) -> int:
        """The number of the newest epoch that is known."""
        return self.epochs[-1].number

    def ends(self) -> dict[Epoch, int]:
        """The end of each epoch that has its begin within the log."""
        known = [each for each in self.epochs if each.start <= self.end]
        bounds = pairwise([*(each.start for each in known), self.end])
        return {each: stop for each, (_, stop) in zip(known, bounds, strict=True)}


def common_end(leader: LogHistory, follower: LogHistory) -> int:
    """Return the physical offset up to which a follower's log is the leader's.

    What the follower has behind it is a diverged tail. Raises LeaderLogRefused where the logs have
    nothing in common, or the leader is an earlier one.
    """
    if follower.newest > leader.newest:
        raise LeaderLogRefused(
            "stale-leader",
            f"the leader is of epoch {leader.newest}, and this store knows epoch "
            f"{follower.newest}: follow the leader of that epoch, or a later one",
        )
    if follower.start == follower.end:
        return follower.end
    if None not in (leader.log_id, follower.log_id) and leader.log_id != follower.log_id:
        raise LeaderLogRefused(
            "another-store",
            f"the leader's log is {leader.log_id}, and this one is {follower.log_id}: they belong "
            "to different stores; nothing was changed. Name the leader of this store's shard, or "
            "follow into an empty directory",
        )
    ends, other = leader.ends(), follower.ends()
    shared = [each for each in ends if each in other]
    end = min(ends[shared[-1]], other[shared[-1]]) if shared else -1
    if end < follower.start:
        raise LeaderLogRefused(
            "no-common-epoch",
            f"no byte of this log, from {follower.start} to {follower.end}, is known to be the "
            "leader's; nothing was changed. Save the messages that matter, and follow into an "
            "empty directory",
        )
    return end


def begun(epochs: Sequence[Epoch], new: Epoch, log_start: int) -> tuple[Epoch, ...]:
    """Return the epochs of a log in which a new one begins at its end.

    Left out are epochs that have no bytes in it: they began at or behind its end, or ended at or
    below ``log_start``. The first epoch of a log that still begins at 0 stays: all copies have it.
    """
    first, *others = epochs
    known = [first, *(each for each in others if each.start < new.start), new]
    kept = [each for each, behind in pairwise(known) if behind.start > log_start or not log_start]
    return (*kept, new)[-EPOCHS_MAX:]
