"""The chart's CronJob of backups, run once: its backup is listed, verified and restored."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Release, namespace, small_values, until
from tests.e2e.operators import Operator, bodies, produce

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]
BACKUP = {
    "schedule": "30 1 * * *",
    "suspend": True,
    "existingClaim": "backups",
    "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
}
PLACE = "/var/lib/backups/shard-0"
RESTORED = "/tmp/copy"


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    with namespace() as name:
        found = Release(name, "kept", small_values(backup=BACKUP))
        found.create_claim("backups")
        found.install()
        yield found


@pytest.fixture
def operator(release: Release) -> Operator:
    return Operator(Path(os.environ["KUBECONFIG"]), release.namespace)


def test_a_backup_of_the_cron_job_is_listed_verified_and_restored(
    release: Release, operator: Operator, tmp_path: Path
) -> None:
    produce(operator, "saved", "one", "two")
    cron = release.get("cronjob", f"{release.full_name}-backup-0")
    release.kubectl("create", "job", "now", f"--from=cronjob/{cron['metadata']['name']}")
    said = _succeeded(release, "now")
    created, *_ = [json.loads(line) for line in said.splitlines()]
    produce(operator, "saved", "three")
    release.kubectl("create", "-f", "-", given=json.dumps(_idle(cron)))
    release.kubectl("wait", "pod/reader", "--for=condition=Ready", "--timeout=60s")
    [listed] = _reads(release, "backup", "ls", PLACE)
    assert listed["id"] == created["id"]
    assert _reads(release, "backup", "verify", PLACE) == []  # no finding
    _reads(release, "restore", PLACE, RESTORED)
    _reads(release, "store", "verify", RESTORED)
    copy = tmp_path / "copy"
    release.kubectl("cp", f"reader:{RESTORED}", str(copy))
    operator.does("restore", "0", str(copy), "--replace")
    assert bodies(operator, "saved") == ["one", "two"]


def test_a_backup_that_is_refused_is_not_tried_again(release: Release) -> None:
    cron = release.get("cronjob", f"{release.full_name}-backup-0")
    spec = cron["spec"]["jobTemplate"]["spec"]
    [container] = spec["template"]["spec"]["containers"]
    container["args"] = ["sh", "-ec", "mqstore backup create --no-such-option"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "refused"}, "spec": spec}
    release.kubectl("create", "-f", "-", given=json.dumps(job))

    def failure() -> list[dict[str, Any]]:
        conditions = release.get("job", "refused")["status"].get("conditions", ())
        return [each for each in conditions if each["type"] == "Failed"]

    [failed] = until(failure, "the job fails")
    assert failed["reason"] == "PodFailurePolicy", failed
    assert release.get("job", "refused")["status"]["failed"] == 1


def _succeeded(release: Release, job: str) -> str:
    """Wait until a Job has succeeded; returns what it printed."""

    def ended() -> dict[str, Any]:
        status: dict[str, Any] = release.get("job", job)["status"]
        return status if status.get("succeeded") or status.get("failed") else {}

    status = until(ended, f"the job {job} ends")
    said = release.kubectl("logs", f"job/{job}")
    assert status.get("succeeded") == 1, said
    return said


def _idle(cron: dict[str, Any]) -> dict[str, Any]:
    """A pod with the volumes of the CronJob's pods, in which commands are run."""
    spec = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    container["args"] = ["sleep", "infinity"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": spec}


def _reads(release: Release, *words: str) -> list[Any]:
    said = release.kubectl("exec", "reader", "--", "mqstore", *words, "-o", "json")
    return [json.loads(line) for line in said.splitlines()]
