"""Replicas whose Lease object does not exist: who creates it, and what says that it cannot be."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from mqstore.service.events import Events
from mqstore.service.settings import Settings
from mqstore.storage.replication.roles import Leading
from mqstore.writer.replication import elected
from mqstore.writer.replication.elected import Elected
from tests.unit.chart.api_server import write_kubeconfig
from tests.unit.storage.stores import open_store

FORBIDDEN: Final = (
    'leases.coordination.k8s.io is forbidden: User "shop" cannot create resource "leases"'
)


class Leases:
    """The Leases of an API server."""

    def __init__(self) -> None:
        self.made: dict[str, Any] | None = None
        self.version = 0
        self.may_create = True
        self.requests = 0

    def reply(self, method: str, sent: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.requests += 1
        if method == "POST" and not self.may_create:
            return 403, {"kind": "Status", "message": FORBIDDEN}
        if method == "GET" and self.made is None:
            return 404, {"kind": "Status", "message": "not found"}
        if method != "GET":
            self.version += 1
            sent["metadata"]["resourceVersion"] = str(self.version)
            sent["metadata"].setdefault("name", "shard-0")
            self.made = sent
        assert self.made is not None
        return 200, self.made


@contextmanager
def api(folder: Path, leases: Leases, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the Leases to this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            sent = json.loads(self.rfile.read(size) or b"{}")
            status, found = leases.reply(self.command, sent)
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET  # noqa: N815 - names of the base class

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        config = write_kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(
            "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config)
        )
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class Service:
    """A store-writer that is driven."""

    def __init__(self) -> None:
        self.led: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def lead(self, epoch: int) -> None:
        self.led.set_result(epoch)

    def leave(self, reason: str) -> None:
        raise AssertionError(reason)

    def fail(self, error: BaseException) -> None:
        raise AssertionError from error


def run(root: Path, scenario: Callable[[Elected, Service, Events], Any]) -> None:
    async def main() -> None:
        settings = Settings(
            store=root,
            election_lease="kubernetes:shard-0",
            founding_replica="pod-0",
            replica_name="pod-0",
            ha_allowed_slaves="10.0.0.1",
            election_lease_duration=80_000,
            election_renewal_deadline=60_000,
            election_retry_interval=50,
        )
        with open_store(root) as store:
            service, events = Service(), Events()
            given: Any = service
            found = Elected(settings, store, given, events)
            found.start()
            try:
                await asyncio.wait_for(scenario(found, service, events), 60)
            finally:
                await found.stop()
                await found.release()

    asyncio.run(main())


def test_the_founder_creates_the_lease_once_it_was_missing_for_a_while(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(elected, "clock", lambda: now[0])
    leases = Leases()

    async def scenario(found: Elected, service: Service, _: Events) -> None:
        await until(lambda: "creates it" in (found.trouble or ""))
        assert leases.version == 0
        now[0] += elected.MAKE_LEASE_AFTER_S
        assert await service.led == 1
        assert leases.made is not None
        assert leases.made["spec"]["holderIdentity"] == found.name
        await until(lambda: isinstance(found.role, Leading))

    with api(tmp_path, leases, monkeypatch):
        run(root, scenario)


def test_a_lease_that_cannot_be_created_is_named_in_log_events_and_health(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elected, "MAKE_LEASE_AFTER_S", 0.0)
    leases = Leases()
    leases.may_create = False
    reasons: list[Any] = []

    async def scenario(found: Elected, service: Service, events: Events) -> None:
        await until(lambda: FORBIDDEN in (found.why_refused or ""))
        reason = found.trouble or ""
        assert "the Lease shard-0 does not exist" in reason
        assert "allow the pods' service account to create leases" in reason
        assert reason in (found.why_refused or "")
        begun = leases.requests
        await until(lambda: leases.requests >= begun + 10)
        reasons.extend([each for each in await kept(events) if b'"reason"' in each])
        leases.may_create = True
        assert await service.led == 1

    with structlog.testing.capture_logs() as lines, api(tmp_path, leases, monkeypatch):
        run(root, scenario)
    reported = [
        each["reason"] for each in lines if each["event"] == "no leader of this shard is known"
    ]
    assert len(reported) == 1 and FORBIDDEN in reported[0]
    assert len(reasons) == 1 and b"cannot be created" in reasons[0]


async def kept(events: Events) -> list[bytes]:
    return [each async for each in events.follow(None, 0, lambda: True)]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - values of a thread
        await asyncio.sleep(0.01)
