"""The lines that ``mqstore run`` prints when its services are ready."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from mqstore.client import Client, ClientError, Health, Store, Target
from mqstore.service.settings import Settings

PROBE_INTERVAL_S: Final = 0.05
PROGRESS_INTERVAL_S: Final = 5.0
COORDINATOR_PATIENCE_S: Final = 5.0
"""Longest wait for the coordinator: on a read-only store it never becomes ready."""
_READING_ROLES: Final = ("admin", "system", "consume")


def await_ready(
    addresses: Mapping[str, str], settings: Settings, is_stopping: Callable[[], bool]
) -> str | None:
    """Wait until the services at ``addresses`` have started and return the banner.

    Returns None if the services are stopping. Prints the progress of a recovery to stderr every
    ``PROGRESS_INTERVAL_S`` seconds.
    """
    tokens, tls = settings.tokens(), _tls(settings)
    may_read = (not tokens or _token_of(settings) is not None) and settings.tls_client_ca is None
    next_progress_at = time.monotonic() + PROGRESS_INTERVAL_S
    with client_of(addresses, settings) as client:
        while not is_stopping():
            starting = _starting(client)
            if starting is None:
                trouble = _coordinators_trouble(addresses, tls, is_stopping)
                if is_stopping():
                    return None
                with suppress(ClientError):  # the service has just ended; its supervisor reports it
                    lines = [*_lines(client, addresses, may_read=may_read), *trouble]
                    return "\n".join(lines)
            elif time.monotonic() > next_progress_at:
                print(f"mqstore: {starting}", file=sys.stderr)
                next_progress_at += PROGRESS_INTERVAL_S
            time.sleep(PROBE_INTERVAL_S)
    return None


def client_of(addresses: Mapping[str, str], settings: Settings) -> Client:
    """Return a client of the services, with a token that reads, if there is one."""
    token, tls = _token_of(settings), _tls(settings)
    return Client(addresses["writer"], addresses["query"], token=token, tls=tls)


def _token_of(settings: Settings) -> str | None:
    tokens = settings.tokens()
    return next((tokens[role][0] for role in _READING_ROLES if role in tokens), None)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """A context that does not check certificates: the services are our own child processes."""
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _starting(client: Client) -> str | None:
    """The service that has not started, and its progress; None if both have started."""
    for target in (Target.WRITER, Target.QUERY):
        try:
            health = client.health(target, "startup")
        except ClientError:
            return f"the {target.value} process is starting"
        if health.status != "ready":
            return f"the {target.value} process is starting {_progress(health)}".rstrip()
    return None


def _coordinators_trouble(
    addresses: Mapping[str, str], tls: ssl.SSLContext | None, is_stopping: Callable[[], bool]
) -> list[str]:
    """Wait for the coordinator, if one runs; return a line with the reason if it is not ready.

    Waits for at most ``COORDINATOR_PATIENCE_S`` seconds, and no longer than the services run.
    """
    url = addresses.get("coordinator")
    if url is None:
        return []
    deadline = time.monotonic() + COORDINATOR_PATIENCE_S
    with Client(url, url, tls=tls) as client:
        while True:
            try:
                health = client.health(Target.WRITER)
                status, why = health.status, health.detail
            except ClientError as error:
                status, why = "", str(error)
            if status == "ready":
                return []
            if is_stopping() or time.monotonic() > deadline:
                return [f"  NO TRANSACTIONS  {why}"]
            time.sleep(PROBE_INTERVAL_S)


def _progress(health: Health) -> str:
    if not health.total:
        return health.detail
    return f"({health.stage}: {100 * health.done // health.total} %)"


def _lines(client: Client, addresses: Mapping[str, str], *, may_read: bool) -> Iterator[str]:
    yield "mqstore is ready. Ctrl-C stops it."
    store = client.store() if may_read else None
    if store is not None:
        yield f"  store         {store.root} (RocketMQ {store.format} format)"
        yield f"  recovered     {_recovered(store, client.recovery().plan)}"
    yield f"  store-writer  {addresses['writer']}   API pages: {addresses['writer']}/docs"
    yield f"  query         {addresses['query']}   API pages: {addresses['query']}/docs"
    yield f"  console       {addresses['query']}/ui"
    if "coordinator" in addresses:
        url = addresses["coordinator"]
        yield f"  transactions  {url}   API pages: {url}/docs"
    if store is not None and store.read_only_reason:
        yield f"  READ-ONLY     {store.read_only_reason}"
    elif store is not None and not store.index_complete:
        yield "  index         being rebuilt; key queries say `complete: false` until it is there"


def _recovered(store: Store, plan: dict[str, object]) -> str:
    text = f"offsets {store.min_offset} to {store.max_offset}, {store.topics} topics"
    reason = plan.get("startReason")
    return f"{text} ({reason})" if reason else text
