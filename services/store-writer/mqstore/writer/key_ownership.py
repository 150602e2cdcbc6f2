"""Which shards own unique keys and ordering keys.

The first shard of the list decides it, and keeps the record in its store; the other shards copy
the record each second. A shard gets keys once it was ready, and keeps them while it is down. A
shard that leaves the list, or that an administrator releases from its keys, loses them at once.

Until a former owner has a new record it may store messages under keys that move. A request goes to
the former owners first, so it meets either the old record or what was stored under it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pydantic import ValidationError

from mqstore.service import logs
from mqstore.service.membership import KeyShards
from mqstore.service.problems import STORE_NOT_READY, Problem
from mqstore.service.shards import ShardHealth, Shards
from mqstore.storage import MessageStore
from mqstore.storage.admin import FormerOwners, KeyOwners

log = logs.get(__name__)

MOVING_WINDOWS: Final = 2
"""Times ``uniqueKeyWindow`` for which former owners are visited first: once for the window itself,
once for the time that a record takes to reach all shards."""
FORMER_MAX: Final = 16
"""Earlier lists of owners that are kept; each adds one shard at most to the visits of a key."""


class KeyOwnership:
    """The record of this shard. Used on the event loop only."""

    def __init__(
        self,
        shards: Shards,
        is_ready: Callable[[], bool],
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """``is_ready`` returns whether this shard serves all requests."""
        self._shards = shards
        self._is_ready = is_ready
        self._clock_s = clock_s
        self._started_ms = int(clock_s() * 1000)
        self._store: MessageStore | None = None
        self._is_compared = False
        """Whether the records of the other shards were read since the store was opened."""
        self._first_has_none = False
        """Whether the first shard is of an earlier release, which keeps no record."""
        self._changing = asyncio.Lock()

    def serve(self, store: MessageStore | None) -> None:
        """Use the record of a store that is open for writing; None: there is none now."""
        self._store, self._is_compared = store, False

    @property
    def record(self) -> KeyOwners | None:
        """The record of this shard, if it has one."""
        return None if self._store is None else self._store.key_owners.current

    @property
    def current(self) -> KeyOwners:
        """The shards that own keys now. Raises Problem (503) while they are unknown."""
        if (record := self.record) is not None:
            return record
        if self._first_has_none:
            return _as_listed(self._shards.members.keys)
        raise Problem(
            STORE_NOT_READY,
            f"shard {self._shards.own} has not received the list of the shards that own keys from "
            "the first shard yet",
        )

    def lists(self, shard: int) -> bool:
        """Whether a shard may own keys that name it: it is in the list and was not released.

        Raises Problem (503) for an unknown shard while the lists of the shards may differ.
        """
        if shard not in self._shards.members.numbers:
            self._shards.require_lists(shard)
            return False
        record = self.record
        return record is None or shard not in record.released

    def former(self, owners: KeyOwners, window_ms: int) -> list[Sequence[int]]:
        """The lists of owners that may know a key of the last windows, the oldest first."""
        after_ms = self._clock_s() * 1000 - MOVING_WINDOWS * window_ms
        return [each.shards for each in owners.former if each.ended_ms > after_ms]

    def report(self) -> dict[str, Any] | None:
        """The member ``keyOwners`` of the health report; None without a store open for writing."""
        if self._store is None:
            return None
        record = self.record
        known = {} if record is None else record.model_dump(by_alias=True, mode="json")
        return {"startedMs": self._started_ms, **known}

    async def check(self) -> None:
        """Copy the first shard's record, or decide it on the first shard."""
        if self._store is None:
            return
        async with self._changing:
            if not self._is_compared:
                await self._compare()
            if self._shards.is_first:
                await self._decide()
            elif (found := self._shards.first_health) is not None:
                self._first_has_none = found.is_ready and found.key_owners is None
                await self._adopt([found])

    async def release(self, shard: int) -> KeyOwners:
        """Take all keys from a shard that is about to be removed. Call it on the first shard.

        It gets keys again once its process was started again and it is ready.
        """
        entry = self._shards.members.entries[shard]
        async with self._changing:
            owners = self.current
            health = await self._shards.health_of(entry)
            released = owners.released | {shard: _started_ms(health)}
            left = [each for each in owners.shards if each != shard]
            await self._put(left or [self._shards.own], released)
            return self.current

    # the record -----------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Adopt the newest record of all shards: this store may be new, or from a backup."""
        self._is_compared = True
        others = self._shards.members.others
        found = await asyncio.gather(*(self._shards.health_of(each) for each in others))
        await self._adopt([each for each in found if each is not None])

    async def _adopt(self, found: Iterable[ShardHealth]) -> None:
        records = [record for each in found if (record := _record_of(each)) is not None]
        newest = max(records, key=lambda each: each.version, default=None)
        own = self.record
        if newest is not None and (own is None or newest.version > own.version):
            await self._write(newest)

    async def _decide(self) -> None:
        members, owners = self._shards.members, self.record
        wanted = members.keys.shards
        if owners is None:
            await self._begin(wanted)
            return
        kept = [each for each in owners.shards if each in wanted and each not in owners.released]
        candidates = [each for each in wanted if each not in kept]
        ready = await self._find_ready(candidates, owners.released)
        # Other shards may list a removed one for some time, and must not wait for it.
        gone = {each: 0 for each in owners.shards if each not in members.numbers}
        released = {
            shard: started
            for shard, started in (gone | owners.released).items()
            if shard not in ready
        }
        shards = sorted([*kept, *ready])
        if shards and (tuple(shards) != owners.shards or released != owners.released):
            await self._put(shards, released)

    async def _begin(self, wanted: Sequence[int]) -> None:
        """Make the first record. A store with messages is of an earlier release, in which all
        shards of the list owned keys; those of a new release own them once they are ready."""
        assert self._store is not None
        if self._store.log.max_offset:
            await self._write(_as_listed(self._shards.members.keys))
        elif ready := await self._find_ready(wanted, {}):
            made = KeyOwners(version=self._now_ms, shards=tuple(sorted(ready)))
            await self._write(made, unused=tuple(wanted))

    async def _find_ready(self, shards: Sequence[int], released: dict[int, int]) -> list[int]:
        """Those of some shards that are ready; of released ones, those that were started again."""
        entries = self._shards.members.entries
        others = [each for each in shards if each != self._shards.own and each in entries]
        found = await asyncio.gather(*(self._shards.health_of(entries[each]) for each in others))
        health = dict(zip(others, found, strict=True))
        ready = [
            shard
            for shard, each in health.items()
            if each is not None
            and each.is_ready
            and (shard not in released or _started_ms(each) > released[shard])
        ]
        own = self._shards.own
        return [*ready, own] if own in shards and self._is_ready() else ready

    @property
    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    async def _put(self, shards: Sequence[int], released: dict[int, int]) -> None:
        """Change the owners, and note those that were."""
        before = self.current
        former, is_unused = list(before.former), self._is_unused(before)
        if tuple(shards) != before.shards and not is_unused:
            former.append(FormerOwners(shards=before.shards, ended_ms=self._now_ms))
        made = KeyOwners(
            version=max(self._now_ms, before.version + 1),
            shards=tuple(shards),
            former=tuple(former[-FORMER_MAX:]),
            released=released,
        )
        await self._write(made, unused=before.shards if is_unused else None)

    def _is_unused(self, owners: KeyOwners) -> bool:
        """Whether nothing was stored under these owners: a new release has just this shard."""
        store = self._store
        return (
            owners.shards == (self._shards.own,) and store is not None and not store.log.max_offset
        )

    async def _write(self, record: KeyOwners, unused: tuple[int, ...] | None = None) -> None:
        """Write a record. Nothing was stored under the owners ``unused``: they become former ones
        if something was while the disk wrote."""
        store = self._store
        if store is None:
            return
        try:
            await asyncio.to_thread(store.key_owners.put, record)
            if unused is not None and unused != record.shards and store.log.max_offset:
                former = FormerOwners(shards=unused, ended_ms=self._now_ms)
                changed = {"version": record.version + 1, "former": (*record.former, former)}
                await asyncio.to_thread(store.key_owners.put, record.model_copy(update=changed))
        except OSError as error:
            log.error("the shards that own keys cannot be noted", error=str(error))
            return
        log.info("shards own keys", shards=record.shards, released=sorted(record.released))


def _as_listed(keys: KeyShards) -> KeyOwners:
    """The owners as the list of shards names them."""
    former = (FormerOwners(shards=tuple(keys.before), ended_ms=keys.changed_at_ms),)
    return KeyOwners(
        version=keys.changed_at_ms,
        shards=tuple(keys.shards),
        former=former if keys.before else (),
    )


def _record_of(health: ShardHealth) -> KeyOwners | None:
    """The record in a report; None without one, or for one of a later release."""
    try:
        return KeyOwners.model_validate(health.key_owners)
    except ValidationError:
        return None


def _started_ms(health: ShardHealth | None) -> int:
    """The start of a shard's process; 0 if it does not reply."""
    found = None if health is None else (health.key_owners or {}).get("startedMs")
    return found if isinstance(found, int) else 0
