"""Checks with registered producers: leased from every shard, answered by calls, applied there."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from mqstore.coordinator.callbacks import Caller, CheckAnswer, NotSent, Unanswered, Wanted
from mqstore.coordinator.checks import lease, refusal
from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.shards import Shard, Shards
from mqstore.coordinator.targets import Allowed, TargetRefused
from mqstore.service import logs
from mqstore.service.transaction_structs import (
    CallableProducer,
    CheckReport,
    LeaseChecks,
    LeasedCheck,
    ProducerCall,
    Reason,
    SentCheck,
)
from mqstore.wire import transactions as operations
from mqstore.wire.checks import REPORT_CHECKS
from mqstore.wire.limits import POLL_S

CALLS_MAX: Final = 64
"""Calls at one time for one shard."""
PRODUCERS_OF_A_CHECK: Final = 3
"""A producer that cannot be reached, or gives no answer, is passed over for another one."""
RETRY_S: Final = 1.0
_DECISIONS: Final = {Wanted.COMMIT: operations.COMMIT, Wanted.ROLLBACK: operations.ROLLBACK}
LEASE_MIN_S: Final = 10

log = logs.get(__name__)


class Checker:
    """Used on the event loop only."""

    def __init__(
        self, shards: Shards, allowed: Allowed, caller: Caller, call_timeout_s: float
    ) -> None:
        self._shards = shards
        self._allowed = allowed
        self._caller = caller
        self._lease_s = max(LEASE_MIN_S, math.ceil(PRODUCERS_OF_A_CHECK * call_timeout_s) + 5)
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        """Checks by result: answered, unanswered, unreachable."""

    def start(self) -> None:
        """Start one task for each shard, which leases and sends its due checks."""
        for shard in self._shards:
            self._spawn(self._follow(shard))

    async def stop(self) -> None:
        """Cancel the tasks; leases of checks under way lapse at the shards."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._caller.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _follow(self, shard: Shard) -> None:
        """Lease and settle the checks of one shard, for ever."""
        calls: set[asyncio.Task[None]] = set()
        while True:
            if len(calls) >= CALLS_MAX:
                _, calls = await asyncio.wait(calls, return_when="FIRST_COMPLETED")
            request = LeaseChecks(
                registered=True,
                max=CALLS_MAX - len(calls),
                lease_seconds=self._lease_s,
                wait=POLL_S,
            )
            try:
                leased = await lease(shard, request)
            except ShardUnavailable as error:
                log.debug("no checks can be leased", shard=shard.ordinal, why=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            calls |= {self._spawn(self._settle(shard, each)) for each in leased}
            calls = {each for each in calls if not each.done()}

    async def _settle(self, shard: Shard, leased: LeasedCheck) -> None:
        """Call producers until one answers, and have the shard do what it says."""
        transaction_id = leased.transaction.transaction_id
        by, answer, calls = await self._call(leased)
        result = "none" if answer is None else answer.decision.value
        report = CheckReport(
            checks=[]
            if by is None
            else [SentCheck(transaction_id=transaction_id, by=by, answer=result)],
            released=[transaction_id] if by is None else [],
            producers=calls,
        )
        kind = "unreachable" if by is None else "unanswered" if answer is None else "answered"
        self.counts[kind] += 1
        await self._post(shard, transaction_id, REPORT_CHECKS.path, msgspec.json.encode(report))
        if answer is not None and answer.decision is not Wanted.UNKNOWN:
            path = _DECISIONS[answer.decision].path_for(id=transaction_id)
            reason = Reason(reason=answer.reason or f"check: {by}")
            await self._post(shard, transaction_id, path, msgspec.json.encode(reason))

    async def _post(self, shard: Shard, transaction_id: str, path: str, body: bytes) -> None:
        """A check whose report or answer is lost comes again."""
        try:
            reply = await shard.call("POST", path, body)
            if not reply.is_success:
                raise refusal(shard, reply)
        except ShardUnavailable as error:
            log.warning("a check comes again", transaction=transaction_id, why=str(error))

    async def _call(
        self, leased: LeasedCheck
    ) -> tuple[str | None, CheckAnswer | None, list[ProducerCall]]:
        """The producer that was reached last (None: none), its answer, and how each call went."""
        body, group = msgspec.json.encode(leased.transaction), leased.transaction.producer_group
        by: str | None = None
        calls: list[ProducerCall] = []
        for producer in leased.producers[:PRODUCERS_OF_A_CHECK]:
            try:
                answer = await self._call_one(producer, body)
            except (NotSent, TargetRefused) as error:
                calls.append(ProducerCall(group=group, name=producer.name, failure=str(error)))
            except Unanswered as error:
                by = producer.name
                calls.append(ProducerCall(group=group, name=producer.name, failure=str(error)))
            else:
                calls.append(ProducerCall(group=group, name=producer.name))
                return producer.name, answer, calls
        return by, None, calls

    async def _call_one(self, producer: CallableProducer, body: bytes) -> CheckAnswer:
        """Raises NotSent, Unanswered, TargetRefused."""
        target = self._allowed.known(producer.url, producer.address)
        return await self._caller.send(target, producer.secret, body)
