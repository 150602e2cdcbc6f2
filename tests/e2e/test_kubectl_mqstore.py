"""The kubectl plugin on a release, with no more rights than the chart's role for operators."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.client import ProblemError
from tests.e2e.cluster import Release, is_kube_tool, namespace, small_values, until
from tests.e2e.operators import (
    Operator,
    assert_restores,
    bodies,
    operator_of,
    produce,
    remove_filled_shard,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]
LISTED_IN_S = 240
"""The kubelet takes a minute or two to bring a changed list to a pod."""
DISK_SIZE = ("df", "--output=size", "--block-size=1", "/var/lib/mqstore")


@pytest.fixture(scope="module")
def operator(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("operator")
    with operator_of(release, "operator-of-tests", folder) as found:
        yield found


def test_status_has_the_state_of_each_shard(operator: Operator) -> None:
    said = json.loads(operator.does("status", "-o", "json"))
    assert [(each["state"], each["ready"], each["isWell"]) for each in said["shards"]] == [
        ("Running", "2/2", True)
    ]
    assert "1 of 1 shards are well" in operator.does("status", "-o", "table")


def test_writes_are_paused_and_go_on(operator: Operator) -> None:
    operator.does("pause", "--reason", "moving house")
    assert operator("status").returncode == 1
    with pytest.raises(ProblemError, match="moving house"):
        produce(operator, "paused", "one")
    operator.does("resume")
    assert operator("status").returncode == 0
    produce(operator, "paused", "one")


def test_a_request_reaches_any_service_and_its_refusal_is_printed(operator: Operator) -> None:
    assert json.loads(operator.does("request", "/v1/store"))["shard"] == 0
    queries = operator.does("request", "/v1/store", "--shard", "0", "-c", "query")
    assert json.loads(queries)["writer"] == "alive"
    resolve = ("request", "-c", "coordinator", "-d", '{"decision": "rollback", "reason": "a test"}')
    refused = operator(*resolve, "/v1/transactions/0-00:resolve")
    assert refused.returncode == 2
    assert "transaction-unknown" in refused.stderr
    assert operator("request", "v1/store").returncode == 2
    assert operator("request", "/v1/store", "--shard", "7").returncode == 2


def test_retention_and_logs_are_shown(operator: Operator) -> None:
    produce(operator, "kept", "one")
    plan = json.loads(operator.does("retention", "-o", "json"))
    assert plan["segments"][0]["goes"] is False
    assert "SEGMENT" in operator.does("retention", "-o", "table")
    assert json.loads(operator.does("logs", "0", "-c", "query", "--tail", "1"))
    assert operator("logs", "7").returncode == 2


def test_each_command_has_help_and_a_dry_run_changes_nothing(
    release: Release, tmp_path: Path
) -> None:
    administrator = Operator(Path(os.environ["KUBECONFIG"]), release.namespace)
    (tmp_path / "copy" / "commitlog").mkdir(parents=True)
    before = _objects(release)
    for command in administrator.does("--help").partition("Commands:")[2].splitlines():
        if name := command.strip().partition(" ")[0]:
            assert "Examples:" in administrator.does(name, "--help"), name
    for words in (
        *(("pause", "--reason", "a test"), ("resume",)),
        *(("scale", "1"), ("grow", "512Mi"), ("replicas", "3"), ("switchover", "0")),
        ("backup", "0", str(tmp_path / "new")),
        ("restore", "0", str(tmp_path / "copy"), "--replace"),
    ):
        assert administrator.does(*words, "--dry-run"), words
    assert _objects(release) == before
    assert not (tmp_path / "new").exists()


def _objects(release: Release) -> list[tuple[str, str, int]]:
    """The objects of the namespace that commands change, with the number of their changes."""
    found = release.get("pods,statefulsets,cronjobs,jobs,pvc,configmaps")["items"]
    return [
        (each["kind"], each["metadata"]["name"], each["metadata"].get("generation", 0))
        for each in found
    ]


def test_a_backup_is_a_store_and_can_be_restored(operator: Operator, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert_restores(operator, copy)
    assert operator("backup", "0", str(copy)).returncode == 2, "it is not empty"
    verify = [sys.executable, "-m", "mqstore.cli.main", "store", "verify", str(copy)]
    assert subprocess.run(verify, capture_output=True).returncode == 0
    assert bodies(operator, "saved") == ["one", "two"]
    produce(operator, "saved", "four")
    assert bodies(operator, "saved") == ["one", "two", "four"]


def test_shards_come_and_go_only_while_they_are_empty(operator: Operator, release: Release) -> None:
    assert "--set shards=2" in operator("scale", "2").stderr
    release.values["shards"] = 2
    release.install(wait=False)
    until(lambda: _are_well(operator, 2), "the first shard knows of the second", LISTED_IN_S)
    remove_filled_shard(release, operator)
    release.kubectl("wait", "--for=delete", f"pod/{release.full_name}-shard-1", "--timeout=120s")
    assert f"store-{release.full_name}-shard-1" in release.kubectl("get", "pvc", "-o", "name")
    del release.values["shards"]
    release.install()
    until(lambda: _listed(operator) == [0], "the first shard knows that it is alone", LISTED_IN_S)


def _are_well(operator: Operator, count: int) -> bool:
    said = json.loads(operator("status", "-o", "json").stdout or '{"shards": []}')
    return [each["isWell"] for each in said["shards"]] == [True] * count


def _listed(operator: Operator) -> list[int]:
    startup = json.loads(operator.does("request", "/healthz/startup", "--shard", "0"))
    return list(startup["shards"])


@pytest.mark.skipif(not is_kube_tool(), reason="needs the kube tool's storage class `sized`")
def test_volumes_grow_without_a_restart_and_the_chart_agrees() -> None:
    values = small_values(persistence={"size": "256Mi", "storageClass": "sized"})
    with namespace() as name:
        release = Release(name, "grown", values)
        release.install()
        operator = Operator(Path(os.environ["KUBECONFIG"]), name)
        produce(operator, "before", "one")
        assert operator("grow", "128Mi").returncode == 2
        pod = release.get("pod", release.shard)["metadata"]["uid"]
        operator.does("grow", "320Mi")
        release.values["persistence"]["size"] = "320Mi"
        release.install()
        assert release.get("pod", release.shard)["metadata"]["uid"] == pod
        assert release.restarts("store-writer") == 0
        total = int(release.in_container("store-writer", *DISK_SIZE).split()[-1])
        assert total > 300 << 20
        assert bodies(operator, "before") == ["one"]


@pytest.mark.nightly
@pytest.mark.skipif(not is_kube_tool(), reason="needs the kube tool's storage class `sized`")
def test_a_restore_that_fails_leaves_the_shard_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    strange, large = tmp_path / "strange", tmp_path / "commitlog" / f"{0:020}"
    values = small_values(persistence={"size": "256Mi", "storageClass": "sized"})
    with namespace() as name:
        release = Release(name, "narrow", values)
        release.install()
        operator = Operator(Path(os.environ["KUBECONFIG"]), name)
        produce(operator, "before", "one")
        os.mknod(strange, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        refused = operator("restore", "0", str(tmp_path), "--replace")
        assert refused.returncode == 2
        assert "Cannot mknod" in refused.stderr
        strange.unlink()
        with large.open("wb") as file:
            file.truncate(300 << 20)
        refused = operator("restore", "0", str(tmp_path), "--replace")
        assert refused.returncode == 2
        assert "the copy has 300.0 MiB, and the volume room for" in refused.stderr
        until(release.is_ready, "the shard is back")
        assert bodies(operator, "before") == ["one"]
        kept = release.in_container("query", "ls", "-A", "/var/lib/mqstore").split()
        assert set(kept) <= {"store", "lost+found"}
        produce(operator, "before", "two")
