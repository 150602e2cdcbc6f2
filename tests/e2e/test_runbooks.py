"""Each repair page of docs/how-to, by its own commands, on a cluster that has the fault."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.kube import release as releases
from mqstore.cli.kube.kubectl import Kubectl
from mqstore.client import NewMessage, ProblemError
from tests.e2e.cluster import KUBE, ROOT, Release, is_kube_tool, namespace, run, small_values, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs the kube tool's volumes of a size"),
    pytest.mark.timeout(600),
]
HOW_TO = ROOT / "docs" / "how-to"
FENCE = re.compile(r"^ *```sh\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
FINDINGS = ("kubectl mqstore status", "kubectl exec $POD -c query -- mqstore store verify")
"""Commands whose exit code 1 is an answer."""
NOT_ON_A_CLUSTER = {"check-a-clock-step", "open-a-refused-store", "repair-a-store"}
"""Repair pages without commands for a release."""
TOPIC = "t"
STORE = "/var/lib/mqstore/store"


def _blocks(section: str) -> list[str]:
    return [textwrap.dedent(block) for block in FENCE.findall(section)]


def _steps(page: str) -> list[str]:
    """Return the blocks of a page that are marked ``sh``, in order."""
    return _blocks((HOW_TO / f"{page}.md").read_text(encoding="utf-8"))


[PREAMBLE] = _steps("README")


@dataclass(frozen=True)
class OnCall:
    """An operator with a shell, kubectl at the release's namespace, and a page."""

    release: Release
    home: Path

    def does(self, step: str, **chosen: str) -> str:
        """Output of the step's commands, which run line by line as printed."""
        said = [self._ran(line, chosen) for line in step.splitlines()]
        return "".join(said)

    def _ran(self, line: str, chosen: dict[str, str]) -> str:
        fine = (0, 1) if line.startswith(FINDINGS) else (0,)
        tools = Path(sys.executable).parent
        env = os.environ | chosen | {"KUBECONFIG": str(self._config())}
        env["PATH"] = f"{tools}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-c", f"{PREAMBLE}\n{line}"],
            env=env,
            cwd=self.home,
            capture_output=True,
            text=True,
        )
        assert ran.returncode in fine, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _config(self) -> Path:
        path = self.home / "kubeconfig"
        if not path.exists():
            config = run("kubectl", "config", "view", "--raw", "--minify", "-o", "json")
            path.write_text(config)
            words = ("kubectl", f"--kubeconfig={path}", "config", "set-context", "--current")
            run(*words, f"--namespace={self.release.namespace}")
        return path

    def puts(self, *bodies: str) -> list[str]:
        """Ids of what was acknowledged, each under its body as its key."""
        with self._client() as client:
            client.create_topic(TOPIC, queues=1)
            messages = [NewMessage(body=body, keys=(body[:8],)) for body in bodies]
            sent = [client.produce(TOPIC, [each], durability="sync") for each in messages]
        return [each.messages[0].offset_msg_id for each in sent]

    def takes(self) -> bool:
        """Whether a put is taken."""
        try:
            self.puts("again")
        except ProblemError:
            return False
        return True

    def bodies(self) -> list[Any]:
        with self._client() as client:
            return [each.body for each in client.pull(TOPIC, 0).messages]

    def _client(self) -> Any:
        found = releases.find(Kubectl((f"--namespace={self.release.namespace}",)), None)
        return found.client(found.shards()[0])


@pytest.fixture(scope="module")
def shop() -> Iterator[Release]:
    """Nothing goes before its time, so that only what the page says makes room."""
    values = small_values(persistence={"size": "128Mi", "storageClass": "sized"})
    values["store"] |= {"cleanFileForciblyEnable": False, "cleanResourceInterval": 1000}
    with namespace() as name:
        installed = Release(name, "shop", values)
        installed.install()
        yield installed


@pytest.fixture
def on_call(shop: Release, tmp_path: Path) -> OnCall:
    return OnCall(shop, tmp_path)


def test_back_up_and_restore(on_call: OnCall) -> None:
    save, put_back, see = _steps("back-up-and-restore")
    on_call.puts("one", "two")
    on_call.does(save)
    on_call.puts("three")
    on_call.does(put_back)
    assert '"isWell": true' in on_call.does(see)
    assert on_call.bodies() == ["one", "two"]


def test_resolve_stuck_transactions(on_call: OnCall) -> None:
    look, ready, resolve, see = _steps("resolve-stuck-transactions")
    spec = {"producerGroup": "g", "topic": TOPIC, "messages": [{"body": "half"}]}
    begin = f"kubectl mqstore request /v1/transactions -c coordinator -d '{json.dumps(spec)}'"
    begun = json.loads(on_call.does(begin))["transactionId"]
    assert begun in on_call.does(look)
    assert '"status":"ready"' in on_call.does(ready)
    on_call.does(resolve, ID=begun)
    assert json.loads(on_call.does(see, ID=begun))["state"] == "rolled-back"


def test_rebuild_the_index(on_call: OnCall) -> None:
    look, make_again, see = _steps("rebuild-the-index")
    on_call.puts("lost")
    on_call.does(look)
    on_call.does(make_again)
    until(lambda: '"indexComplete":true' in on_call.does(see), "the index is complete")
    found = f"kubectl mqstore request '/v1/topics/{TOPIC}/messages?key=lost' -c query"
    assert json.loads(on_call.does(found))["messages"][0]["body"] == "lost"


def test_repair_damage(on_call: OnCall) -> None:
    scrub, keep, mend, verify, accept = _steps("repair-damage")
    [damaged] = on_call.puts("x" * 300_000)
    on_call.does("kubectl mqstore request /v1/store:flush -X POST")
    segment = _flip(on_call, damaged)
    on_call.does("kubectl mqstore request /v1/store/scrub:run -X POST")
    until(lambda: _repairs(on_call.does(scrub)), "the scrub repairs it")
    on_call.does(keep)
    on_call.does(mend)
    on_call.does(verify)
    on_call.does(accept, SEGMENT=segment)
    assert on_call.takes()


def _repairs(said: str) -> list[Any]:
    """Repairs of the scrub, from the last reply of a step."""
    found: list[Any] = json.loads(said.splitlines()[-1])["repairs"]
    return found


FLIP = """
import sys
at, path = int(sys.argv[1]), sys.argv[2]
with open(path, "r+b") as log:
    log.seek(at)
    log.write(b"y")
"""


def _flip(on_call: OnCall, message: str) -> str:
    """A byte of the message's body; the name of its segment."""
    show = f"kubectl mqstore request /v1/messages/{message} -c query"
    shown = json.loads(on_call.does(show))
    segment, at = str(shown["segment"]), int(shown["segmentPosition"]) + 200_000
    path = f"{STORE}/commitlog/{segment}"
    on_call.release.in_container("store-writer", "python", "-c", FLIP, str(at), path)
    return segment


def test_recover_from_a_failed_sync(on_call: OnCall) -> None:
    look, wait, see = _steps("recover-from-a-failed-sync")
    claim = f"{on_call.release.namespace}/store-{on_call.release.shard}"
    kept = on_call.puts("before")
    restarts = on_call.release.restarts("store-writer")
    run(str(KUBE / "disk-fault"), claim, "fail")
    try:
        with pytest.raises(ProblemError):
            on_call.puts("into the void")
        until(lambda: on_call.release.restarts("store-writer") > restarts, "the writer gives up")
        until(lambda: "the disk refuses" in on_call.does(look), "and says why")
    finally:
        run(str(KUBE / "disk-fault"), claim, "heal")
    on_call.does(wait)
    on_call.does(see)
    assert json.loads(on_call.does(f"kubectl mqstore request /v1/messages/{kept[0]} -c query"))
    assert on_call.takes()


def test_free_a_full_disk(on_call: OnCall) -> None:
    look, who, run_now, grow, see = _steps("free-a-full-disk")
    while on_call.takes():
        _fill(on_call)
    for step in (look, who, run_now):
        on_call.does(step)
    assert not on_call.takes()
    on_call.does(grow, SIZE="256Mi")
    until(on_call.takes, "puts are taken again")
    until(lambda: "DiskHasRoom" in on_call.does(see), "an Event says so")


def _fill(on_call: OnCall) -> None:
    """Until puts are refused."""
    try:
        on_call.puts(*(["x" * (1 << 20)] * 16))
    except ProblemError as error:
        assert error.status == 507


def test_replace_a_lost_node(on_call: OnCall) -> None:
    look, replace = _steps("replace-a-lost-node")
    on_call.puts("gone")
    on_call.does(look)
    on_call.does(replace)
    on_call.puts("new")
    assert on_call.bodies() == ["new"]


def test_accept_missing_data(on_call: OnCall) -> None:
    look, accept = _steps("accept-missing-data")
    on_call.puts("lost")
    on_call.release.in_container("store-writer", "sh", "-c", f"rm {STORE}/commitlog/0*")
    on_call.release.kill_writer()
    until(lambda: "watermark" in on_call.does(look), "the writer reports the loss")
    loss = on_call.does(look.splitlines()[0]).split()[-1]
    on_call.does(accept, LOSS=loss)
    assert on_call.takes()


def test_every_repair_page_is_tried_here() -> None:
    index = (HOW_TO / "README.md").read_text(encoding="utf-8")
    repairs = re.findall(
        r"\]\(([\w-]+)\.md\)", index.partition("**Repair**")[2].partition("\n## ")[0]
    )
    tried = {name.removeprefix("test_").replace("_", "-") for name in globals()}
    assert set(repairs) - tried == NOT_ON_A_CLUSTER
