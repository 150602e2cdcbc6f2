from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from mqstore.client import Client
from tests.services.console_browser import ConsolePage, opened, running_browser
from tests.services.service_processes import Run, ServicePair, running, service_pair
from tests.services.shard_processes import Cluster, cluster

PATIENCE_S = 60.0


def pytest_configure() -> None:
    """A busy machine is no failure: httpx itself waits for 5 s. Clients share the certificate
    authorities, whose reading takes each of them 35 ms."""
    for name in ("connect", "read", "write", "pool"):
        setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, name, PATIENCE_S)
    transports = sys.modules["httpx._transports.default"]
    vars(transports)["create_ssl_context"] = functools.cache(httpx.create_ssl_context)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """Both services over a new store; a module that prepares the store has a fixture of its own."""
    with service_pair(tmp_path_factory.mktemp("pair") / "store") as started:
        yield started


@pytest.fixture
def console(browser: Browser, pair: ServicePair) -> Iterator[ConsolePage]:
    """The console of ``pair``, a fixture of the module."""
    with opened(browser, pair.query_url) as found:
        yield found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two shards without messages."""
    with cluster(tmp_path_factory.mktemp("shards")) as found:
        yield found


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Both services over one new store, for tests that each use topics of their own."""
    with running(tmp_path_factory.mktemp("store") / "store") as run:
        yield run


@pytest.fixture(scope="session")
def with_coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All three services over one new store with topic orders; producers are sent
    checks at once, and each second again, without end: tests kill producers that were sent one.
    Tests that use it are of one ``xdist_group``."""
    store = tmp_path_factory.mktemp("store") / "store"
    soon: dict[str, Any] = {
        "transaction_time_out": 0,
        "transaction_check_interval": 1_000,
        "transaction_check_max": 1_000,
    }
    with running(store, coordinator=True, **soon) as run:
        with run.client() as client:
            client.create_topic("orders")
        yield run


@pytest.fixture
def client(services: Run) -> Iterator[Client]:
    with services.client() as found:
        yield found


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A new topic of one queue, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
    client.create_topic(name, queues=1)
    return name


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB, which a test can really fill."""
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", "size=40m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
