"""Findings about the store of this writer, by the conditions of the alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.storage import MessageStore
from mqstore.wire import findings as operations
from mqstore.wire.findings import TRANSACTION_STUCK_MS, Finding, Findings
from mqstore.writer.service import WriterService

REFUSALS: Final = frozenset({"too-many-files", "disk-error", "slow-disk", "failed"})
"""Reasons why puts are refused that neither room nor a person ends: as the alert PutsRefused."""


class FindingRoutes:
    """Serves the findings of a store; query adds those of groups."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.STORE_FINDINGS, self.findings).add(api)

    async def findings(self) -> Findings:
        """Lists the present findings about the store, its replicas and its transactions. `GET
        /v1/findings` of query has these, and those of consumer groups, of all shards."""
        found = [*self._of_store(self._service.store), *self._of_replicas(), *self._of_halves()]
        found.sort(key=lambda each: each.severity)
        return Findings(findings=tuple(found))

    def _of_store(self, store: MessageStore) -> Iterator[Finding]:
        if (reason := store.read_only_reason) is not None:
            yield self._critical("store-read-only", reason, "recover-from-a-failed-sync")
        if (refusal := store.put_refusal) is not None:
            if refusal.is_for_room:
                yield self._critical("disk-refuses-puts", refusal.detail, "free-a-full-disk")
            elif refusal.reason in REFUSALS:
                yield self._critical("puts-refused", refusal.detail, "monitor-the-services")
        if (pause := store.write_pause.current) is not None:
            yield self._warning(
                "writes-paused", f"writes are paused: {pause.reason}", "pause-writes"
            )
        if (trouble := store.index_trouble) is not None:
            yield self._warning("index-needs-rebuild", trouble, "rebuild-the-index")
        if count := store.scrub.progress.finding_count:
            text = f"{count} damaged ranges of the log are known"
            yield self._critical("log-damaged", text, "repair-damage")
        yield from self._of_delays(store)

    def _of_delays(self, store: MessageStore) -> Iterator[Finding]:
        for level in store.delays.status():
            if level.waiting is not None:
                text = f"delay level {level.level}, {level.pending} messages: {level.waiting}"
                yield self._warning("delays-waiting", text, "monitor-the-services")
        if (trouble := store.delays.timer.status().waiting) is not None:
            text = f"messages with a time: {trouble}"
            yield self._warning("delays-waiting", text, "monitor-the-services")

    def _of_replicas(self) -> Iterator[Finding]:
        if (lack := self._service.replica.lack) is not None:
            yield self._critical("replicas-not-enough", lack, "run-replicas")

    def _of_halves(self) -> Iterator[Finding]:
        if not self._service.has_transactions:
            return
        engine, page = self._service.transactions.engine, "resolve-stuck-transactions"
        born_ms = engine.pending_born_ms
        before_ms = time.time_ns() // 1_000_000 - TRANSACTION_STUCK_MS
        if late := sum(each < before_ms for each in born_ms):
            text = f"{late} of {len(born_ms)} undecided transactions are older than ten minutes"
            yield self._warning("transactions-stuck", text, page)
        if aside := engine.set_aside_count:
            text = f"{aside} transactions wait for an operator's decision"
            yield self._warning("transactions-set-aside", text, page)

    def _critical(self, kind: str, text: str, page: str) -> Finding:
        return self._finding(kind, "critical", text, page)

    def _warning(self, kind: str, text: str, page: str) -> Finding:
        return self._finding(kind, "warning", text, page)

    def _finding(self, kind: str, severity: str, text: str, page: str) -> Finding:
        shard = self._service.settings.shard
        return Finding(kind=kind, severity=severity, shard=shard, text=text, page=page)
