"""Upgrades of an installed release that the chart refuses, because they would hide messages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.chart.api_server import api_server
from tests.unit.chart.settings_schema import CHART
from tests.unit.chart.test_chart import HELM, load_all, needs_helm

SET = "shop-mqstore-shard"
pytestmark = needs_helm


def stateful_set(name: str, pods: int) -> dict[str, Any]:
    spec = {"replicas": pods}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"store-{name}"},
    }


def lease(name: str, *in_sync: str) -> dict[str, Any]:
    annotations = {"mqstore/in-sync": " ".join(f"{each}/0a1b2c3d" for each in in_sync)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "annotations": annotations},
    }


def one_replica(shards: int = 1, *, pods: int | None = None) -> list[dict[str, Any]]:
    claims = [claim(f"{SET}-{number}") for number in range(shards)]
    return [stateful_set(SET, shards if pods is None else pods), *claims]


def several(replicas: int, shards: int = 1, *, pods: int | None = None) -> list[dict[str, Any]]:
    found = []
    for number in range(shards):
        found.append(stateful_set(f"{SET}-{number}", replicas if pods is None else pods))
        found += [claim(f"{SET}-{number}-{replica}") for replica in range(replicas)]
        found.append(lease(f"{SET}-{number}", f"{SET}-{number}-{replicas - 1}"))
    return found


def replica_secret(**data: str) -> dict[str, Any]:
    name = f"{SET.removesuffix('-shard')}-replicas"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def upgraded(
    folder: Path, objects: list[dict[str, Any]], **values: Any
) -> subprocess.CompletedProcess[str]:
    """Render an upgrade over these objects."""
    assert HELM is not None
    with api_server(folder, objects) as config:
        words = ["template", "shop", str(CHART), "--dry-run=server", f"--kubeconfig={config}"]
        return subprocess.run(
            [HELM, *words, "-f", "-"], input=json.dumps(values), capture_output=True, text=True
        )


def refusal(folder: Path, objects: list[dict[str, Any]], **values: Any) -> str | None:
    """Why an upgrade over these objects is refused; None if it is not."""
    done = upgraded(folder, objects, **values)
    return done.stderr if done.returncode else None


@pytest.mark.parametrize(
    ("objects", "values"),
    [
        ([], {"replicas": 3}),
        (one_replica(2), {"shards": 2}),
        (one_replica(2), {"shards": 3}),
        (several(3, 2), {"shards": 2, "replicas": 3}),
        (several(3, 2), {"shards": 4, "replicas": 5}),
        ([*one_replica(1), *several(3, pods=0)], {"shards": 1}),
    ],
    ids=["install", "same", "more shards", "same replicas", "more replicas", "kept volumes"],
)
def test_an_upgrade_that_keeps_all_messages_is_not_refused(
    tmp_path: Path, objects: list[dict[str, Any]], values: dict[str, Any]
) -> None:
    assert refusal(tmp_path, objects, **values) is None


def test_the_volumes_of_one_replica_are_renamed_before_there_are_several(tmp_path: Path) -> None:
    for objects in (one_replica(2), one_replica(2)[1:], one_replica(2, pods=0)):
        said = refusal(tmp_path, objects, shards=2, replicas=3)
        assert said is not None and "Run `kubectl mqstore replicas 3`, which stops" in said
    existing = [stateful_set(SET, 1), claim("of another name")]
    said = refusal(tmp_path, existing, replicas=3)
    assert said is not None and "kubectl mqstore replicas 3" in said
    half = [stateful_set(SET, 0), claim(f"{SET}-0-0"), claim(f"{SET}-1")]
    assert refusal(tmp_path, half, shards=2, replicas=3) is not None
    assert refusal(tmp_path, half, shards=2) is not None
    renamed = [stateful_set(SET, 0), claim(f"{SET}-0-0"), claim(f"{SET}-1-0")]
    assert refusal(tmp_path, renamed, shards=2, replicas=3) is None


def test_the_volumes_of_several_replicas_are_renamed_before_there_is_one(tmp_path: Path) -> None:
    for objects in (several(3, 2), several(3, 2, pods=0), several(3, 2)[1:4]):
        said = refusal(tmp_path, objects, shards=2)
        assert said is not None and "Run `kubectl mqstore replicas 1`, which stops" in said


def test_fewer_replicas_need_one_in_sync_that_stays(tmp_path: Path) -> None:
    said = refusal(tmp_path, several(3, 2), shards=2, replicas=2)
    assert said is not None
    assert f"removes every replica of shard 0 that has all messages (in sync: {SET}-0-2/" in said
    both = [each for each in several(3) if each["kind"] != "Lease"]
    both.append(lease(f"{SET}-0", f"{SET}-0-1", f"{SET}-0-2"))
    assert refusal(tmp_path, both, replicas=2) is None
    never_led = [each for each in both if each["kind"] != "Lease"]
    assert refusal(tmp_path, never_led, replicas=2) is not None


@pytest.mark.parametrize(
    ("objects", "values"),
    [(one_replica(3), {}), (several(3, 3), {"replicas": 3})],
    ids=["one replica", "several"],
)
def test_shards_go_only_once_they_were_removed_or_are_named(
    tmp_path: Path, objects: list[dict[str, Any]], values: dict[str, Any]
) -> None:
    said = refusal(tmp_path, objects, shards=1, **values)
    assert said is not None and "shards: 1 removes shard 1, 2, and its messages" in said
    assert "kubectl mqstore scale 1" in said
    said = refusal(tmp_path, objects, shards=1, abandonShards=[2], **values)
    assert said is not None and "removes shard 1, and" in said
    assert refusal(tmp_path, objects, shards=1, abandonShards=[1, 2], **values) is None


def test_shards_that_were_removed_by_the_plugin_go(tmp_path: Path) -> None:
    removed = [*several(3), *several(3, 2, pods=0)[5:]]
    assert refusal(tmp_path, removed, shards=1, replicas=3) is None
    assert refusal(tmp_path, one_replica(2, pods=1), shards=1) is None


@pytest.mark.parametrize(
    ("objects", "has_tls", "kept"),
    [
        ([], True, {}),
        (several(3), False, {}),
        (several(3, pods=0), True, {}),
        ([*several(3), replica_secret(secret="b2xk")], False, {"secret": "b2xk"}),
        ([*several(3, pods=0), replica_secret(secret="b2xk")], True, {"secret": "b2xk"}),
        ([*several(3), replica_secret(**{"secret": "b", "tls.crt": "c"})], True, {"tls.crt": "c"}),
    ],
    ids=["install", "earlier release", "stopped", "without TLS", "stopped without", "with TLS"],
)
def test_certificates_are_issued_where_no_replica_runs_and_kept(
    tmp_path: Path, objects: list[dict[str, Any]], has_tls: bool, kept: dict[str, str]
) -> None:
    """A rollout has replicas of both releases, which must connect to each other."""
    done = upgraded(tmp_path, objects, replicas=3)
    assert done.returncode == 0, done.stderr
    rendered = load_all(done.stdout)
    found = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    writer = found["StatefulSet", f"{SET}-0"]["spec"]["template"]["spec"]["containers"][0]
    names = [each["name"] for each in writer["env"]]
    assert "MQSTORE_REPLICA_SECRET_FILE" in names
    assert ("MQSTORE_HA_TLS_CERT" in names) == has_tls
    data = found["Secret", "shop-mqstore-replicas"]["data"]
    assert data["secret"]
    assert ("tls.crt" in data) == has_tls
    assert kept.items() <= data.items()


def test_a_size_that_the_volumes_do_not_have_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """After ``kubectl mqstore grow`` Kubernetes itself would reply "Forbidden" and no more."""
    objects = one_replica(1)
    spec = {"resources": {"requests": {"storage": "200Gi"}}}
    objects[0]["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "store"}, "spec": spec}]
    why = refusal(tmp_path, objects, persistence={"size": "50Gi"})
    assert why is not None and "Set persistence.size=200Gi" in why
    assert "kubectl mqstore grow SIZE" in why
    assert refusal(tmp_path, objects, persistence={"size": "200Gi"}) is None


def test_a_secret_without_one_of_the_tokens_is_refused(tmp_path: Path) -> None:
    given = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tokens"}}
    values = {"auth": {"existingSecret": "tokens"}}
    objects = [{**given, "data": {"admin": "YQ==", "system": "YQ=="}}]
    why = refusal(tmp_path, objects, **values)
    assert why is not None and "Secret tokens has no key produce" in why
    whole = dict.fromkeys(("admin", "produce", "consume", "system"), "YQ==")
    assert refusal(tmp_path, [{**given, "data": whole}], **values) is None
