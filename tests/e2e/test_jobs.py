"""Spark jobs as CronJobs: a driver in the Job's pod, executors as pods of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import IMAGE_PREFIX, Release, is_kube_tool, namespace, small_values, until
from tests.e2e.operators import Operator, produce

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,  # the image of Spark alone takes minutes
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(900),
]
JOBS = {
    "output": {"existingClaim": "results"},
    "driver": {
        "resources": {
            "requests": {"cpu": "50m", "memory": "512Mi"},
            "limits": {"memory": "1500Mi"},
        }
    },
    "executors": {"instances": 2, "memory": "512m", "requestCpu": "50m"},
    "expiryReport": {"suspend": True},
}
SEGMENT = 1 << 20
PLUGIN = [sys.executable, "-m", "mqstore.cli.kube.main"]
GET_SCRIPT = """
import urllib.request
token = open("/etc/mqstore/tokens/admin").read().split()[0]
headers = {{"authorization": "Bearer " + token}}
request = urllib.request.Request("{url}", headers=headers)
print(urllib.request.urlopen(request).read().decode())
"""
LOSE_INDEX = "import shutil; shutil.rmtree('/var/lib/mqstore/store/index')"
BY_KEY = "/v1/topics/mqstore-test/messages?key=nothing"


def test_the_expiry_report_runs_on_executors_and_its_results_are_in_their_place() -> None:
    spark = {"repository": f"{IMAGE_PREFIX}mqstore/spark"}
    with namespace() as name:
        release = Release(name, "job", small_values(jobs=JOBS, sparkImage=spark))
        release.create_claim("results")
        release.install()
        assert "was committed" in release.test()
        cron = f"cronjob/{release.full_name}-expiry-report"
        release.kubectl("create", "job", "by-hand", f"--from={cron}")
        executors = _executors_until_it_ended(release, "by-hand")
        said = release.kubectl("logs", "job/by-hand")
        assert release.get("job", "by-hand")["status"].get("succeeded") == 1, said
        summary = json.loads(said.splitlines()[-1])
        # A message, a committed one, and what a transaction leaves: its half and its op record.
        assert summary["shards"][0]["messages"] == 4, said
        assert len(executors) >= 2
        report = _request(release, 8081, "/v1/reports/expiry")
        assert summary["shards"][0]["out"] in json.dumps(report)
        until(lambda: not _executors(release, "expiry-report"), "the executors are gone")
        if is_kube_tool():
            made = {path.suffix for path in _files(name, "results")}
            assert {".html", ".json", ".parquet"} <= made
        ran = subprocess.run([*PLUGIN, "report", "-n", name], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout.splitlines()[-1])["exitCode"] == 0


def test_the_expiry_report_archives_what_expires_and_retention_knows_it() -> None:
    spark = {"repository": f"{IMAGE_PREFIX}mqstore/spark"}
    jobs = JOBS | {"archive": {"existingClaim": "archive"}}
    with namespace() as name:
        release = Release(name, "job", small_values(jobs=jobs, sparkImage=spark))
        release.values["store"] |= {"mappedFileSizeCommitLog": SEGMENT}
        for claim in ("results", "archive"):
            release.create_claim(claim)
        release.install()
        operator = Operator(Path(os.environ["KUBECONFIG"]), name)
        produce(operator, "kept", *(str(number) * (SEGMENT // 4) for number in range(9)))
        cron = f"cronjob/{release.full_name}-expiry-report"
        release.kubectl("create", "job", "by-hand", f"--from={cron}")
        _executors_until_it_ended(release, "by-hand")
        said = release.kubectl("logs", "job/by-hand")
        assert release.get("job", "by-hand")["status"].get("succeeded") == 1, said
        archive = _request(release, 8081, "/v1/store/archive")["archive"]
        assert archive["offset"] >= 2 * SEGMENT
        if is_kube_tool():
            parts = [path.parts for path in _files(name, "archive")]
            assert any("by_topic=kept" in each and each[-1].endswith(".parquet") for each in parts)
            assert any("manifests" in each for each in parts)


def test_a_lost_index_is_rebuilt_beside_the_writer_by_the_plugin() -> None:
    spark = {"repository": f"{IMAGE_PREFIX}mqstore/spark"}
    with namespace() as name:
        release = Release(name, "job", small_values(jobs=JOBS, sparkImage=spark))
        release.install()
        assert "was committed" in release.test()
        release.in_container("store-writer", "python", "-c", LOSE_INDEX)
        until(lambda: not _request(release, 8082, BY_KEY)["complete"], "query says so")
        command = [*PLUGIN, "rebuild", "-n", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plugin:
            executors: set[str] = set()

            def ended() -> bool:
                executors.update(_executors(release, "index-rebuild"))
                return plugin.poll() is not None

            until(ended, "the rebuild ends", patience_s=300)
            assert plugin.stdout is not None
            said = plugin.stdout.read()
        assert plugin.returncode == 0, said
        assert len(executors) >= 2
        [shard] = json.loads(said.splitlines()[-1])["shards"]
        assert shard["published"]
        assert _request(release, 8082, BY_KEY)["complete"]
        last = _request(release, 8081, "/v1/index-rebuilds")["last"]
        assert last["outcome"] == "published"
        job = said.split()[0].removeprefix("job.batch/")
        assert last["owner"] == f"index-rebuild job {job}"


def _request(release: Release, port: int, path: str) -> Any:
    container = "query" if port == 8082 else "store-writer"
    script = GET_SCRIPT.format(url=f"http://127.0.0.1:{port}{path}")
    return json.loads(release.in_container(container, "python", "-c", script))


def _executors(release: Release, job: str) -> set[str]:
    labels = f"spark-role=executor,app.kubernetes.io/component={job}"
    return {each["metadata"]["name"] for each in release.get("pods", "-l", labels)["items"]}


def _executors_until_it_ended(release: Release, job: str) -> set[str]:
    """All that were there at any time."""
    seen: set[str] = set()

    def ended() -> Any:
        seen.update(_executors(release, "expiry-report"))
        return release.get("job", job)["status"].get("completionTime") or _failed(release, job)

    until(ended, f"the job {job} ends", patience_s=300)
    return seen


def _failed(release: Release, job: str) -> bool:
    return bool(release.get("job", job)["status"].get("failed"))


def _files(name: str, claim: str) -> list[Path]:
    """Files of a claim, which on the tool's cluster is a folder."""
    volumes = Path(os.environ["KUBECONFIG"]).parent / "volumes"
    return [path for each in volumes.glob(f"{name}_{claim}_*") for path in each.rglob("*.*")]
