"""Roles of a replica whose shard elects its leader: decisions, without clocks or connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.storage.replication.election import Addresses, Lease


@dataclass(frozen=True, slots=True)
class Waiting:
    """No leader is known yet."""


@dataclass(frozen=True, slots=True)
class Following:
    """The replica copies the log of a leader."""

    epoch: int
    leader: str
    addresses: Addresses


@dataclass(frozen=True, slots=True)
class Leading:
    """The replica takes messages."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The replica led and does not any more: its process ends, and starts again as a follower."""

    reason: str


Role = Waiting | Following | Leading | Ended


def next_role(present: Role, name: str, lease: Lease | None, *, leads: bool) -> Role:
    """Return the role of the replica ``name`` after its candidate has seen ``lease``.

    A leader goes on in its own epoch only. A follower stays with its leader until another one is
    known.
    """
    if isinstance(present, Ended):
        return present
    if isinstance(present, Leading):
        if leads and lease is not None and lease.epoch == present.epoch:
            return present
        return Ended("this replica does not hold the lease of its shard any more")
    if lease is None or not lease.holder:
        return present
    if lease.holder != name:
        return Following(lease.epoch, lease.holder, lease.addresses)
    return Leading(lease.epoch) if leads else present


def why_not_take(
    lease: Lease | None, name: str, *, is_founder: bool, newest_epoch: int
) -> str | None:
    """Return why the replica ``name`` must not take the lease, or None.

    ``newest_epoch`` is that of its store, 0 if it never was part of an elected shard.
    ``is_founder``: it may be the first leader of a new shard, which makes the lease.
    """
    if lease is not None and (lease.epoch or lease.in_sync):
        if name in lease.in_sync:
            return None
        return f"this replica is not in sync; {', '.join(lease.in_sync) or 'none'} may lead"
    if newest_epoch:
        return (
            f"the lease of this shard {'does not exist' if lease is None else 'is new'}, and this "
            f"store was led in epoch {newest_epoch}: restore the lease, or name the replica that "
            f"has all messages, as {name}, in its annotation mqstore/in-sync"
        )
    return None if is_founder else "another replica founds this shard (foundingReplica)"


NEAR: Final = 4 << 20
"""Bytes that a successor may lack of what another one has: they are sent in a fraction of a
second."""


def choose_successor(
    acknowledged: Mapping[str, int], in_sync: tuple[str, ...], name: str, wanted: str | None
) -> str:
    """Return the replica that takes over from the leader ``name``: the wanted one, else that with
    the greatest offset of ``acknowledged``, which has the connected followers. Of those that have
    about as much it is the first by name: a rollout restarts that one last.

    ``wanted`` is a name, or its part before the slash. Raises ValueError without such a replica in
    sync.
    """
    fit = {each: acknowledged[each] for each in in_sync if each != name and each in acknowledged}
    if wanted is not None:
        fit = {each: end for each, end in fit.items() if wanted in (each, each.partition("/")[0])}
    if fit:
        most = max(fit.values())
        return min(each for each, end in fit.items() if end + NEAR >= most)
    others = ", ".join(each for each in in_sync if each != name) or "none"
    missing = "no follower" if wanted is None else f"no follower {wanted}"
    raise ValueError(f"{missing} is connected and in sync; in sync, beside {name}: {others}")
