"""An operator who uses the kubectl plugin with the chart's role for operators."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.kube import release as releases
from mqstore.cli.kube.kubectl import Kubectl
from mqstore.client import NewMessage
from tests.e2e.cluster import Release

PLUGIN = [sys.executable, "-m", "mqstore.cli.kube.main"]


@dataclass(frozen=True)
class Operator:
    """A user with the role for operators and no other."""

    kubeconfig: Path
    namespace: str

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._command(words), capture_output=True, text=True)

    def does(self, *words: str) -> str:
        ran = self(*words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def started(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command(words), stdout=pipe, stderr=pipe, text=True)

    def found(self) -> releases.Release:
        options = (f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}")
        return releases.find(Kubectl(options), None)

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [*PLUGIN, *words, f"--kubeconfig={self.kubeconfig}", "-n", self.namespace]


@contextmanager
def operator_of(release: Release, account: str, folder: Path) -> Iterator[Operator]:
    """One with an account of that name, whose kubeconfig is in ``folder``."""
    role = f"--role={release.full_name}-operator"
    release.kubectl("create", "serviceaccount", account)
    release.kubectl(
        "create", "rolebinding", account, role, f"--serviceaccount={release.namespace}:{account}"
    )
    token = release.kubectl("create", "token", account).strip()
    config = json.loads(release.kubectl("config", "view", "--minify", "--raw", "-o", "json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    yield Operator(path, release.namespace)
    release.kubectl("delete", f"rolebinding/{account}", f"serviceaccount/{account}")


def assert_restores(operator: Operator, folder: Path) -> None:
    """A backup of shard 0 replaces its store, which later messages are not in."""
    produce(operator, "saved", "one", "two")
    operator.does("backup", "0", str(folder))
    produce(operator, "saved", "three")
    assert operator("restore", "0", str(folder)).returncode == 2, "it holds messages"
    operator.does("restore", "0", str(folder), "--replace")


def remove_filled_shard(release: Release, operator: Operator) -> None:
    """Scale from two shards to one, which is refused before ``--force``: the second has a message.
    Returns before the release is upgraded again."""
    found = operator.found()
    with found.client(found.shards()[1]) as client:
        client.create_topic("second", queues=1)
        client.produce("second", [NewMessage(body="here")])
    refused = operator("scale", "1")
    assert refused.returncode == 2
    assert "shard 1 holds" in refused.stderr
    release.values["shards"] = 1
    with pytest.raises(AssertionError, match="removes shard 1, and its messages"):
        release.install()
    operator.does("scale", "1", "--force")


def produce(operator: Operator, topic: str, *bodies: str) -> None:
    found = operator.found()
    with found.client(found.shards()[0]) as client:
        client.create_topic(topic, queues=1)
        for body in bodies:
            client.produce(topic, [NewMessage(body=body)], durability="sync")


def bodies(operator: Operator, topic: str) -> list[Any]:
    found = operator.found()
    with found.client(found.shards()[0]) as client:
        return [each.body for each in client.pull(topic, 0).messages]
