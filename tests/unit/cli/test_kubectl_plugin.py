"""Command line of the kubectl plugin, and what it prints of a cluster's replies.

Tests that need a cluster are in tests/e2e."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mqstore.cli.kube.backup import TAR
from mqstore.cli.kube.grow import quantity
from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.cli.kube.main import app, own_first
from mqstore.cli.kube.release import Release, Shard
from mqstore.cli.kube.scale import scaled
from mqstore.cli.kube.status import Lag
from mqstore.cli.output import size
from mqstore.client import TopicSum

OWN = (("-n", "store"), ("--context=there",))
COMMAND = ["logs", "0", "--tail", "5"]


@given(st.permutations([*OWN, *[(each,) for each in COMMAND]]))
def test_own_options_may_stand_anywhere(words: list[tuple[str, ...]]) -> None:
    found = own_first([each for word in words for each in word])
    own = [each for word in words if word in OWN for each in word]
    assert found == own + [each for word in words if word not in OWN for each in word]


def test_what_follows_two_dashes_is_the_commands() -> None:
    assert own_first(["backup", "0", "--", "-n"]) == ["backup", "0", "--", "-n"]


def test_an_option_without_its_value_is_reported() -> None:
    ran = CliRunner().invoke(app, own_first(["status", "-n"]))
    assert ran.exit_code == 2
    assert "requires an argument" in ran.stderr


def test_no_kubectl_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ran = CliRunner().invoke(app, ["status"])
    assert ran.exit_code == 2
    assert ran.stderr == "mqstore: no kubectl on the PATH; install it, this is a plugin of it\n"


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ("Warning: old\nerror: no such pod", "kubectl: no such pod"),
        (
            "cp: no space left\ncp: giving up\ncommand terminated with exit code 1",
            "kubectl: cp: no space left; cp: giving up",
        ),
        ("command terminated with exit code 1", "kubectl: command terminated with exit code 1"),
        ("", "kubectl: it said nothing"),
    ],
)
def test_why_kubectl_failed_is_one_line_of_what_it_said(
    said: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\nprintf '%b' {shlex.quote(said)} >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubeError) as raised:
        Kubectl().run("get", "pods")
    assert str(raised.value) == reported


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("10", 10), ("1.5Gi", 3 << 29), ("200Gi", 200 << 30), ("2k", 2000), ("3M", 3_000_000)],
)
def test_quantities_are_those_of_kubernetes(text: str, count: int) -> None:
    assert quantity(text) == count


@pytest.mark.parametrize("text", ["", "Gi", "10GiB", "-1Gi", "1e3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(KubeError, match="is no size"):
        quantity(text)


def topic_lag(messages: int, oldest_ms: int | None) -> TopicSum:
    return TopicSum(topic="t", lag=messages, expired=0, lag_ms=oldest_ms)


def test_a_lag_over_shards_is_their_sum_and_the_oldest() -> None:
    lag = Lag("g", "t")
    for part in (topic_lag(2, 50), topic_lag(0, None), topic_lag(3, 20)):
        lag.add(part)
    assert (lag.messages, lag.oldest_ms) == (5, 50)
    lag.add(topic_lag(1, None))
    lag.add(topic_lag(1, 10))
    assert (lag.messages, lag.oldest_ms) == (7, None)


def test_a_shards_state_is_what_its_container_waits_for() -> None:
    running = {"ready": True, "restartCount": 2, "state": {"running": {}}}
    crashing = {
        "ready": False,
        "restartCount": 5,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    status = {"phase": "Running", "containerStatuses": [running, crashing]}
    shard = Shard(0, "mq-shard-0", {"metadata": {}, "status": status})
    assert (shard.state, shard.ready, shard.restarts) == ("CrashLoopBackOff", "1/2", 7)
    assert Shard(1, "mq-shard-1", None).state == "missing"


def test_names_follow_the_chart() -> None:
    stateful_set = {
        "metadata": {"name": "mq-mqstore-shard"},
        "spec": {"template": {"spec": {"volumes": [{"name": "tmp"}]}}},
    }
    release = Release(Kubectl(), "mq", (stateful_set,))
    assert release.name == "mq-mqstore"
    assert release.first_pod(1) == "mq-mqstore-shard-1"
    assert release.claim_name(release.first_pod(1)) == "store-mq-mqstore-shard-1"
    assert release.selector("index-rebuild") == (
        "app.kubernetes.io/name=mqstore,app.kubernetes.io/instance=mq,"
        "app.kubernetes.io/component=index-rebuild"
    )


def test_more_shards_are_the_charts_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    stateful_set = {"metadata": {"name": "mq-mqstore-shard"}, "spec": {"replicas": 2}}
    assert scaled(Release(Kubectl(), "mq", (stateful_set,)), 3, force=True) == 2
    errors = capsys.readouterr().err
    assert "helm upgrade mq charts/mqstore --reset-then-reuse-values --set shards=3" in errors


@dataclass(frozen=True)
class OfOneSegment(Release):
    """Its last shard has a segment that is the newest, and so never goes."""

    segment: dict[str, Any]
    released: list[int] = field(default_factory=list)
    """Shards whose keys were moved to the others."""

    def shards(self) -> list[Shard]:
        return [Shard(number, f"shard-{number}", {}) for number in self.numbers]

    @contextmanager
    def client(self, shard: Shard) -> Iterator[Any]:
        plan = SimpleNamespace(made_ms=1000, segments=(self.segment,))
        store = SimpleNamespace(max_offset=1 << 20)
        yield SimpleNamespace(
            retention=lambda limit: plan, store=lambda: store, release_keys=self.released.append
        )


@pytest.mark.parametrize(
    ("offset", "expires_ms", "held_by", "may_go"),
    [
        (0, 1000, [], True),
        (0, 1001, [], False),
        (0, 1000, ["group billing"], False),
        (1 << 20, 1001, [], True),
    ],
    ids=["expired", "not expired", "held", "empty"],
)
def test_a_shard_goes_once_its_messages_have_expired(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    offset: int,
    expires_ms: int,
    held_by: list[str],
    may_go: bool,
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    segment = {"offset": offset, "size": 1 << 30, "expiresMs": expires_ms, "heldBy": held_by}
    stateful_set = {"metadata": {"name": "shop-mqstore-shard"}, "spec": {"replicas": 2}}
    release = OfOneSegment(Kubectl(), "shop", (stateful_set,), segment)
    assert scaled(release, 1, force=False) == (0 if may_go else 2)
    assert release.released == ([1] if may_go else [])
    assert ("shard 1 holds 1.0 MiB of messages" in capsys.readouterr().err) is not may_go


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_changes_ends_no_backup_and_one_that_cannot_be_read_does(
    tmp_path: Path, is_there: bool
) -> None:
    queue = tmp_path / "queue"
    queue.write_bytes(b"x" * (1 << 20))
    names = ["queue", *([] if is_there else ["gone"])]
    words = [*TAR, "--file=-", f"--directory={tmp_path}", "--", *names]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe) as copying:
        assert copying.stdout is not None
        copying.stdout.read(512)  # it waits in the middle of the file, which is more than a pipe
        queue.touch()
        copying.communicate()
    assert (copying.returncode == 0) is is_there
