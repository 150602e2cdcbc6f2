"""The plugin's events and debug bundle, over forwarded ports that lead to real services."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mqstore.cli.kube import commands
from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.cli.kube.main import app
from mqstore.cli.kube.release import Release, Shard
from mqstore.client import Client
from tests.services.service_processes import ServicePair, service_pair


@dataclass(frozen=True)
class Forwarded(Release):
    """A release of one shard, whose services are processes here, without a coordinator."""

    pair: ServicePair

    def shards(self) -> list[Shard]:
        return [Shard(0, "shop-mqstore-shard-0", {"metadata": {}})]

    @contextmanager
    def client(self, shard: Shard) -> Iterator[Client]:
        with self.pair.client() as client:
            yield client

    @contextmanager
    def forwarded_shard(self, pod: str) -> Iterator[tuple[str, str, None]]:
        yield self.pair.writer.url, self.pair.query.url, None

    @contextmanager
    def forwarded_coordinator(self) -> Iterator[str]:
        if self.instance:
            raise KubeError("no coordinator is ready")
        yield ""

    @property
    def admin_token(self) -> None:  # type: ignore[override]
        return None


def test_the_plugin_has_events_and_the_debug_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateful_set: dict[str, Any] = {"metadata": {"name": "shop-mqstore-shard"}, "spec": {}}
    with service_pair(tmp_path / "store") as pair:
        release = Forwarded(Kubectl(), "shop", (stateful_set,), pair)
        monkeypatch.setattr(commands.Chosen, "release", lambda _: release)
        shown = CliRunner().invoke(app, ["events", "0"])
        assert shown.exit_code == 0 and "opened" in shown.stdout
        path = tmp_path / "report.tar.gz"
        made = CliRunner().invoke(app, ["debug-bundle", str(path)])
        assert made.exit_code == 1, "the coordinator has no part"
        assert f"wrote {path}" in made.stdout
        with tarfile.open(path) as archive:
            names = {name.removeprefix("mqstore-debug/") for name in archive.getnames()}
        assert {"shard-0/store.json", "query-metrics.txt", "errors.json"} <= names
        assert CliRunner().invoke(app, ["debug-bundle", str(path)]).exit_code == 2
