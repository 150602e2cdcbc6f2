"""Acknowledged messages outlive the pods; an uninstall keeps the volumes."""

from __future__ import annotations

import json
import os
import re
import shlex
import uuid

import pytest

from tests.e2e.cluster import ROOT, Release, helm_test, namespace, run, small_values, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]


def test_nothing_acknowledged_as_sync_is_lost_by_kills(release: Release) -> None:
    client = release.client_pod(f"load-{uuid.uuid4().hex[:8]}", "produce", TOPIC="kills")
    client.says("acked", 100)
    release.kill_writer()
    client.says("acked", _acked(client.lines()) + 100)
    release.kubectl("delete", "pod", release.shard, "--wait=false", "--grace-period=0", "--force")
    client.says("acked", _acked(client.lines()) + 100)
    release.kubectl("delete", "pod", release.shard)
    client.says("acked", _acked(client.lines()) + 100)
    client.stop()
    found = client.ends()[-1]
    assert (found["lost"], found["doubled"]) == ([], [])
    assert found["slowest"] < 60
    until(release.is_ready, "the pod is ready")


def _acked(lines: list[dict[str, int]]) -> int:
    return max(line.get("acked", 0) for line in lines)


def test_the_readme_installs_and_an_uninstall_keeps_messages_and_tokens() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Install on Kubernetes\n")[2]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    images, *commands, status = block.splitlines()
    assert images == "make images"  # `make e2e` has made them
    install, test = [shlex.split(line, comments=True) for line in commands]
    with namespace() as name:
        install, test = (_in_namespace(words, name) for words in (install, test))
        release = Release(name, "shop", small_values())
        install += ["--set", f"image.repository={release.values['image']['repository']}"]
        run(*install)
        assert "was committed" in helm_test(*test)
        shown = json.loads(run("bash", "-ec", status.replace("-n shop", f"-n {name} -o json")))
        assert [shard["isWell"] for shard in shown["shards"]] == [True]
        before = _what_is_kept(release)
        release.uninstall()
        left = ("pods", "-l", "app.kubernetes.io/name=mqstore")
        until(lambda: not release.get(*left)["items"], "the pods are gone, the test's own too")
        run(*install)
        assert _what_is_kept(release) == before
        assert "was committed" in helm_test(*test)
        sizes = release.in_container(
            "store-writer", "sh", "-c", "stat -c %s /var/lib/mqstore/store/commitlog/*"
        )
        assert set(sizes.split()) == {str(1 << 30)}  # RocketMQ's own


TEST_TOPIC = "mqstore-test"
SHARD = "app.kubernetes.io/component=shard"


def _in_namespace(words: list[str], name: str) -> list[str]:
    at = words.index("--namespace") + 1
    return [*words[:at], name, *words[at + 1 :]]


def _what_is_kept(release: Release) -> tuple[object, object, str, int]:
    """The tokens, the claims, the store's identity, and how many messages it holds."""
    claims = [each["metadata"]["uid"] for each in release.get("pvc")["items"]]
    show = "import json; print(json.load(open('/var/lib/mqstore/store/mqstore/format.json')))"
    identity = release.in_container("query", "python", "-c", show)
    store_id = re.findall(r"'storeId': '([^']+)'", identity)[0]
    held = release.in_container("query", "mqstore", "store", "dump", "/var/lib/mqstore/store")
    messages = sum(json.loads(line).get("topic") == TEST_TOPIC for line in held.splitlines())
    assert messages > 0
    tokens = release.get("secret", f"{release.full_name}-auth")["data"]
    return tokens, claims, store_id, messages
