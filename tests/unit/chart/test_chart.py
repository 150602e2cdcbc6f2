"""The chart as helm renders it; without helm (on the PATH, or the kube tool's) it is skipped."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from functools import cache, partial
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pytest
import yaml
import zstandard

from docs.generate.metrics import metric_names
from tests.unit.chart.settings_schema import CHART, SCHEMA, completed

ROOT = Path(__file__).parents[3]
TOOLS = ROOT.parent / "shared" / "kube" / "bin"


def _helm() -> str | None:
    """On the PATH, else the kube tool's, unpacked."""
    packed, unpacked = TOOLS / "helm.zst", ROOT / "build" / "helm"
    found = shutil.which("helm")
    if found is not None or not packed.exists():
        return found
    if not unpacked.exists():
        unpacked.parent.mkdir(exist_ok=True)
        staged = unpacked.with_name(f"helm.{os.getpid()}")
        with packed.open("rb") as source, staged.open("wb") as target:
            zstandard.ZstdDecompressor(max_window_size=1 << 31).copy_stream(source, target)
        staged.chmod(0o755)
        staged.rename(unpacked)
    return str(unpacked)


HELM = _helm()
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm on the PATH, or the kube tool")
load_all = partial(yaml.load_all, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
Rendered = dict[str, dict[str, dict[str, Any]]]
EVERYTHING = {
    "shards": 3,
    "coordinator": {"callbackHosts": "shop.example.org"},
    "jobs": {"output": {"existingClaim": "results"}},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "rules": {"enabled": True, "runbookUrl": "https://example.org/docs"},
        "dashboard": {"enabled": True},
    },
    "ingress": {"enabled": True, "writerHost": "w.example.org", "tlsSecret": "cert"},
    "gateway": {"enabled": True, "parentRefs": [{"name": "all"}], "queryHost": "q.example.org"},
}


def _run(*words: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    command = [HELM, *words, str(CHART), "-f", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)


def render(**values: Any) -> Rendered:
    """The rendered objects, by kind and name."""
    return _rendered(json.dumps(values))


@cache
def _rendered(values: str) -> Rendered:
    done = _run("template", "shop", values=json.loads(values))
    assert done.returncode == 0, done.stderr
    found: Rendered = defaultdict(dict)
    for document in load_all(done.stdout):
        found[document["kind"]][document["metadata"]["name"]] = document
    return found


def refusal(**values: Any) -> str:
    done = _run("template", "shop", values=values)
    assert done.returncode != 0
    return done.stderr


def pods(found: Rendered) -> dict[str, dict[str, Any]]:
    """The specification of every pod that the chart makes."""
    kinds = {**found["StatefulSet"], **found["Deployment"]}
    kinds |= {name: each["spec"]["jobTemplate"] for name, each in found["CronJob"].items()}
    specs = {name: each["spec"]["template"]["spec"] for name, each in kinds.items()}
    return specs | {name: each["spec"] for name, each in found["Pod"].items()}


def executor(found: Rendered, job: str) -> dict[str, Any]:
    """The template of an executor's pod."""
    text = found["ConfigMap"][f"shop-mqstore-{job}"]["data"]["executor.yaml"]
    template: dict[str, Any] = yaml.safe_load(text)
    return template


@needs_helm
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    done = _run("lint", "--strict", "--quiet", values=values)
    assert done.returncode == 0, done.stdout


def test_the_schema_knows_every_setting_of_the_services() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    said = "run python -m tests.unit.chart.settings_schema"
    assert completed(json.loads(json.dumps(schema))) == schema, said


def test_the_schema_names_exactly_the_values_that_there_are() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    _compare(schema, values, "")


def _compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
    if not values or "properties" not in schema:
        return
    assert schema["additionalProperties"] is False, path
    assert set(schema["properties"]) - {"global"} == set(values), path
    assert set(schema.get("required", ())) == _needed(schema, values), path
    for name, value in values.items():
        if isinstance(value, dict):
            _compare(schema["properties"][name], value, f"{path}/{name}")


def _needed(schema: dict[str, Any], values: dict[str, Any]) -> set[str]:
    """Values that ``null`` may not remove: sections, and values with a default whose type has no
    null."""
    return {
        name
        for name, value in values.items()
        if "properties" in schema["properties"][name]
        or (
            isinstance(value, str | int | float)
            and value != ""
            and "null" not in schema["properties"][name].get("type", ())
        )
    }


@needs_helm
def test_wrong_values_are_refused_by_name() -> None:
    store = {"flushDisk": "SYNC_FLUSH", "mappedFileSizeCommitLog": 12}
    said = refusal(store=store, persistence={"accessMode": "RWX"}, replica=2, shards=0)
    assert "'flushDisk' not allowed" in said
    assert "/store/mappedFileSizeCommitLog" in said
    assert "/persistence/accessMode" in said
    assert "'replica' not allowed" in said
    assert "/shards" in said
    assert "is one volume" in refusal(shards=2, persistence={"existingClaim": "mine"})
    assert "missing property 'shards'" in refusal(shards=None)
    assert "'limit' not allowed" in refusal(writer={"resources": {"limit": {"memory": "1Gi"}}})
    assert "/topologyKeys/0" in refusal(topologyKeys=[""])
    assert "/storeHost/network" in refusal(storeHost={"network": "999.18.0"})


@needs_helm
def test_a_misspelt_resource_is_refused_and_an_extended_one_accepted() -> None:
    assert "'memry' not allowed" in refusal(query={"resources": {"limits": {"memry": "1Gi"}}})
    device = {"limits": {"example.com/device": 1, "hugepages-2Mi": "4Mi"}}
    query = next(
        each
        for each in pods(render(query={"resources": device}))["shop-mqstore-shard"]["containers"]
        if each["name"] == "query"
    )
    assert query["resources"]["limits"]["example.com/device"] == 1


@needs_helm
def test_an_unknown_time_zone_is_refused() -> None:
    assert "/jobs/timeZone" in refusal(jobs={"timeZone": "Mars/Base"})


def test_every_time_zone_of_the_schema_exists() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    zones = schema["definitions"]["timeZone"]["enum"]
    assert len(zones) > 400
    assert set(zones) <= available_timezones()


@needs_helm
@pytest.mark.parametrize("part", ["cidrs", "ports"])
def test_a_policy_without_peers_would_let_everything_through_and_is_refused(part: str) -> None:
    assert f"/networkPolicy/apiServer/{part}" in refusal(networkPolicy={"apiServer": {part: []}})


@needs_helm
def test_the_longest_name_of_a_release_leaves_room_for_what_is_behind_it() -> None:
    done = _run("template", "r" * 53, values=EVERYTHING)
    most = {"CronJob": 52, "Service": 63, "StatefulSet": 52}
    found = list(load_all(done.stdout))
    assert set(most) <= {each["kind"] for each in found}
    for each in found:
        assert len(each["metadata"]["name"]) <= most.get(each["kind"], 253), each["kind"]


@needs_helm
def test_settings_reach_the_services_as_they_were_written() -> None:
    store = {"mappedFileSizeCommitLog": 1 << 30, "deleteWhen": "04", "flushDiskType": "SYNC_FLUSH"}
    settings = {"accessLog": True, "receiveTimeoutS": 2.5}
    config = render(store=store, settings=settings)["ConfigMap"]["shop-mqstore-config"]
    assert config["data"]["mqstore.conf"].splitlines() == [
        "accessLog = true",
        "deleteWhen = 04",
        "flushDiskType = SYNC_FLUSH",
        "mappedFileSizeCommitLog = 1073741824",
        "receiveTimeoutS = 2.5",
    ]


@needs_helm
def test_a_changed_setting_restarts_pods_and_a_further_shard_does_not() -> None:
    def template(**values: Any) -> Any:
        return render(**values)["StatefulSet"]["shop-mqstore-shard"]["spec"]["template"]

    assert template(store={"fileReservedTime": 24}) != template()
    assert template(shards=3) == template()


@needs_helm
def test_every_pod_satisfies_the_restricted_profile_and_has_bounds() -> None:
    found = pods(render(**EVERYTHING))
    names = ("shard", "coordinator", "test", "expiry-report", "index-rebuild")
    assert set(found) == {f"shop-mqstore-{name}" for name in names}
    for spec in found.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec["enableServiceLinks"]
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]["memory"]
            assert container["resources"]["limits"]["memory"]


@needs_helm
def test_only_the_coordinator_has_a_token_of_the_cluster_to_write_events() -> None:
    found = render()
    shown = {name: spec.get("automountServiceAccountToken") for name, spec in pods(found).items()}
    assert shown == {
        "shop-mqstore-shard": False,
        "shop-mqstore-test": False,
        "shop-mqstore-coordinator": None,
        "shop-mqstore-index-rebuild": None,
    }
    rules = found["Role"]["shop-mqstore-coordinator"]["rules"]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["events"], ["create", "patch"], None),
        (["pods"], ["get"], ["shop-mqstore-shard-0"]),
    ]


@needs_helm
def test_an_operator_may_delete_no_claim_but_that_of_a_snapshot_that_is_restored() -> None:
    rules = render(shards=2)["Role"]["shop-mqstore-operator"]["rules"]
    [rule] = [
        rule
        for rule in rules
        if "persistentvolumeclaims" in rule["resources"] and "delete" in rule["verbs"]
    ]
    assert rule["resourceNames"] == ["shop-mqstore-restore-0", "shop-mqstore-restore-1"]
    [snapshots] = [rule for rule in rules if "volumesnapshots" in rule["resources"]]
    assert "delete" not in snapshots["verbs"]


@needs_helm
def test_the_two_containers_of_a_shard_share_one_volume_and_only_one_may_write() -> None:
    shard = render()["StatefulSet"]["shop-mqstore-shard"]["spec"]
    mounts = {
        container["name"]: [each for each in container["volumeMounts"] if each["name"] == "store"]
        for container in shard["template"]["spec"]["containers"]
    }
    path = "/var/lib/mqstore"
    assert mounts["store-writer"] == [{"name": "store", "mountPath": path}]
    assert mounts["query"] == [{"name": "store", "mountPath": path, "readOnly": True}]
    assert [each["metadata"]["name"] for each in shard["volumeClaimTemplates"]] == ["store"]
    assert shard["podManagementPolicy"] == "Parallel"


@needs_helm
def test_a_claim_that_is_there_is_mounted_and_none_is_made() -> None:
    found = render(persistence={"existingClaim": "mine"})["StatefulSet"]["shop-mqstore-shard"]
    assert "volumeClaimTemplates" not in found["spec"]
    volumes = {each["name"]: each for each in found["spec"]["template"]["spec"]["volumes"]}
    assert volumes["store"]["persistentVolumeClaim"] == {"claimName": "mine"}


@needs_helm
def test_claims_are_as_the_values_say() -> None:
    wanted = {"size": "7Gi", "storageClass": "fast", "accessMode": "ReadWriteOncePod"}
    found = render(persistence={**wanted, "annotations": {"backup": "daily"}})
    [claim] = found["StatefulSet"]["shop-mqstore-shard"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["annotations"] == {"backup": "daily"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "7Gi"}},
    }


@needs_helm
def test_tokens_of_ones_own_are_used_by_all_and_none_are_made() -> None:
    found = render(**EVERYTHING, auth={"existingSecret": "ours"})
    assert not found["Secret"]
    assert "shop-mqstore-auth" not in json.dumps(found)
    assert '"secretName": "ours"' in json.dumps(found["StatefulSet"])


@needs_helm
@pytest.mark.parametrize(("retain", "policy"), [(True, "Retain"), (False, "Delete")])
def test_claims_stay_unless_values_set_delete(retain: bool, policy: str) -> None:
    shard = render(persistence={"retain": retain})["StatefulSet"]["shop-mqstore-shard"]["spec"]
    expected = {"whenDeleted": policy, "whenScaled": policy}
    assert shard["persistentVolumeClaimRetentionPolicy"] == expected


@needs_helm
def test_no_selector_nor_claim_has_a_label_that_changes_with_the_version() -> None:
    found = render(**EVERYTHING)
    shard = found["StatefulSet"]["shop-mqstore-shard"]["spec"]
    coordinator = found["Deployment"]["shop-mqstore-coordinator"]["spec"]
    fixed = [shard["selector"]["matchLabels"], coordinator["selector"]["matchLabels"]]
    fixed += [shard["volumeClaimTemplates"][0]["metadata"]["labels"]]
    fixed += [each["spec"]["selector"] for each in found["Service"].values()]
    for labels in fixed:
        assert "app.kubernetes.io/version" not in labels
        assert "helm.sh/chart" not in labels


@needs_helm
def test_everything_has_the_standard_labels() -> None:
    named = {"name", "instance", "component", "version", "managed-by", "part-of"}
    for kind, each in render(**EVERYTHING).items():
        for name, document in each.items():
            labels = document["metadata"]["labels"]
            assert {f"app.kubernetes.io/{label}" for label in named} <= set(labels), (kind, name)


@needs_helm
def test_each_shard_has_an_address_and_the_coordinator_knows_all() -> None:
    found = render(shards=2)
    assert {"shop-mqstore-shard-0", "shop-mqstore-shard-1"} <= set(found["Service"])
    one, two = (
        render(shards=number)["Deployment"]["shop-mqstore-coordinator"]["spec"]["template"]
        for number in (1, 2)
    )
    assert one["spec"] == two["spec"]
    assert one["metadata"]["annotations"] != two["metadata"]["annotations"]  # restarted to read it
    env = {each["name"] for each in two["spec"]["containers"][0]["env"]}
    assert "MQSTORE_SHARDS_FILE" in env


@needs_helm
def test_every_shard_finds_the_others_in_a_list_that_is_not_hashed() -> None:
    found = render(shards=2)
    listed = json.loads(found["ConfigMap"]["shop-mqstore-shards"]["data"]["shards.json"])
    assert listed["shards"][1] == {
        "shard": 1,
        "storeHost": "198.18.0.1:10911",
        "writerUrl": "http://shop-mqstore-shard-1:8081",
        "queryUrl": "http://shop-mqstore-shard-1:8082",
    }
    pod = found["StatefulSet"]["shop-mqstore-shard"]["spec"]["template"]["spec"]
    for container in pod["containers"]:
        env = {each["name"]: each.get("value") for each in container["env"]}
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        path = Path(env["MQSTORE_SHARDS_FILE"])
        volume = next(v for v in pod["volumes"] if v["name"] == mounts[str(path.parent)])
        assert volume["configMap"]["name"] == "shop-mqstore-shards"
        assert env["MQSTORE_STORE_HOST"] == "198.18.0.$(MQSTORE_SHARD):10911"


@needs_helm
def test_one_address_leads_to_all_shards_and_shards_reach_only_shards_and_coordinators() -> None:
    found = render(shards=2)
    selector = found["Service"]["shop-mqstore"]["spec"]["selector"]
    assert "statefulset.kubernetes.io/pod-name" not in selector
    policy = found["NetworkPolicy"]["shop-mqstore-shard"]["spec"]
    shards = {"podSelector": {"matchLabels": selector}}
    assert shards in policy["ingress"][0]["from"]
    reached = [(rule["to"], [port["port"] for port in rule["ports"]]) for rule in policy["egress"]]
    assert reached[0] == ([shards], [8081, 8082])
    coordinators, (_, dns) = reached[1:]
    assert coordinators[1] == [8083]
    assert set(dns) == {53}
    accepted = found["NetworkPolicy"]["shop-mqstore-coordinator"]["spec"]
    assert shards in accepted["ingress"][0]["from"]
    assert coordinators[0] == [{"podSelector": accepted["podSelector"]}]


@needs_helm
@pytest.mark.parametrize("enabled", [True, False])
def test_query_knows_the_address_of_the_coordinators_if_there_are_some(enabled: bool) -> None:
    found = render(coordinator={"enabled": enabled})
    spec = pods(found)["shop-mqstore-shard"]
    variables = {
        container["name"]: {each["name"]: each.get("value") for each in container["env"]}
        for container in spec["containers"]
    }
    url = "http://shop-mqstore-coordinator:8083" if enabled else None
    assert variables["query"].get("MQSTORE_COORDINATOR_URL") == url
    assert "MQSTORE_COORDINATOR_URL" not in variables["store-writer"]
    egress = found["NetworkPolicy"]["shop-mqstore-shard"]["spec"]["egress"]
    ports = [port["port"] for rule in egress for port in rule["ports"]]
    assert (8083 in ports) == enabled


@needs_helm
@pytest.mark.parametrize("name", ["1shop", "our.shop"])
def test_a_release_whose_name_no_service_can_have_is_rejected_with_a_remedy(name: str) -> None:
    assert "set fullnameOverride" in _run("template", name, values={}).stderr
    assert not _run("template", name, values={"fullnameOverride": "shop"}).returncode


@needs_helm
def test_a_name_with_mqstore_in_it_is_used_as_it_is() -> None:
    done = _run("template", "our-mqstore", values={})
    assert re.search(r"^  name: our-mqstore-shard$", done.stdout, re.M)


@needs_helm
def test_monitoring_is_installed_only_on_request() -> None:
    optional = {"ServiceMonitor", "PrometheusRule", "Ingress", "HTTPRoute"}
    assert not optional & set(render())
    found = render(**EVERYTHING)
    assert optional <= set(found)
    json.loads(found["ConfigMap"]["shop-mqstore-dashboard"]["data"]["mqstore.json"])


@needs_helm
def test_a_gateway_leads_each_host_to_its_service_and_to_no_other() -> None:
    hosts = {"writerHost": "w.example.org", "coordinatorHost": "c.example.org"}
    gateway = {"enabled": True, "parentRefs": [{"name": "all", "namespace": "gateways"}]}
    found = render(gateway=gateway | hosts)
    routes = {name: each["spec"] for name, each in found["HTTPRoute"].items()}
    assert {
        name: (spec["hostnames"], spec["rules"][0]["backendRefs"]) for name, spec in routes.items()
    } == {
        "shop-mqstore-writer": (["w.example.org"], [{"name": "shop-mqstore", "port": 8081}]),
        "shop-mqstore-coordinator": (
            ["c.example.org"],
            [{"name": "shop-mqstore-coordinator", "port": 8083}],
        ),
    }
    assert {spec["parentRefs"][0]["namespace"] for spec in routes.values()} == {"gateways"}
    for spec in routes.values():
        [backend] = spec["rules"][0]["backendRefs"]
        ports = found["Service"][backend["name"]]["spec"]["ports"]
        assert backend["port"] in {each["port"] for each in ports}
    assert "needs a host" in refusal(gateway=gateway)
    assert "needs coordinator.enabled" in refusal(
        gateway=gateway | hosts, coordinator={"enabled": False}
    )
    assert "needs parentRefs" in refusal(gateway={"enabled": True, **hosts})


@needs_helm
def test_every_pod_runs_where_the_values_say() -> None:
    placed: dict[str, Any] = {
        "nodeSelector": {"disks": "fast"},
        "tolerations": [{"key": "disks"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    found = render(**EVERYTHING, **placed)
    executors = [executor(found, job)["spec"] for job in ("expiry-report", "index-rebuild")]
    for spec in [*pods(found).values(), *executors]:
        assert {name: spec[name] for name in placed} == placed


@needs_helm
def test_the_hours_of_deletewhen_are_those_of_one_zone() -> None:
    found = pods(render(jobs={"timeZone": "Europe/Berlin", "output": {"uri": "s3://reports"}}))
    writer, driver = (found[f"shop-mqstore-{name}"] for name in ("shard", "expiry-report"))
    for spec in (writer, driver):
        zones = [each["value"] for each in spec["containers"][0]["env"] if each["name"] == "TZ"]
        assert zones == ["Europe/Berlin"]


@needs_helm
def test_alerts_go_by_metrics_that_there_are() -> None:
    rules = render(**EVERYTHING)["PrometheusRule"]["shop-mqstore"]["spec"]["groups"][0]["rules"]
    assert len(rules) >= 10
    for rule in rules:
        goes_by_metrics_of(rule["expr"], 'namespace="default",app_kubernetes_io_instance="shop"')
        assert rule["annotations"]["summary"]
        address, _, page = rule["annotations"]["runbook_url"].rpartition("/")
        assert address == "https://example.org/docs/how-to"
        assert rule["alert"] in (ROOT / "docs/how-to/monitor-the-services.md").read_text("utf-8")
        assert (ROOT / "docs/how-to" / page).is_file(), page


def goes_by_metrics_of(expression: str, release: str) -> None:
    """Only of metrics that the reference has, and of one release."""
    if "kube_" in expression:  # of kube-state-metrics
        assert 'namespace="default"' in expression
        return
    metrics = re.findall(r"\b((?:mqstore|rocketmq)_[a-z_]+)(\{[^}\"]*\"[^}]*)?", expression)
    assert metrics
    for metric, labels in metrics:
        assert metric.removesuffix("_bucket") in metric_names(), metric
        assert labels.startswith(f"{{{release}"), expression
