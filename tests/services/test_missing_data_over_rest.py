"""A shard whose log lacks what was on disk: read-only and saying so, until the loss is accepted."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.kube import commands
from mqstore.cli.kube.kubectl import Kubectl
from mqstore.cli.kube.main import app
from mqstore.cli.kube.release import Release
from mqstore.client import Client, NewMessage, ProblemError, Target
from tests.forked_processes import run_mqstore
from tests.services.service_processes import await_ready, query, writer

SEGMENT = 64 << 10
COUNT = 60


def _filled(store: Path) -> None:
    with writer(store, mapped_file_size_commit_log=SEGMENT) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        for _ in range(COUNT // 10):
            client.produce("t", [NewMessage(body="x" * 2_000)] * 10, durability="sync")


def _last_used(store: Path) -> Path:
    return [p for p in sorted((store / "commitlog").iterdir()) if any(p.read_bytes()[:8])][-1]


def _accept_loss(store: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    done = run_mqstore("store", "accept-loss", str(store), *options, "-o", "json")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def _events(url: str) -> dict[str, dict[str, Any]]:
    lines = httpx.get(f"{url}/v1/events", params={"seconds": 0}).text.splitlines()
    data = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
    return {each["kind"]: each for each in data}


def _plugin_status(client: Client, patch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``kubectl mqstore status`` of a release whose one shard this is."""
    container = {"ready": False, "restartCount": 0}
    status = {"phase": "Running", "containerStatuses": [container]}
    pod = {"metadata": {"name": "mq-shard-0"}, "status": status}
    stateful_set = {"metadata": {"name": "mq-shard"}, "spec": {"replicas": 1}}
    patch.setattr(Kubectl, "items", lambda *_: [pod])
    patch.setattr(Release, "client", lambda *_: contextlib.nullcontext(client))
    patch.setattr(commands, "find", lambda kubectl, _: Release(kubectl, "mq", (stateful_set,)))
    return lambda *options: CliRunner().invoke(app, ["status", *options])


def test_kubectl_mqstore_status_names_the_offsets_between_which_data_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    _filled(store)
    _last_used(store).unlink()
    with (
        writer(store, status="not-ready", mapped_file_size_commit_log=SEGMENT) as one,
        query(store) as reader,
        Client(one.url, reader.url) as client,
    ):
        loss = client.recovery().plan["loss"]
        ends = f"ends at offset {loss['logEnd']}, below its durable watermark {loss['watermark']}"
        status = _plugin_status(client, monkeypatch)
        table = status("-o", "table")
        assert table.exit_code == 1
        assert "0 of 1 shards are well" in table.stdout
        assert ends in table.stdout
        (shard,) = json.loads(status("-o", "json").stdout)["shards"]
        assert (shard["isWell"], shard["why"]) == (False, None)
        assert ends in shard["writes"]
        monkeypatch.undo()
        loss, *_, planned = _accept_loss(store, "--dry-run")[1]
        assert _accept_loss(store, "--confirm", planned["confirm"])[0] == 0
        await_ready(client, Target.WRITER)
        (row,) = json.loads(_plugin_status(client, monkeypatch)("-o", "json").stdout)["shards"]
        assert row["writes"] == "on"


def test_a_shard_without_its_last_segment_is_read_only_until_the_loss_is_accepted(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    _filled(store)
    lost = _last_used(store)
    lost.unlink()
    with (
        writer(store, status="not-ready", mapped_file_size_commit_log=SEGMENT) as one,
        query(store) as reader,
        Client(one.url, reader.url) as client,
    ):
        code, (loss, *_, planned) = _accept_loss(store, "--dry-run")
        assert code == 0
        assert loss["segments"] == [lost.name]
        health = httpx.get(f"{one.url}/healthz/ready")
        assert health.status_code == 503
        for offset in (loss["watermark"], loss["logEnd"]):
            assert str(offset) in health.text
        with pytest.raises(ProblemError) as refused:
            client.produce("t", [NewMessage(body="refused")])
        assert (refused.value.status, refused.value.type) == (503, "store-read-only")
        metrics = httpx.get(f"{one.url}/metrics").text
        assert f"mqstore_durable_bytes_missing {float(loss['missingBytes'])}" in metrics
        assert client.recovery().plan["loss"]["watermark"] == loss["watermark"]
        assert client.pull("t", 0).messages[0].queue_offset == 0
        missing = _events(one.url)["data-missing"]
        assert (missing["watermark"], missing["logEnd"]) == (loss["watermark"], loss["logEnd"])
        assert missing["queues"][0]["to"] == COUNT

        assert _accept_loss(store, "--confirm", "0-1-1")[0] == 2
        code, lines = _accept_loss(store, "--confirm", planned["confirm"])
        assert (code, lines[-1]["t"]) == (0, "accepted")
        await_ready(client, Target.WRITER)
        (placed,) = client.produce("t", [NewMessage(body="goes on")], durability="sync").messages
        assert placed.queue_offset > COUNT
        assert placed.physical_offset >= loss["watermark"]
        assert "mqstore_durable_bytes_missing 0.0" in httpx.get(f"{one.url}/metrics").text
        assert _events(one.url)["loss-accepted"]["messages"] == loss["messages"]
        assert client.pull("t", 0, placed.queue_offset).messages[0].body == "goes on"


def test_a_log_that_is_put_back_under_a_read_only_writer_makes_it_ready(tmp_path: Path) -> None:
    store, aside = tmp_path / "store", tmp_path / "aside"
    _filled(store)
    shutil.move(store / "commitlog", aside)
    (store / "commitlog").mkdir()  # as a mount point without its volume
    with (
        writer(store, status="not-ready", mapped_file_size_commit_log=SEGMENT) as one,
        Client(one.url) as client,
    ):
        assert "mounted" in str(client.store().read_only_reason)
        for path in sorted(aside.iterdir()):
            shutil.move(path, store / "commitlog")
        await_ready(client, Target.WRITER)
        (placed,) = client.produce("t", [NewMessage(body="next")], durability="sync").messages
        assert placed.queue_offset == COUNT
