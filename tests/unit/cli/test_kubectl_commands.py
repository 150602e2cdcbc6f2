"""Commands of the kubectl plugin on a simulated cluster: errors, and replies that arrive late."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.kube import commands, jobs
from mqstore.cli.kube.main import app

KUBECTL = """#!{python} -IS
import json, pathlib, re, sys
home, said = pathlib.Path({home!r}), " ".join(sys.argv[1:])
given = sys.stdin.read() if "-f -" in said or "-i" in sys.argv else ""
with (home / "requests").open("a") as requests:
    requests.write(json.dumps([said, given]) + "\\n")
answers = json.loads((home / "answers").read_text())
for pattern, known in answers.items():
    if re.search(pattern, said):
        answer = known.pop(0) if len(known) > 1 else known[0]
        (home / "answers").write_text(json.dumps(answers))
        if isinstance(answer, str):
            print(answer)
        elif "error" in answer:
            sys.exit(answer["error"])
        else:
            print(json.dumps(answer))
        break
"""
NAME = "shop-mqstore"
WRITER = {
    "name": "store-writer",
    "image": "mqstore/services:1",
    "imagePullPolicy": "Never",
    "securityContext": {},
    "resources": {"requests": {"memory": "512Mi"}},
    "volumeMounts": [{"name": "store", "mountPath": "/var/lib/mqstore"}],
}
PLACED = {"tolerations": [{"key": "disks"}], "nodeSelector": {"disks": "fast"}}


def stateful_set(replicas: int = 1, when_scaled: str = "Retain") -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "shop"}
    claim = {"metadata": {"name": "store"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    return {
        "metadata": {"name": f"{NAME}-shard", "labels": labels},
        "spec": {
            "replicas": replicas,
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": when_scaled},
            "volumeClaimTemplates": [claim],
            "template": {"spec": {"containers": [WRITER], "securityContext": {}, **PLACED}},
        },
        "status": {},
    }


def pod(ready: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": f"{NAME}-shard-0"}, "status": {"conditions": conditions}}


def items(*found: Any) -> dict[str, Any]:
    return {"items": list(found)}


@dataclass(frozen=True)
class Cluster:
    """A kubectl that gives the first answer of a pattern, then the next, and the last for ever."""

    home: Path

    def answers(self, known: dict[str, list[Any]]) -> None:
        (self.home / "answers").write_text(json.dumps(known))

    def requests(self, pattern: str) -> list[str]:
        """Standard input of each command that matches the pattern."""
        return [given for said, given in self._all() if re.search(pattern, said)]

    def commands(self, pattern: str) -> list[str]:
        """The commands that match the pattern, in order."""
        return [said for said, _ in self._all() if re.search(pattern, said)]

    def _all(self) -> list[tuple[str, str]]:
        lines = (self.home / "requests").read_text().splitlines()
        return [(said, given) for said, given in map(json.loads, lines)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    home = tmp_path / "cluster"
    home.mkdir()
    kubectl = home / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable, home=str(home)))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "LOOK_S", 0.0)
    return Cluster(home)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copy" / "commitlog").mkdir(parents=True)
    return tmp_path / "copy"


def does(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_a_restore_waits_for_a_pod_that_is_not_made_yet(cluster: Cluster, copy: Path) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True")), items(), items(pod("False")), items(pod("True"))],
            f"^wait pod/{NAME}-shard-0 .*condition": [{"error": "Error from server (NotFound)"}],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n1000000"],
        }
    )
    ran = does("restore", "0", str(copy), "--replace")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert len(cluster.requests("^scale")) == 2


def test_what_holds_a_volume_may_run_where_its_shard_may(cluster: Cluster, copy: Path) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True"))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n1000000"],
        }
    )
    assert does("restore", "0", str(copy), "--replace").exit_code == 0
    [made] = cluster.requests("^apply")
    spec = json.loads(made)["spec"]
    assert {name: spec[name] for name in PLACED} == PLACED
    assert spec["containers"][0]["resources"] == WRITER["resources"]


def test_a_dry_run_of_a_restore_names_the_pods_and_changes_nothing(
    cluster: Cluster, copy: Path
) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set(3))],
            "^get pods": [items(pod("True"))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n1000000"],
        }
    )
    ran = does("restore", "0", str(copy), "--replace", "--dry-run")
    assert (ran.exit_code, ran.stderr) == (0, "")
    pods = ", ".join(f"{NAME}-shard-{number}" for number in range(3))
    assert ran.stdout == f"would stop {pods}, and replace the store of shard 0 by {copy}\n"
    assert not cluster.commands("^(scale|apply|delete|wait)")
    assert not cluster.commands("^exec.*(rm|mv|tar)")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_restore_without_room_stops_no_pod(
    cluster: Cluster, copy: Path, *, dry_run: bool
) -> None:
    (copy / "commitlog" / "0").write_bytes(b"x" * 8192)
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True"))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n8191"],
        }
    )
    ran = does("restore", "0", str(copy), "--replace", *(["--dry-run"] if dry_run else []))
    assert ran.exit_code == 2
    assert "the copy takes 8.0 KiB, and the volume has 8.0 KiB free" in ran.stderr
    assert not cluster.commands("^(scale|apply|delete|wait)")


def test_holes_of_the_copied_files_need_no_room(cluster: Cluster, copy: Path) -> None:
    with (copy / "commitlog" / "0").open("wb") as file:
        file.truncate(64 << 20)
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True"))],
            "printenv": ["/var/lib/mqstore/store"],
            "df": ["Avail\n8192"],
        }
    )
    ran = does("restore", "0", str(copy), "--replace")
    assert (ran.exit_code, ran.stderr) == (0, "")


SNAPSHOT: dict[str, list[Any]] = {
    "^get statefulsets": [items(stateful_set())],
    "^get pods": [items(pod("True"))],
    "^get pod/": ["node-1"],
    "^get pvc": [{"spec": {"accessModes": [], "resources": {"requests": {"storage": "1"}}}}],
    "^api-resources": ["volumesnapshots.snapshot.storage.k8s.io"],
    "^get volumesnapshot": [{"metadata": {"name": "nightly"}, "status": {"readyToUse": True}}],
    "printenv": ["/var/lib/mqstore/store"],
    "commitlog": ["found"],
    "du": ["4096 ."],
    "df": ["Avail\n4096"],
}


@pytest.mark.parametrize(
    ("known", "why"), [({"du": ["4097 ."]}, "the copy takes"), ({"commitlog": [""]}, "no store")]
)
def test_a_snapshot_that_cannot_be_copied_stops_no_pod(
    cluster: Cluster, known: dict[str, list[Any]], why: str
) -> None:
    cluster.answers({**SNAPSHOT, **known})
    ran = does("restore", "0", "--snapshot", "nightly", "--replace")
    assert ran.exit_code == 2
    assert why in ran.stderr
    assert not cluster.commands("^scale")
    assert len(cluster.commands("^delete (pod|pvc)/")) == 2, "nothing is left of the look"


def test_a_snapshot_is_looked_at_on_the_node_of_its_shard(cluster: Cluster) -> None:
    cluster.answers(SNAPSHOT)
    ran = does("restore", "0", "--snapshot", "nightly", "--replace")
    assert (ran.exit_code, ran.stderr) == (0, "")
    viewer, holder = (json.loads(made)["spec"] for made in cluster.requests("^apply"))
    assert "node-1" in json.dumps(viewer["affinity"])
    assert [each["name"] for each in viewer["volumes"]] == ["snapshot"]
    assert [each["name"] for each in holder["volumes"]] == ["store", "snapshot"]


@pytest.mark.parametrize("source", [["copy"], ["--snapshot", "nightly"]])
def test_a_restore_takes_no_pod_away_whose_claim_would_go_with_it(
    cluster: Cluster, copy: Path, source: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set(3, when_scaled="Delete"))],
            "^get pods": [items(pod("True"))],
            "^api-resources": ["volumesnapshots.snapshot.storage.k8s.io"],
            "^get volumesnapshot": [{"status": {"readyToUse": True}}],
        }
    )
    ran = does("restore", "0", *source, "--replace")
    assert ran.exit_code == 2
    assert "persistence.retain=true" in ran.stderr
    assert not cluster.requests("^scale")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('Error from server (BadRequest): previous terminated container "query" not found', 2),
        ("Unable to connect to the server: dial tcp: i/o timeout", 3),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line(cluster: Cluster, said: str, code: int) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True"))],
            "^logs": [{"error": said}],
        }
    )
    ran = does("logs", "0", "-c", "query", "--previous")
    assert (ran.exit_code, ran.stderr) == (code, f"mqstore: kubectl: {said}\n")


def test_a_shard_without_a_pod_may_hold_messages(cluster: Cluster, copy: Path) -> None:
    cluster.answers({"^get statefulsets": [items(stateful_set())], "^get pods": [items()]})
    ran = does("restore", "0", str(copy))
    assert ran.exit_code == 2
    assert "shard 0 has no pod, so its messages are unknown; --replace" in ran.stderr
    assert not cluster.requests("^scale")


def _claim(storage: str) -> dict[str, Any]:
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    return {"spec": spec, "status": {"capacity": {"storage": storage}}}


def test_a_volume_has_grown_whatever_its_storage_makes_of_the_size(cluster: Cluster) -> None:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get pods": [items(pod("True"))],
            "^get pvc": [_claim("1Gi"), _claim("1Gi"), _claim("2Gi")],
            "^wait pvc": [{"error": "timed out waiting for the condition"}],
        }
    )
    ran = does("grow", "2000M")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "has 2.0 GiB" in ran.stdout


def test_a_job_that_does_not_start_reports_the_last_warning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "START_S", 0.0)

    def event(pod: str, kind: str, message: str, **when: str) -> dict[str, Any]:
        about = {"name": f"{NAME}-expiry-report-run-1{pod}"}
        return {"involvedObject": about, "type": kind, "message": message, **when}

    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get cronjob": ["cronjob.batch/it"],
            "^get jobs": [items()],
            "^get pods": [items()],
            "^get events": [
                items(
                    event("-x", "Warning", "no such image", lastTimestamp="2026-01-01T00:00:03Z"),
                    event("-x", "Normal", "pulling", lastTimestamp="2026-01-01T00:00:04Z"),
                    event("-x", "Warning", "no node", eventTime="2026-01-01T00:00:02.1Z"),
                    event("", "Normal", "Created pod", lastTimestamp="2026-01-01T00:00:01Z"),
                    {"involvedObject": {"name": "another"}, "type": "Warning", "message": "no"},
                )
            ],
        }
    )
    ran = does("report")
    assert ran.exit_code == 2
    assert "does not start: no such image" in ran.stderr


def test_a_job_that_waits_says_each_reason_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "START_S", 30.0)
    full = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}

    def state(**of_container: Any) -> dict[str, Any]:
        return {"status": {"containerStatuses": [{"state": of_container}]}}

    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get cronjob": ["cronjob.batch/it"],
            "^get jobs": [items()],
            "^get pods": [
                *[items({"status": {"conditions": [full]}})] * 4,
                *[items(state(**pulling))] * 4,
                items(state(terminated={"exitCode": 1})),
            ],
        }
    )
    ran = does("report")
    assert ran.exit_code == 1
    job = f"job {NAME}-expiry-report-run-1 waits:"
    assert ran.stderr.splitlines() == [
        f"{job} its pod is not scheduled: 0/1 nodes: Insufficient cpu",
        f"{job} ImagePullBackOff: no such image",
    ]


@pytest.mark.parametrize(
    ("command", "value"), [("report", "jobs.output.uri"), ("rebuild", "jobs.indexRebuild.enabled")]
)
def test_a_job_that_is_not_installed_names_the_value_that_installs_it(
    cluster: Cluster, command: str, value: str
) -> None:
    cluster.answers({"^get statefulsets": [items(stateful_set())]})
    ran = does(command)
    assert ran.exit_code == 2
    assert value in ran.stderr
    assert not cluster.requests("^create")


@pytest.mark.parametrize("size", ["0Qi", "ten", "10Qi"])
def test_a_size_that_is_none_is_refused_before_the_cluster_is_called(size: str) -> None:
    ran = CliRunner().invoke(app, ["grow", size, "--dry-run"])
    assert (ran.exit_code, f"{size} is no size; write it as 200Gi" in ran.stderr) == (2, True)


def job_pod(exit_code: int, message: str = "", made: str = "") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": exit_code, "message": message}}
    status = {"containerStatuses": [{"state": ended}]}
    return {"metadata": {"creationTimestamp": made}, "status": status}


def job(name: str, *conditions: str) -> dict[str, Any]:
    found = [{"type": each, "status": "True"} for each in conditions]
    return {
        "metadata": {"name": f"{NAME}-expiry-report-{name}"},
        "status": {"conditions": found},
    }


def report_of(cluster: Cluster, *pods: dict[str, Any], **answers: list[Any]) -> Result:
    cluster.answers(
        {
            "^get statefulsets": [items(stateful_set())],
            "^get cronjob": [f"cronjob.batch/{NAME}-expiry-report"],
            "^get jobs": answers.get("jobs", [items()]),
            "^get pods": [items(*pods)],
            "^create": answers.get("create", ["job.batch/it created"]),
        }
    )
    return does("report")


def test_the_findings_of_a_report_are_the_exit_code_though_its_job_succeeds(
    cluster: Cluster,
) -> None:
    assert report_of(cluster, job_pod(0, '{"exitCode": 1}')).exit_code == 1
    assert report_of(cluster, job_pod(0)).exit_code == 0
    assert report_of(cluster, job_pod(0, "made", "2"), job_pod(3, "", "1")).exit_code == 0


def test_a_second_run_beside_the_first_is_refused(cluster: Cluster) -> None:
    jobs = items(job("29811000", "Complete"), job("run-3", "FailureTarget"))
    ran = report_of(cluster, jobs=[jobs])
    assert ran.exit_code == 2
    assert f"job {NAME}-expiry-report-run-3 runs" in ran.stderr
    assert not cluster.commands("^create")


def test_a_job_that_no_pod_runs_yet_counts_as_running(cluster: Cluster) -> None:
    made = {"metadata": {"name": f"{NAME}-expiry-report-run-1"}}
    ran = report_of(cluster, jobs=[items(made)])
    assert (ran.exit_code, cluster.commands("^create")) == (2, [])


def test_runs_of_the_same_instant_choose_one_name_so_that_one_is_created(cluster: Cluster) -> None:
    ended = items(job("run-2", "Complete"), job("run-10", "Failed"), job("99", "Complete"))
    exists = {"error": f'error: jobs.batch "{NAME}-expiry-report-run-11" already exists'}
    ran = report_of(cluster, job_pod(0), jobs=[ended], create=["job.batch/it created", exists])
    assert ran.exit_code == 0
    second = does("report")
    assert second.exit_code == 2
    assert f"started in this moment, as job {NAME}-expiry-report-run-11" in second.stderr
    creates = cluster.commands("^create")
    assert creates[0] == creates[1]
