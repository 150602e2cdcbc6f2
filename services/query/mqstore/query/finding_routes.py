"""Findings over all shards: those of each store, and those of its consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import msgspec
from fastapi import Request, Response

from mqstore.query import replies
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service import logs
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.forwarding import select_request_headers
from mqstore.wire import findings as operations
from mqstore.wire.findings import CONSUMER_BEHIND_MS, OF_A_KIND_MAX, STORE_FINDINGS

log = logs.get(__name__)


class FindingRoutes:
    """Serves ``GET /v1/findings``."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.FINDINGS, self.findings).add(api)

    async def findings(self, request: Request) -> Response:
        """Lists the present findings, by the conditions of the alerts: stores, replicas,
        transactions, groups that are behind by more than ten minutes, dead letters, and shards that
        do not reply. The lags are those of the metrics: at most `metricsLagsMax`."""
        service = self._service

        async def own() -> bytes:
            """This shard's findings, in JSON."""
            of_store = await self._read_writer(request)
            found = [*of_store, *await service.run(lambda: list(self._of_groups()))]
            return msgspec.json.encode(replies.Findings(findings=tuple(found)))

        if not service.shards.fans_out(request.scope):
            return json_reply(await own())
        async with service.shards.fan_out(request, own) as spread:
            found = [
                finding
                for body in spread.answers.values()
                for finding in msgspec.json.decode(body, type=replies.Findings).findings
            ]
            silent = dict(spread.missing)
            silent |= {shard: each.detail for shard, each in spread.refusals.items()}
            found += [self._missing(shard, why) for shard, why in sorted(silent.items())]
            found.sort(key=lambda each: (each.severity, each.shard))
            return json_reply(
                msgspec.json.encode(replies.Findings(findings=tuple(found), shards=spread.view()))
            )

    async def _read_writer(self, request: Request) -> tuple[replies.Finding, ...]:
        """The findings of the store, by its writer."""
        headers = select_request_headers(request.scope)
        reply = await self._service.local_writer.request("GET", STORE_FINDINGS.path, headers)
        if reply is None:
            return (self._missing(self._shard, "its store-writer does not reply"),)
        if reply.status_code != HTTPStatus.OK:
            problem = reply.json().get("detail", "") if reply.content.startswith(b"{") else ""
            return (self._missing(self._shard, f"{reply.status_code} {problem}".strip()),)
        return msgspec.json.decode(reply.content, type=replies.Findings).findings

    def _of_groups(self) -> Iterator[replies.Finding]:
        """Findings of groups. Waits for the disk."""
        lags, dead = self._service.lag_metrics.current()
        late = [each for each in lags if (each.age_ms or 0) > CONSUMER_BEHIND_MS]
        late.sort(key=lambda each: -each.messages)
        for each in late[:OF_A_KIND_MAX]:
            minutes = (each.age_ms or 0) // 60_000
            text = (
                f"group {each.group} is {each.messages} messages and {minutes} minutes behind in "
                f"topic {each.topic}"
            )
            yield self._warning("consumer-behind", text, "monitor-lag")
        if len(late) > OF_A_KIND_MAX:
            text = f"{len(late) - OF_A_KIND_MAX} other topics of groups are behind by ten minutes"
            yield self._warning("consumer-behind", text, "monitor-lag")
        for group, count in list(dead.items())[:OF_A_KIND_MAX]:
            text = f"group {group} has {count} dead letters"
            yield self._warning("dead-letters", text, "handle-dead-letters")
        if len(dead) > OF_A_KIND_MAX:
            text = f"{len(dead) - OF_A_KIND_MAX} other groups have dead letters"
            yield self._warning("dead-letters", text, "handle-dead-letters")

    def _warning(self, kind: str, text: str, page: str) -> replies.Finding:
        return replies.Finding(
            kind=kind, severity="warning", shard=self._shard, text=text, page=page
        )

    def _missing(self, shard: int, why: str) -> replies.Finding:
        return replies.Finding(
            kind="shard-missing",
            severity="critical",
            shard=shard,
            text=f"shard {shard} does not reply: {why}",
            page="replace-a-lost-node",
        )
