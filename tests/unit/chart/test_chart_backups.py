"""The CronJobs of backups in the chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.chart.test_chart import ROOT, needs_helm, pods, refusal, render

pytestmark = needs_helm
SCHEDULE = "30 1 * * *"
AT_URL = {"schedule": SCHEDULE, "url": "s3://bucket/shop/", "existingSecret": "keys"}
IN_CLAIM = {"schedule": SCHEDULE, "existingClaim": "backups"}


def container(spec: dict[str, Any]) -> dict[str, Any]:
    [found] = spec["containers"]
    return dict(found)


def test_there_is_no_backup_without_a_schedule() -> None:
    found = render()
    assert not [name for each in found.values() for name in each if "backup" in name]


def test_each_shard_is_backed_up_to_a_folder_of_its_own() -> None:
    found = pods(render(shards=2, backup=AT_URL))
    for shard in (0, 1):
        spec = found[f"shop-mqstore-backup-{shard}"]
        *_, place, keep, rate = container(spec)["args"]
        assert (place, keep, rate) == (f"s3://bucket/shop/shard-{shard}", "14", "")
        assert container(spec)["envFrom"] == [{"secretRef": {"name": "keys"}}]
        [volume] = [each for each in spec["volumes"] if each["name"] == "store"]
        claim = volume["persistentVolumeClaim"]["claimName"]
        assert claim == f"store-shop-mqstore-shard-{shard}"


def test_a_backup_is_made_on_the_node_of_its_shard_and_cannot_change_the_volume() -> None:
    spec = pods(render(backup=IN_CLAIM))["shop-mqstore-backup-0"]
    [term] = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = term["labelSelector"]["matchLabels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "shop-mqstore-shard-0"
    assert term["topologyKey"] == "kubernetes.io/hostname"
    mounts = {each["name"]: each for each in container(spec)["volumeMounts"]}
    assert mounts["store"] == {
        "name": "store",
        "mountPath": "/var/lib/mqstore",
        "readOnly": True,
    }
    assert "readOnly" not in mounts["backups"]
    assert container(spec)["args"][-3] == f"{mounts['backups']['mountPath']}/shard-0"


def test_a_backup_satisfies_the_restricted_profile_and_has_no_rights() -> None:
    found = render(backup=AT_URL)
    spec = pods(found)["shop-mqstore-backup-0"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(spec)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container(spec)["resources"]["limits"]["memory"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "shop-mqstore-backup"
    assert "shop-mqstore-backup" not in found["Role"]


def test_with_replicas_the_volume_of_the_first_one_is_read() -> None:
    spec = pods(render(replicas=3, shards=2, backup=AT_URL))["shop-mqstore-backup-1"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "store"]
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert claim == "store-shop-mqstore-shard-1-0"
    replicas = render(replicas=3, shards=2)["StatefulSet"]["shop-mqstore-shard-1"]["spec"]
    assert replicas["volumeClaimTemplates"][0]["metadata"]["name"] == "store"


def test_image_rate_and_claim_are_as_the_values_say() -> None:
    backup = AT_URL | {"image": "registry/services:s3", "rateMiB": 12.5, "keep": 3}
    found = render(backup=backup, persistence={"existingClaim": "ours"})
    spec = pods(found)["shop-mqstore-backup-0"]
    assert container(spec)["image"] == "registry/services:s3"
    assert container(spec)["args"][-2:] == ["3", "--rate=12.5"]
    assert {"claimName": "ours"} in [each.get("persistentVolumeClaim") for each in spec["volumes"]]
    assert found["CronJob"]["shop-mqstore-backup-0"]["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_backup_reports_its_result_to_the_writer_of_its_shard() -> None:
    found = pods(render(shards=2, backup=AT_URL))["shop-mqstore-backup-1"]
    variables = {each["name"]: each["value"] for each in container(found)["env"]}
    assert variables == {
        "MQSTORE_WRITER_URL": "http://shop-mqstore-shard-1:8081",
        "MQSTORE_TOKEN_FILE": "/etc/mqstore/tokens/system",
    }
    [tokens] = [each for each in found["volumes"] if each["name"] == "tokens"]
    assert tokens["secret"]["items"] == [{"key": "system", "path": "system"}]
    script = container(found)["args"][2].splitlines()
    assert [line.split()[2] for line in script] == ["create", "prune"]
    assert "--report" in script[0]
    checked = pods(render(backup=AT_URL | {"verify": True}))["shop-mqstore-backup-0"]
    script = container(checked)["args"][2].splitlines()
    assert [line.split()[2] for line in script] == ["create", "verify", "prune"]
    assert "--report" in script[1]


def test_only_the_place_of_backups_and_the_writers_are_reached() -> None:
    egress = [{"ports": [{"port": 443}]}]
    policies = render(backup=AT_URL | {"egress": egress})["NetworkPolicy"]
    policy = policies["shop-mqstore-backup"]
    assert policy["spec"]["ingress"] == []
    writers, dns, place = policy["spec"]["egress"]
    assert writers["ports"] == [{"port": 8081}]
    backups = policy["spec"]["podSelector"]
    assert {"from": [{"podSelector": backups}], "ports": [{"port": 8081}]} in (
        policies["shop-mqstore-shard"]["spec"]["ingress"]
    )
    assert dns["ports"][0]["port"] == 53
    assert [place] == egress


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"backup": {"schedule": SCHEDULE}}, "needs a place"),
        ({"backup": AT_URL | IN_CLAIM}, "/backup"),
        ({"backup": AT_URL | {"keep": 0}}, "/backup/keep"),
        (
            {"backup": AT_URL, "persistence": {"accessMode": "ReadWriteOncePod"}},
            "accessMode ReadWriteOnce",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], why: str) -> None:
    assert why in refusal(**values)


def test_an_alert_fires_when_the_newest_backup_is_too_old() -> None:
    rules = {"rules": {"enabled": True}}
    [group] = render(monitoring=rules, backup=AT_URL)["PrometheusRule"]["shop-mqstore"]["spec"][
        "groups"
    ]
    [rule] = [each for each in group["rules"] if each["alert"] == "MqstoreBackupTooOld"]
    assert rule["expr"].endswith("> 93600")
    assert 'cronjob=~"shop-mqstore-backup-[0-9]+"' in rule["expr"]
    assert rule["alert"] in (ROOT / "docs/how-to/monitor-the-services.md").read_text("utf-8")
    [without] = render(monitoring=rules)["PrometheusRule"]["shop-mqstore"]["spec"]["groups"]
    assert len(without["rules"]) == len(group["rules"]) - 1
