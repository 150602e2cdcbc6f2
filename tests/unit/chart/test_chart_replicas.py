"""The chart with replicas of each shard; without helm it is skipped."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import yaml

from mqstore.service.ha_tls import HaTls
from tests.unit.chart.settings_schema import CHART, SCHEMA
from tests.unit.chart.test_chart import Rendered, needs_helm, pods, refusal, render

MOST: Final = 9
"""The greatest value of ``replicas``."""
SHARD: dict[str, str] = {
    "app.kubernetes.io/name": "mqstore",
    "app.kubernetes.io/instance": "shop",
    "app.kubernetes.io/component": "shard",
}


def replicated(**more: Any) -> Rendered:
    return render(replicas=3, shards=2, **more)


def of_shard(number: int) -> dict[str, str]:
    return {**SHARD, "mqstore/shard": str(number)}


def environment(found: Rendered, pod: str) -> dict[str, Any]:
    """The variables of store-writer by name; those with a source have it."""
    writer = pods(found)[pod]["containers"][0]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in writer["env"]}


@needs_helm
def test_one_replica_is_the_default_and_has_no_object_of_replicas() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["replicas"] == 1
    found = render(shards=2)
    assert list(found["StatefulSet"]) == ["shop-mqstore-shard"]
    assert "Lease" not in found
    assert "shop-mqstore-read" not in found["Service"]
    assert not [name for name in environment(found, "shop-mqstore-shard") if "ELECT" in name]


@needs_helm
def test_each_shard_is_a_set_of_pods_with_a_volume_each_that_elects_its_leader() -> None:
    found = replicated()
    assert list(found["StatefulSet"]) == ["shop-mqstore-shard-0", "shop-mqstore-shard-1"]
    spec = found["StatefulSet"]["shop-mqstore-shard-1"]["spec"]
    assert (spec["replicas"], spec["selector"]["matchLabels"]) == (3, of_shard(1))
    assert of_shard(1).items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "store"
    given = environment(found, "shop-mqstore-shard-1")
    assert (given["MQSTORE_SHARD"], given["MQSTORE_FOUNDING_REPLICA"]) == (
        "1",
        "shop-mqstore-shard-1-0",
    )
    assert given["MQSTORE_ELECTION_LEASE"] == "kubernetes:shop-mqstore-shard-1"
    assert given["MQSTORE_STORE_HOST"] == "198.18.0.$(MQSTORE_SHARD):10911"


@needs_helm
def test_a_change_of_replicas_restarts_no_pod() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema["properties"]["replicas"]["maximum"] == MOST
    name = "shop-mqstore-shard-0"
    few, many = replicated(), render(replicas=MOST, shards=2)
    assert (
        few["StatefulSet"][name]["spec"]["template"]
        == (many["StatefulSet"][name]["spec"]["template"])
    )
    labelled = environment(few, name)["MQSTORE_REPLICA_PODS"].split()
    assert labelled == [f"{name}-{number}" for number in range(MOST)]


@needs_helm
def test_operators_reach_the_objects_of_each_shard() -> None:
    rules = replicated()["Role"]["shop-mqstore-operator"]["rules"]
    names = ["shop-mqstore-shard-0", "shop-mqstore-shard-1"]
    for resource in ("statefulsets/scale", "leases"):
        (rule,) = (each for each in rules if resource in each["resources"])
        assert rule["resourceNames"] == names
    deleted = [each["resourceNames"] for each in rules if each["verbs"] == ["delete"]]
    assert names in deleted
    assert [each for found in deleted for each in found if each.endswith("shard-1-8")]
    assert not [each for found in deleted for each in found if each.endswith("shard-1-0")]


@needs_helm
def test_replicas_of_a_shard_are_spread_over_nodes_and_zones() -> None:
    for spread in ("ScheduleAnyway", "DoNotSchedule"):
        pod = pods(replicated(replicaSpread=spread))["shop-mqstore-shard-1"]
        constraints = pod["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in constraints] == [
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        ]
        for each in constraints:
            assert each["whenUnsatisfiable"] == spread
            assert each["labelSelector"]["matchLabels"] == of_shard(1)


@needs_helm
def test_services_select_leaders_and_one_reads_from_any_replica() -> None:
    services = replicated()["Service"]
    leads = {"mqstore/role": "leader"}
    assert services["shop-mqstore"]["spec"]["selector"] == SHARD | leads
    assert services["shop-mqstore-shard-1"]["spec"]["selector"] == of_shard(1) | leads
    read = services["shop-mqstore-read"]["spec"]
    assert read["selector"] == SHARD
    assert [each["port"] for each in read["ports"]] == [8082]


@needs_helm
def test_a_shard_may_touch_its_own_lease_and_pods_only() -> None:
    found = replicated()
    assert found["Role"]["shop-mqstore-shard-1"]["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["shop-mqstore-shard-1"],
            "verbs": ["get", "patch"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": [f"shop-mqstore-shard-1-{number}" for number in range(MOST)],
            "verbs": ["patch"],
        },
    ]
    pod = pods(found)["shop-mqstore-shard-1"]
    assert pod["serviceAccountName"] == "shop-mqstore-shard-1"
    assert pod["automountServiceAccountToken"] is False
    mounts = [[each["name"] for each in one["volumeMounts"]] for one in pod["containers"]]
    assert ["account" in names for names in mounts] == [True, False]


@needs_helm
def test_a_terminated_leader_serves_reads_while_it_hands_over() -> None:
    query = pods(replicated())["shop-mqstore-shard-0"]["containers"][1]
    assert query["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]
    assert "lifecycle" not in pods(render())["shop-mqstore-shard"]["containers"][1]


@needs_helm
def test_a_lease_outlives_the_release_with_its_volumes_and_has_no_content() -> None:
    lease = replicated()["Lease"]["shop-mqstore-shard-1"]
    assert "spec" not in lease
    assert lease["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    lease = replicated(persistence={"retain": False})["Lease"]["shop-mqstore-shard-1"]
    assert "annotations" not in lease["metadata"]


@needs_helm
def test_one_pod_of_a_shard_may_be_evicted_at_a_time() -> None:
    budgets = replicated()["PodDisruptionBudget"]
    names = ["shop-mqstore-coordinator", "shop-mqstore-shard-0", "shop-mqstore-shard-1"]
    assert sorted(budgets) == names
    spec = budgets["shop-mqstore-shard-1"]["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["selector"]["matchLabels"] == of_shard(1)


@needs_helm
def test_only_pods_of_shards_reach_the_ports_of_the_log_and_they_reach_the_api_server() -> None:
    policy = replicated()["NetworkPolicy"]["shop-mqstore-shard"]["spec"]
    ports = [{"port": 10912}]
    (rule,) = (each for each in policy["ingress"] if each["ports"] == ports)
    assert rule["from"] == [{"podSelector": {"matchLabels": SHARD}}]
    assert {"port": 6443} in policy["egress"][-1]["ports"]
    alone = render(shards=2)["NetworkPolicy"]["shop-mqstore-shard"]["spec"]
    assert [each["ports"] for each in alone["ingress"]] == [[{"port": 8081}, {"port": 8082}]]
    assert {"port": 6443} not in alone["egress"][-1]["ports"]


@needs_helm
def test_replicas_prove_themselves_by_a_secret_that_the_chart_makes() -> None:
    found = replicated(networkPolicy={"enabled": False})
    secret = found["Secret"]["shop-mqstore-replicas"]
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert len(base64.b64decode(secret["data"]["secret"])) == 40
    given = environment(found, "shop-mqstore-shard-0")
    assert given["MQSTORE_REPLICA_SECRET_FILE"] == "/etc/mqstore/replicas/secret"
    assert "MQSTORE_HA_ALLOWED_SLAVES" not in given
    writer, query = pods(found)["shop-mqstore-shard-1"]["containers"]
    (mount,) = [each for each in writer["volumeMounts"] if each["name"] == "replica-secret"]
    assert mount["mountPath"] == "/etc/mqstore/replicas"
    assert "replica-secret" not in [each["name"] for each in query["volumeMounts"]]
    assert secret_of(found, "replica-secret") == "shop-mqstore-replicas"
    assert "shop-mqstore-replicas" not in render()["Secret"]


@needs_helm
def test_another_secret_of_replicas_may_be_named() -> None:
    found = replicated(replicaSecret="own")
    assert "shop-mqstore-replicas" not in found["Secret"]
    assert secret_of(found, "replica-secret") == "own"
    assert "replicaSecret is for replicas" in refusal(replicaSecret="own")


@needs_helm
def test_replicas_need_volumes_of_their_own() -> None:
    assert "one volume" in refusal(replicas=3, persistence={"existingClaim": "data"})


@needs_helm
def test_replicas_of_a_new_release_copy_the_log_by_tls() -> None:
    found = replicated()
    given = environment(found, "shop-mqstore-shard-1")
    writer, query = pods(found)["shop-mqstore-shard-1"]["containers"]
    (mount,) = [each for each in writer["volumeMounts"] if each["name"] == "replica-tls"]
    names = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
    for name, file in names.items():
        assert given[f"MQSTORE_HA_TLS_{name}"] == f"{mount['mountPath']}/{file}"
    assert "replica-tls" not in [each["name"] for each in query["volumeMounts"]]
    assert secret_of(found, "replica-tls") == "shop-mqstore-replicas"


@needs_helm
def test_certificates_of_the_chart_connect_replicas(tmp_path: Path) -> None:
    data = replicated()["Secret"]["shop-mqstore-replicas"]["data"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(data[name]))
    tls = HaTls(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")

    async def run() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(1))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.server)
        async with server:
            address = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*address, ssl=tls.client())
            writer.write(b"a")
            assert await reader.read() == b"a"
            writer.close()

    asyncio.run(run())


@needs_helm
def test_replicas_copy_the_log_by_certificates_of_another_authority() -> None:
    found = replicated(replicaTlsSecret="certificates")
    assert secret_of(found, "replica-tls") == "certificates"
    assert list(found["Secret"]["shop-mqstore-replicas"]["data"]) == ["secret"]
    assert "replicaTlsSecret is for replicas" in refusal(replicaTlsSecret="certificates")


@needs_helm
def test_slaves_of_rocketmq_are_served_without_tls() -> None:
    found = replicated(settings={"haAllowedSlaves": "10.1.2.3"})
    assert "MQSTORE_HA_TLS_CERT" not in environment(found, "shop-mqstore-shard-1")
    assert list(found["Secret"]["shop-mqstore-replicas"]["data"]) == ["secret"]


def secret_of(found: Rendered, volume: str) -> str:
    """The name of the Secret of a volume of the shards."""
    volumes = pods(found)["shop-mqstore-shard-1"]["volumes"]
    (named,) = [each["secret"]["secretName"] for each in volumes if each["name"] == volume]
    return str(named)
