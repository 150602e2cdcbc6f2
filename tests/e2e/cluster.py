"""A release of the chart in a namespace of its own, and what tests do to it.

On the cluster of the kube tool everything runs. On any other, `IMAGE_PREFIX` says where its images
are pulled from, and what only the tool can do is skipped by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "mqstore"
PREVIOUS_CHART: Final = ROOT / "build" / "previous" / "charts" / "mqstore"
"""Chart of the previous release; its image has the tag ``previous``."""
KUBE: Final = Path(os.environ.get("MQSTORE_E2E_KUBE") or ROOT.parent / "shared" / "kube")
IMAGE_PREFIX: Final = os.environ.get("MQSTORE_E2E_IMAGE_PREFIX", "")
PATIENCE_S: Final = 120
SCRIPTS: Final = Path(__file__).parent / "in_pods"
RESTRICTED: Final = "pod-security.kubernetes.io/enforce=restricted"


def is_kube_tool() -> bool:
    """Whether KUBECONFIG names the tool's cluster: its programs lie beside it."""
    config = Path(os.environ.get("KUBECONFIG", ""))
    return (config.parent / "bin" / "kubectl").exists() and (KUBE / "build-image").exists()


def run(*words: str, given: str | None = None, check: bool = True) -> str:
    """The command's output. Raises AssertionError, with what it said, when it fails."""
    done = subprocess.run(words, input=given, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def helm_test(*words: str) -> str:
    """Run `helm test`; helm prints the log of the test's pod on its standard error."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def go_module(module: str) -> Path:
    """Its folder, from the Go proxy: resources of the API that others define are shipped so. Skips
    the test where it is not to be had."""
    words = ["go", "mod", "download", "-json", module]
    fetched = subprocess.run(words, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"the Go proxy does not have {module}")
    return Path(json.loads(fetched.stdout)["Dir"])


def until(question: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Call ``question`` until its result is true, and return that; it has no event to wait for."""
    deadline = time.monotonic() + patience_s
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{what}: not so after {patience_s:g} s"
        time.sleep(0.2)
    return answer


@contextmanager
def namespace() -> Iterator[str]:
    """A new one that enforces the restricted profile; it goes with all that is in it."""
    name = f"mqstore-e2e-{uuid.uuid4().hex[:8]}"
    run("kubectl", "create", "namespace", name)
    run("kubectl", "label", "namespace", name, RESTRICTED)
    try:
        yield name
    finally:
        run("kubectl", "delete", "namespace", name, "--wait=false")


@dataclass(frozen=True)
class Release:
    """One installed release. ``values`` are given to each install and upgrade."""

    namespace: str
    name: str
    values: dict[str, Any]
    chart: Path = CHART

    @property
    def full_name(self) -> str:
        return f"{self.name}-mqstore"

    @property
    def shard(self) -> str:
        return f"{self.full_name}-shard-0"

    def kubectl(self, *words: str, given: str | None = None, check: bool = True) -> str:
        return run("kubectl", "-n", self.namespace, *words, given=given, check=check)

    def get(self, *words: str) -> Any:
        """Nothing of it where ``--ignore-not-found`` is said and it is not there."""
        return json.loads(self.kubectl("get", *words, "-o", "json") or "{}")

    def create_claim(self, name: str) -> None:
        """A claim of a small volume for one node."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.kubectl("create", "-f", "-", given=json.dumps(claim))

    def install(self, *, wait: bool = True) -> None:
        """Also an upgrade. Returns when everything is ready, unless it is not to wait."""
        words = ["helm", "-n", self.namespace, "upgrade", "--install", self.name, str(self.chart)]
        words += ["--wait", "--timeout=300s"] if wait else []
        run(*words, "-f", "-", given=json.dumps(self.values))

    def uninstall(self) -> None:
        run("helm", "-n", self.namespace, "uninstall", self.name, "--wait")

    def test(self) -> str:
        """Run the chart's own test; what the test and helm printed."""
        return helm_test("helm", "-n", self.namespace, "test", self.name, "--timeout=60s")

    def rolled_out(self) -> None:
        kind = f"statefulset/{self.full_name}-shard"
        self.kubectl("rollout", "status", kind, f"--timeout={PATIENCE_S}s")

    def restarts(self, container: str) -> int:
        statuses = self.get("pod", self.shard)["status"].get("containerStatuses", [])
        return sum(each["restartCount"] for each in statuses if each["name"] == container)

    def is_ready(self) -> bool:
        status = self.get("pod", self.shard, "--ignore-not-found").get("status", {})
        ready = [each for each in status.get("conditions", []) if each["type"] == "Ready"]
        return bool(ready) and ready[0]["status"] == "True"

    def in_container(self, container: str, *words: str, check: bool = True) -> str:
        return self.kubectl("exec", self.shard, "-c", container, "--", *words, check=check)

    def kill_writer(self) -> None:
        """As kill -9 does: all but the container's init, from within."""
        before = self.restarts("store-writer")
        self.in_container("store-writer", "sh", "-c", "kill -9 -1", check=False)
        until(lambda: self.restarts("store-writer") > before, "the writer is started again")

    def client_pod(self, name: str, script: str, *, labelled: bool = True, **env: str) -> ClientPod:
        """Starts one of SCRIPTS in a pod that may call the services, or, not labelled, may not."""
        pod = _client_pod(self, name, (SCRIPTS / f"{script}.py").read_text(), labelled, env)
        self.kubectl("create", "-f", "-", given=json.dumps(pod))
        return ClientPod(self, name)


@dataclass(frozen=True)
class ClientPod:
    """A pod that runs a script of ours. What it has to say are lines of JSON."""

    release: Release
    name: str

    def lines(self) -> list[dict[str, Any]]:
        said = self.release.kubectl("logs", self.name, check=False)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def says(self, name: str, at_least: int = 1, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The first line in which ``name`` is that or more. Raises AssertionError."""

        def found() -> list[dict[str, Any]]:
            self._check_that_it_goes_on()
            return [line for line in self.lines() if line.get(name, -1) >= at_least]

        lines: list[dict[str, Any]] = until(found, f"{self.name} says {name}", patience_s)
        return lines[0]

    def stop(self) -> None:
        """Make the script end, which it reports."""
        self.release.kubectl("exec", self.name, "--", "touch", "/tmp/stop")

    def ends(self) -> list[dict[str, Any]]:
        """All its lines, once it ended well."""
        until(lambda: self._phase() in ("Succeeded", "Failed"), f"{self.name} ends")
        self._check_that_it_goes_on()
        return self.lines()

    def _phase(self) -> str:
        return str(self.release.get("pod", self.name)["status"]["phase"])

    def _check_that_it_goes_on(self) -> None:
        if self._phase() == "Failed":
            raise AssertionError(self.release.kubectl("logs", self.name))


def small_values(**more: Any) -> dict[str, Any]:
    """A release that fits a small machine; probes that find out within seconds."""
    values: dict[str, Any] = {
        "image": {"repository": f"{IMAGE_PREFIX}mqstore/services"},
        "store": {
            "mappedFileSizeCommitLog": 8 << 20,
            "mappedFileSizeConsumeQueue": 20 * 3000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
        },
        "persistence": {"size": "256Mi"},
        "terminationGracePeriodSeconds": 15,
        "probes": {
            "liveness": {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 2},
            "readiness": {"periodSeconds": 1},
            "startup": {"periodSeconds": 1, "failureThreshold": 120},
        },
        "writer": _at_most("512Mi"),
        "query": _at_most("512Mi"),
        "coordinator": _at_most("256Mi"),
    }
    if is_kube_tool():
        values["networkPolicy"] = {"apiServer": {"cidrs": ["10.95.0.1/32"], "ports": [6443]}}
    return values | more


def _at_most(memory: str) -> dict[str, Any]:
    requests = {"cpu": "50m", "memory": "128Mi"}
    return {"resources": {"requests": requests, "limits": {"memory": memory}}}


def _client_pod(
    release: Release, name: str, script: str, labelled: bool, env: dict[str, str]
) -> dict[str, Any]:
    service = release.full_name
    urls = {
        "WRITER_URL": f"http://{service}:8081",
        "QUERY_URL": f"http://{service}:8082",
        "COORDINATOR_URL": f"http://{service}-coordinator:8083",
    }
    token = {"secretKeyRef": {"name": f"{service}-auth", "key": "admin"}}
    variables: list[dict[str, Any]] = [
        {"name": key, "value": value} for key, value in (urls | env).items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"mqstore/client": "true"} if labelled else {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "script",
                    "image": release.values["image"]["repository"] + ":" + version(),
                    "args": ["python", "-u", "-c", script],
                    "env": [*variables, {"name": "TOKEN", "valueFrom": token}],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def version() -> str:
    """Version of the chart, and of the images that `make images` makes."""
    lines = (CHART / "Chart.yaml").read_text(encoding="utf-8").splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("version: "))
