"""The Spark jobs of the chart; without helm they are skipped."""

from __future__ import annotations

import pytest

from tests.unit.chart.test_chart import EVERYTHING, executor, needs_helm, pods, refusal, render
from tests.unit.chart.test_chart_backups import AT_URL


@needs_helm
def test_results_of_jobs_have_one_place() -> None:
    output = {"uri": "s3://reports", "existingClaim": "results"}
    assert "/jobs/output" in refusal(jobs={"output": output})


@needs_helm
@pytest.mark.parametrize("job", ["expiry-report", "index-rebuild"])
def test_executors_satisfy_it_too_and_have_no_token_of_the_cluster(job: str) -> None:
    found = render(**EVERYTHING)
    template = executor(found, job)
    [driver] = pods(found)[f"shop-mqstore-{job}"]["containers"]
    [container] = template["spec"]["containers"]
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["automountServiceAccountToken"] is False
    assert container["securityContext"] == driver["securityContext"]
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == job


@needs_helm
@pytest.mark.parametrize("job", ["expiry-report", "index-rebuild"])
def test_a_job_reads_every_shard(job: str) -> None:
    [driver] = pods(render(**EVERYTHING))[f"shop-mqstore-{job}"]["containers"]
    shards = [word for word in driver["args"] if word.startswith("http")]
    at = "http://shop-mqstore-shard-{0}:8082,http://shop-mqstore-shard-{0}:8081"
    assert shards == [at.format(number) for number in range(3)]


@needs_helm
def test_there_is_no_report_without_a_place_for_it_and_no_rebuild_where_it_is_not_wanted() -> None:
    assert set(render()["CronJob"]) == {"shop-mqstore-index-rebuild"}
    found = render(jobs={"indexRebuild": {"enabled": False}})
    assert not found["CronJob"]
    assert not [name for kind in found.values() for name in kind if name.endswith("-rebuild")]


@needs_helm
@pytest.mark.parametrize("job", ["expiry-report", "index-rebuild"])
def test_each_job_has_an_account_of_its_own_that_may_run_executors_and_no_more(job: str) -> None:
    found, name = render(**EVERYTHING), f"shop-mqstore-{job}"
    assert pods(found)[name]["serviceAccountName"] == name
    assert name in found["ServiceAccount"]
    binding = found["RoleBinding"][name]
    assert binding["roleRef"]["name"] == name
    assert [subject["name"] for subject in binding["subjects"]] == [name]
    [rule] = found["Role"][name]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert not {"patch", "update", "*"} & set(rule["verbs"])
    others = [each for each in found["RoleBinding"].values() if each is not binding]
    assert name not in {subject["name"] for each in others for subject in each["subjects"]}


@needs_helm
def test_a_driver_may_be_given_rights_to_where_results_go() -> None:
    given = [{"secretRef": {"name": "bucket-keys"}}]
    driver = {"envFrom": given, "accountAnnotations": {"cloud/role": "reports"}}
    found = render(jobs={"output": {"uri": "s3://bucket"}, "driver": driver})
    assert pods(found)["shop-mqstore-expiry-report"]["containers"][0]["envFrom"] == given
    account = found["ServiceAccount"]["shop-mqstore-expiry-report"]
    assert account["metadata"]["annotations"] == {"cloud/role": "reports"}


@needs_helm
def test_an_archive_is_written_by_executors_with_the_rights_of_the_driver() -> None:
    driver = {"envFrom": [{"secretRef": {"name": "bucket-keys"}}]}
    egress = [{"ports": [{"port": 443}]}]
    found = render(
        jobs={
            "output": {"uri": "s3://bucket/reports"},
            "archive": {"uri": "s3://bucket/archive"},
            "driver": driver,
        },
        networkPolicy={"driverEgress": egress},
    )
    arguments = pods(found)["shop-mqstore-expiry-report"]["containers"][0]["args"]
    assert arguments[arguments.index("--archive") + 1] == "s3://bucket/archive"
    assert "--archive" not in pods(found)["shop-mqstore-index-rebuild"]["containers"][0]["args"]
    spec = executor(found, "expiry-report")["spec"]
    assert spec["serviceAccountName"] == "shop-mqstore-expiry-report"
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["envFrom"] == driver["envFrom"]
    assert egress[0] in found["NetworkPolicy"]["shop-mqstore-expiry-report"]["spec"]["egress"]
    assert egress[0] not in found["NetworkPolicy"]["shop-mqstore-index-rebuild"]["spec"]["egress"]
    other = executor(found, "index-rebuild")["spec"]
    assert not {"serviceAccountName", "envFrom"} & {*other, *other["containers"][0]}


@needs_helm
def test_an_archive_may_be_a_claim_that_the_driver_and_all_executors_mount() -> None:
    places = {"output": {"existingClaim": "results"}, "archive": {"existingClaim": "messages"}}
    found = render(jobs=places)
    driver = pods(found)["shop-mqstore-expiry-report"]
    for spec in (driver, executor(found, "expiry-report")["spec"]):
        [claim] = [each for each in spec["volumes"] if each["name"] == "archive"]
        assert claim["persistentVolumeClaim"] == {"claimName": "messages"}
        mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
        assert mounts["archive"] == "/var/lib/mqstore/archive"
    arguments = driver["containers"][0]["args"]
    assert arguments[arguments.index("--archive") + 1] == "/var/lib/mqstore/archive"


@needs_helm
def test_there_is_no_archive_by_default_and_none_without_a_report() -> None:
    found = render(**EVERYTHING)
    assert "--archive" not in pods(found)["shop-mqstore-expiry-report"]["containers"][0]["args"]
    assert "serviceAccountName" not in executor(found, "expiry-report")["spec"]
    assert "/jobs" in refusal(jobs={"archive": {"uri": "s3://bucket/archive"}})


@needs_helm
def test_an_index_rebuild_may_have_executors_of_its_own() -> None:
    jobs = {"output": {"existingClaim": "results"}, "indexRebuild": {"executors": 5}}
    found = render(jobs=jobs)
    settings = {
        job: found["ConfigMap"][f"shop-mqstore-{job}"]["data"]["spark-defaults.conf"]
        for job in ("expiry-report", "index-rebuild")
    }
    assert "spark.executor.instances 5\n" in settings["index-rebuild"]
    assert "spark.executor.instances 2\n" in settings["expiry-report"]


@needs_helm
def test_an_index_rebuild_waits_to_be_started_and_passes_its_jobs_name_to_the_writer() -> None:
    found = render(**EVERYTHING)
    assert found["CronJob"]["shop-mqstore-index-rebuild"]["spec"]["suspend"] is True
    spec = pods(found)["shop-mqstore-index-rebuild"]
    [driver] = spec["containers"]
    [name] = [each["valueFrom"] for each in driver["env"] if each["name"] == "JOB_NAME"]
    assert name == {"fieldRef": {"fieldPath": "metadata.labels['job-name']"}}
    assert driver["args"][driver["args"].index("--name") + 1] == "$(JOB_NAME)"
    assert "reports" not in {each["name"] for each in spec["volumes"]}


@needs_helm
def test_every_pod_has_the_annotations_that_were_given() -> None:
    """With one a service mesh injects no sidecar into pods that end: the sidecar would not end."""
    given = {"sidecar.istio.io/inject": "false"}
    found = render(**EVERYTHING, podAnnotations=given, backup=AT_URL)
    templates = [executor(found, job) for job in ("expiry-report", "index-rebuild")]
    templates += [
        each["spec"]["template"]
        for kind in ("StatefulSet", "Deployment")
        for each in found[kind].values()
    ]
    templates += [
        each["spec"]["jobTemplate"]["spec"]["template"] for each in found["CronJob"].values()
    ]
    templates += found["Pod"].values()
    assert len(templates) >= 7
    for each in templates:
        assert given.items() <= each["metadata"]["annotations"].items(), each["metadata"]


@needs_helm
def test_ids_can_be_left_to_the_platform() -> None:
    left = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    found = render(**EVERYTHING, podSecurity=left, backup=AT_URL)
    for name, spec in pods(found).items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert not left.keys() & spec["securityContext"].keys(), name
    assert "/podSecurity/runAsUser" in refusal(podSecurity={"runAsUser": 0})


@pytest.mark.parametrize("memory", ["100m", "449m", "512k", "0g", "1t"])
def test_executors_have_the_memory_that_spark_requires(memory: str) -> None:
    assert "/jobs/executors/memory" in refusal(jobs={"executors": {"memory": memory}})


@needs_helm
def test_a_job_is_tried_again_unless_it_was_refused() -> None:
    for name, job in render(**EVERYTHING)["CronJob"].items():
        spec = job["spec"]["jobTemplate"]["spec"]
        refused, lost = spec["podFailurePolicy"]["rules"]
        [container] = spec["template"]["spec"]["containers"]
        assert spec["backoffLimit"] == 2, name
        assert refused["onExitCodes"]["containerName"] == container["name"]
        assert 2 in refused["onExitCodes"]["values"] and refused["action"] == "FailJob"
        assert lost["onPodConditions"] == [{"type": "DisruptionTarget"}]


@needs_helm
def test_findings_of_a_report_are_no_failure_of_its_job() -> None:
    [driver] = pods(render(**EVERYTHING))["shop-mqstore-expiry-report"]["containers"]
    at = driver["args"].index("--completed")
    assert driver["args"][at + 1] == "/dev/termination-log"
