"""Commands of the kubectl plugin on releases with replicas, and between one and several, on a
simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from mqstore.cli.kube import grow, replicas
from mqstore.cli.kube.release import Release, Shard
from tests.unit.cli.test_kubectl_commands import (
    NAME,
    Cluster,
    cluster,
    copy,
    does,
    items,
    stateful_set,
)

__all__ = ["cluster", "copy"]
SET: Final = f"{NAME}-shard"
STORE_ID: Final = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
REPLICA: Final = f"{SET}-0-0/{STORE_ID[:8]}"
HELM: Final = {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shops"}


def replicated(shard: int, pods: int = 3) -> dict[str, Any]:
    """The StatefulSet of a shard with replicas."""
    found = stateful_set(pods)
    found["metadata"] |= {"name": f"{SET}-{shard}", "namespace": "shops"}
    found["spec"]["selector"] = {"matchLabels": {"mqstore/shard": str(shard)}}
    return found


def single(shards: int = 1) -> dict[str, Any]:
    found = stateful_set(shards)
    found["metadata"] |= {"namespace": "shops", "annotations": {**HELM, "other": "x"}}
    return found


def leader(shard: int, replica: int) -> dict[str, Any]:
    """A ready pod that leads."""
    conditions = [{"type": "Ready", "status": "True"}]
    name = f"{SET}-{shard}-{replica}"
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def lease(*pods: str) -> dict[str, Any]:
    in_sync = " ".join(f"{SET}-0-{pod}/{STORE_ID[:8]}" for pod in pods)
    return {"metadata": {"annotations": {"mqstore/in-sync": in_sync}}}


def claim(storage: str = "1Gi") -> dict[str, Any]:
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv-7"}
    status = {"capacity": {"storage": storage}, "phase": "Bound"}
    return {"metadata": {}, "spec": spec, "status": status}


def volume(bound_to: str, **annotations: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "shops", "name": bound_to, "uid": "1"},
        "persistentVolumeReclaimPolicy": "Retain" if annotations else "Delete",
        "storageClassName": "fast",
    }
    return {"metadata": {"name": "pv-7", "annotations": annotations}, "spec": spec}


@pytest.fixture
def calls(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of the leaders, among the commands of kubectl."""
    made: list[str] = []

    def note(call: str) -> None:
        made.append(call)
        with (cluster.home / "requests").open("a") as requests:
            requests.write(json.dumps([call, ""]) + "\n")

    class Leader:
        def __init__(self, shard: Shard) -> None:
            self._shard = shard

        def store(self) -> Any:
            return SimpleNamespace(store_id=STORE_ID, min_offset=0, max_offset=4096)

        def flush(self) -> None:
            note(f"flush {self._shard.name}")

        def release_keys(self, number: int) -> None:
            note(f"release the keys of shard {number}")

        def switch_over(self, to: str | None) -> Any:
            note(f"switch over {self._shard.name} to {to}")
            return SimpleNamespace(successor=f"{to or SET + '-0-0'}/0a1b2c3d")

        def retention(self, limit: int) -> Any:
            return SimpleNamespace(segments=[], made_ms=0)

    @contextmanager
    def client(_: Release, shard: Shard) -> Iterator[Leader]:
        yield Leader(shard)

    monkeypatch.setattr(Release, "client", client)
    return made


def test_volumes_of_followers_grow_before_the_leader_hands_over(
    cluster: Cluster, calls: list[str]
) -> None:
    followers = [f"^get pvc store-{SET}-0-{number}" for number in (0, 2)]
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(1), replicated(0))],
            "^get pods .*shard=0": [items(leader(0, 1))],
            "^get pods .*shard=1": [items(leader(1, 1))],
            **{each: [claim(), claim("1Gi"), claim("2Gi")] for each in followers},
            f"^get pvc store-{SET}-0-1": [claim(), claim(), claim("2Gi")],
            "^get pvc": [claim(), claim("2Gi")],
        }
    )
    ran = does("grow", "2Gi")
    assert (ran.exit_code, ran.stderr) == (0, "")
    steps = cluster.commands("^patch|^switch|^delete|^create")
    assert [step.partition(" --patch")[0] for step in steps] == [
        f"patch pvc store-{SET}-0-0",
        f"patch pvc store-{SET}-0-2",
        f"switch over {SET}-0-1 to None",
        f"patch pvc store-{SET}-0-1",
        f"patch pvc store-{SET}-1-0",
        f"patch pvc store-{SET}-1-2",
        f"delete statefulset/{SET}-0 --cascade=orphan",
        "create -f -",
        f"delete statefulset/{SET}-1 --cascade=orphan",
        "create -f -",
    ]
    for made in cluster.requests("^create"):
        [template] = json.loads(made)["spec"]["volumeClaimTemplates"]
        assert template["spec"]["resources"]["requests"]["storage"] == "2Gi"


def test_a_leader_keeps_the_lead_if_the_volume_of_a_follower_does_not_grow(
    cluster: Cluster, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow, "GROWN_S", 0.0)
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get pods": [items(leader(0, 1))],
            "^get pvc": [claim()],
        }
    )
    ran = does("grow", "2Gi")
    assert ran.exit_code == 2
    assert f"store-{SET}-0-0 has not grown in time" in ran.stderr
    assert not calls
    assert not cluster.commands(f"^patch pvc store-{SET}-0-1|^delete")


def test_a_removed_shard_has_no_replica_and_the_others_are_as_before(
    cluster: Cluster, calls: list[str]
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(*(replicated(number) for number in (2, 0, 1)))],
            **{f"^get pods .*shard={n}": [items(leader(n, 2))] for n in range(3)},
        }
    )
    ran = does("scale", "1")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert calls == [f"release the keys of shard {number}" for number in (1, 2)]
    names = [f"statefulset/{SET}-{number}" for number in (1, 2)]
    assert cluster.commands("^scale") == [f"scale {name} --replicas=0" for name in names]
    assert does("scale", "4").exit_code == 2


def test_a_removed_shard_is_no_shard_any_more(cluster: Cluster, calls: list[str]) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0), replicated(1, pods=0))],
            "^get pods": [items(leader(0, 2))],
        }
    )
    ran = does("switchover", "1")
    assert ran.exit_code == 2
    assert "no shard 1; there are 1" in ran.stderr
    ran = does("switchover", "0", "--to", f"{SET}-0-1")
    assert ran.stdout == f"shard 0: {SET}-0-1 leads, in place of {SET}-0-2\n"


@pytest.mark.parametrize("known", [True, False], ids=["a store of mqstore", "of a broker"])
def test_a_restored_replica_leads_and_the_others_begin_with_empty_volumes(
    cluster: Cluster, copy: Path, calls: list[str], known: bool
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get pods": [items(leader(0, 1))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n1000000"],
            "format.json": [{"storeId": STORE_ID} if known else ""],
        }
    )
    assert does("restore", "0", str(copy)).exit_code == 2, "it holds messages"
    ran = does("restore", "0", str(copy), "--replace")
    assert (ran.exit_code, ran.stderr) == (0, "")
    [made] = cluster.requests("^apply")
    [mounted] = json.loads(made)["spec"]["volumes"]
    assert mounted["persistentVolumeClaim"]["claimName"] == f"store-{SET}-0-0"
    steps = cluster.commands("^scale|^wait .*delete|mv /var|^patch|^delete")
    assert [step.split(" --")[0].partition(" -c")[0] for step in steps] == [
        f"scale statefulset/{SET}-0",
        f"wait pod/{SET}-0-0 pod/{SET}-0-1 pod/{SET}-0-2",
        f"exec {NAME}-restore-0",
        f"patch lease {SET}-0",
        f"delete pvc store-{SET}-0-1",
        f"delete pvc store-{SET}-0-2",
        f"delete pod/{NAME}-restore-0",
        f"scale statefulset/{SET}-0",
    ]
    assert cluster.commands("^scale")[1].endswith("--replicas=3")
    patch = json.loads(cluster.commands("^patch lease")[0].partition("--patch ")[2])
    assert patch["metadata"]["annotations"]["mqstore/in-sync"] == (REPLICA if known else "")
    assert patch["spec"] == {"holderIdentity": ""} | ({} if known else {"leaseTransitions": 0})


def test_a_restore_that_fails_changes_no_lease_and_deletes_no_volume(
    cluster: Cluster, copy: Path, calls: list[str]
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get pods": [items(leader(0, 1))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n1000000"],
            "^exec -i": [{"error": "no space left"}],
        }
    )
    assert does("restore", "0", str(copy), "--replace").exit_code == 2
    assert not cluster.commands("^patch|^delete pvc")
    assert cluster.commands("^scale")[-1] == f"scale statefulset/{SET}-0 --replicas=3"


def test_a_snapshot_is_of_the_leaders_volume_and_names_its_offset(
    cluster: Cluster, calls: list[str]
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get pods": [items(leader(0, 2))],
            "^api-resources": ["volumesnapshots.snapshot.storage.k8s.io"],
        }
    )
    assert "would take a snapshot" in does("backup", "0", "--snapshot", "fast", "--dry-run").stdout
    assert calls == []
    ran = does("backup", "0", "--snapshot", "fast")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "its log up to offset 4096 at least" in ran.stdout
    assert calls == [f"flush {SET}-0-2"]
    [made] = cluster.requests("^create")
    assert json.loads(made)["spec"]["source"] == {"persistentVolumeClaimName": f"store-{SET}-0-2"}


def test_a_dry_run_of_a_backup_says_how_much_it_copies_and_pauses_nothing(
    cluster: Cluster, calls: list[str], tmp_path: Path
) -> None:
    cluster.answers(
        {"^get statefulsets": [items(replicated(0))], "^get pods": [items(leader(0, 2))]}
    )
    ran = does("backup", "0", str(tmp_path / "copy"), "--dry-run")
    assert (ran.exit_code, ran.stderr, calls) == (0, "", [])
    assert f"would pause the writes of {SET}-0-2, and copy its log of 4.0 KiB" in ran.stdout
    assert not (tmp_path / "copy").exists()


SHARDS: Final = {"data": {"shards.json": json.dumps({"shards": [{"shard": 0}]})}}
RENAMES: Final = "^patch|^scale|^switch|^delete|^create"


def test_one_replica_becomes_the_first_of_several_with_its_volume(
    cluster: Cluster, calls: list[str]
) -> None:
    old, new = f"store-{SET}-0", f"store-{SET}-0-0"
    cluster.answers(
        {
            "^get statefulsets": [items(single())],
            "^get configmap": [SHARDS],
            "^get pods": [items({**leader(0, 0), "metadata": {"name": f"{SET}-0"}})],
            f"^get pvc {old} ": [claim()],
            "^get pv pv-7": [volume(old)],
            "^get lease .*-o name": [""],
            f"^get lease {SET}-0 ": [lease("0")],
        }
    )
    dry = does("replicas", "3", "--dry-run")
    said = f"shard 0: would stop, and give the volume of claim {old} to claim {new}\n"
    assert (dry.exit_code, dry.stdout, cluster.commands(RENAMES)) == (0, said, [])
    ran = does("replicas", "3")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "helm upgrade … --set replicas=3" in ran.stdout
    steps = [step.partition(" --patch")[0] for step in cluster.commands(RENAMES)]
    assert steps == [
        "patch pv pv-7 --type=merge",
        "create -f -",
        f"patch lease {SET}-0 --type=merge",
        f"scale statefulset/{SET} --replicas=0",
        "patch pv pv-7 --type=merge",
        f"delete pvc {old} --ignore-not-found --wait --timeout=300s",
        "patch pv pv-7 --type=merge",
        "create -f -",
        "patch pv pv-7 --type=merge",
    ]
    made_lease, made_claim = map(json.loads, cluster.requests("^create"))
    assert made_lease["metadata"]["annotations"] == HELM
    assert made_claim["metadata"]["name"] == new
    assert made_claim["spec"]["volumeName"] == "pv-7"
    [named] = cluster.commands("^patch lease")
    assert REPLICA in named
    patches = [json.loads(each.partition("--patch ")[2]) for each in cluster.commands("^patch pv")]
    policies = [each["spec"].get("persistentVolumeReclaimPolicy") for each in patches]
    assert policies == ["Retain", "Retain", None, "Delete"]
    assert patches[2]["spec"]["claimRef"] == {
        "namespace": "shops",
        "name": new,
        "uid": None,
        "resourceVersion": None,
    }


def test_the_first_of_several_replicas_leads_and_ends_last_before_it_is_the_only_one(
    cluster: Cluster, calls: list[str]
) -> None:
    old = f"store-{SET}-0-0"
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get configmap": [SHARDS],
            "^get pods": [items(leader(0, 2))],
            f"^get pvc {old} ": [claim()],
            "^get pv pv-7": [volume(old)],
            "^get lease": [lease("0", "1", "2"), lease("0", "1"), lease("0")],
        }
    )
    ran = does("replicas", "1")
    assert (ran.exit_code, ran.stderr) == (0, "")
    steps = [step.partition(" --patch")[0] for step in cluster.commands(RENAMES + "|^wait pod")]
    assert steps[1:7] == [
        f"switch over {SET}-0-2 to {SET}-0-0",
        f"scale statefulset/{SET}-0 --replicas=1",
        f"wait pod/{SET}-0-1 pod/{SET}-0-2 --for=delete --timeout=300s",
        f"scale statefulset/{SET}-0 --replicas=0",
        f"wait pod/{SET}-0-0 --for=delete --timeout=300s",
        "patch pv pv-7 --type=merge",
    ]
    assert json.loads(cluster.requests("^create")[0])["metadata"]["name"] == f"store-{SET}-0"


def test_no_volume_is_renamed_while_another_replica_has_messages_that_it_lacks(
    cluster: Cluster, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "IN_SYNC_S", 0.0)
    for pods in (("0", "2"), ("2",), ()):
        cluster.answers(
            {
                "^get statefulsets": [items(replicated(0))],
                "^get configmap": [SHARDS],
                "^get pods": [items(leader(0, 0))],
                f"^get pvc store-{SET}-0-0 ": [claim()],
                "^get pv pv-7": [volume(f"store-{SET}-0-0")],
                "^get lease": [lease(*pods)],
            }
        )
        ran = does("replicas", "1")
        assert ran.exit_code == 2
        assert f"{SET}-0-0 is not the only replica in sync of shard 0" in ran.stderr
    assert not cluster.commands("^delete|--replicas=0")


@pytest.mark.parametrize("present", ["old", "neither", "new"])
def test_a_change_that_was_interrupted_goes_on(
    cluster: Cluster, calls: list[str], present: str
) -> None:
    old, new = f"store-{SET}-0", f"store-{SET}-0-0"
    kept = volume(new if present == "new" else old, **{replicas._POLICY: "Delete"})
    cluster.answers(
        {
            "^get statefulsets": [items({**single(), "spec": {**single()["spec"], "replicas": 0}})],
            "^get configmap": [SHARDS],
            f"^get pvc {old} ": [claim() if present == "old" else ""],
            f"^get pvc {new} ": [claim() if present == "new" else ""],
            "^get pv pv-7": [kept],
            "^get pv ": [items(volume("another"), kept)],
            "^get lease": [lease("0")],
        }
    )
    ran = does("replicas", "3")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert not calls
    assert not cluster.commands("^scale")
    bound = [each for each in cluster.commands("^patch pv") if "claimRef" in each]
    assert len(bound) == (present != "new")
    assert len(cluster.requests("^create")) == (present != "new")
    assert '"persistentVolumeReclaimPolicy": "Delete"' in cluster.commands("^patch pv")[-1]


def test_nothing_is_stopped_without_the_right_to_rename(cluster: Cluster, calls: list[str]) -> None:
    cluster.answers(
        {"^get statefulsets": [items(single())], "^auth": [{"error": "no"}]},
    )
    ran = does("replicas", "3")
    assert ran.exit_code == 2
    assert "the right to patch PersistentVolumes" in ran.stderr
    assert not cluster.commands("^scale|^patch")


def test_a_number_of_replicas_between_several_needs_an_upgrade_only(
    cluster: Cluster, calls: list[str]
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get configmap": [SHARDS],
            "^get pvc": [claim()],
            "^get pv ": [volume(f"store-{SET}-0-0")],
        }
    )
    ran = does("replicas", "2")
    assert (ran.exit_code, ran.stdout) == (0, "upgrade now: helm upgrade … --set replicas=2\n")
    assert not cluster.commands("^scale|^patch")


def test_running_shards_without_their_claims_are_not_stopped(
    cluster: Cluster, calls: list[str]
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get configmap": [SHARDS],
            "^get pvc": [""],
        }
    )
    ran = does("replicas", "2")
    assert ran.exit_code == 2
    assert f"claims of theirs do not exist: store-{SET}-0-0" in ran.stderr
    assert not cluster.commands("^scale|^patch")


@pytest.mark.parametrize("exists", [True, False])
def test_a_shard_without_a_leader_says_whether_its_lease_exists(
    cluster: Cluster, exists: bool
) -> None:
    found = f"lease.coordination.k8s.io/{SET}-0\n" if exists else ""
    cluster.answers(
        {
            "^get statefulsets": [items(replicated(0))],
            "^get pods": [items()],
            "^get lease": [found],
        }
    )
    ran = does("status", "-o", "json")
    (row,) = json.loads(ran.stdout)["shards"]
    assert ran.exit_code == 1
    assert row["why"].startswith("no replica of shard 0 leads")
    assert (f"the Lease {SET}-0 does not exist" in row["why"]) != exists
    assert f"kubectl logs {SET}-0-0 store-writer" in row["why"]
