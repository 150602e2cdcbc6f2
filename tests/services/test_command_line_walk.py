"""Each everyday command, used once as a user does, against real services."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from mqstore.cli import completion
from mqstore.cli.main import app
from mqstore.client import NewMessage
from tests.services.service_processes import Run, running

pytestmark = pytest.mark.xdist_group("command-line-walk")

Use = Callable[..., Result]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All services over one store with the topic ``orders``, which has three messages."""
    with running(tmp_path_factory.mktemp("walk") / "store", coordinator=True) as run:
        with run.client() as client:
            client.create_topic("orders", queues=2)
            for number, tag in enumerate(("paid", "paid", "sent")):
                message = NewMessage(
                    body=f"teapot {number}", tags=tag, keys=[f"order-{number}"], queue_id=0
                )
                client.produce("orders", message)
        yield run


@pytest.fixture
def use(system: Run, tmp_path: Any) -> Use:
    """Runs a command; its exit code is 0 unless ``code`` is given."""
    urls = {
        "MQSTORE_WRITER_URL": system.writer_url,
        "MQSTORE_QUERY_URL": system.query_url,
        "MQSTORE_COORDINATOR_URL": system.coordinator_url,
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def run(*words: str, code: int = 0, stdin: str | None = None, form: str = "json") -> Result:
        done = CliRunner().invoke(app, words, env={**urls, "MQSTORE_OUTPUT": form}, input=stdin)
        assert done.exit_code == code, done.output
        return done

    return run


def lines(done: Result) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def bodies(done: Result) -> list[str]:
    return [each["body"] for each in lines(done)]


def test_a_name_that_no_topic_can_have_is_refused_as_such(use: Use) -> None:
    for words in (("topic", "create", "a/b"), ("topic", "info", ".."), ("produce", "a/b", "x")):
        refused = use(*words, code=2).stderr
        assert "is no topic name" in refused, words
        assert refused.count("\n") == 1
    assert "is no group name" in use("group", "info", "a/b", code=2).stderr


def test_a_debug_bundle_has_the_state_and_no_secret(use: Use, tmp_path: Path) -> None:
    use("topic", "create", "private", "--queues", "1")
    secrets = ("BODY-SECRET", "KEY-SECRET", "PROPERTY-SECRET", "TOKEN-SECRET-0123456789")
    use("produce", "private", secrets[0], "-k", secrets[1], "-p", f"p={secrets[2]}")
    file = tmp_path / "bundle.tar.gz"
    words = ("debug", "bundle", str(file), "--token", secrets[3])
    assert "would write topics" in use(*words, "--dry-run", form="table").stdout
    assert not file.exists()
    (done,) = lines(use(*words))
    assert done["errors"] == {}
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {each.name: archive.extractfile(each).read() for each in archive.getmembers()}  # type: ignore[union-attr]
    names = {name.removeprefix("mqstore-debug/") for name in parts}
    assert {"topics.json", "shard-0/store.json", "writer-metrics.txt", "errors.json"} <= names
    assert b"private" in parts["mqstore-debug/topics.json"]
    for name, content in parts.items():
        assert not [each for each in secrets if each.encode() in content], name
    assert "exists" in use(*words, code=2).stderr


def test_a_debug_bundle_names_what_it_could_not_fetch(use: Use, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    words = ("debug", "bundle", str(file), "--coordinator-url", "http://127.0.0.1:9")
    (done,) = lines(use(*words, code=1))
    assert {"coordinator-health.json", "coordinator-metrics.txt"} <= done["errors"].keys()
    gone = tmp_path / "gone.tar.gz"
    urls = [f"--{name}-url=http://127.0.0.1:9" for name in ("writer", "query", "coordinator")]
    use("debug", "bundle", str(gone), *urls, code=3)
    assert not gone.exists()


def test_settings_are_shown_with_their_sources(use: Use) -> None:
    shown = {each["name"]: each for each in lines(use("config", "ls"))}
    assert shown["host"]["service"] == "writer, query, coordinator"
    assert shown["fileReservedTime"]["service"] == "writer"
    table = use("config", "get", "accessLog", form="table").stdout
    assert "value:    false" in table
    assert shown["diskMaxUsedSpaceRatio"]["value"] == 100
    assert shown["diskMaxUsedSpaceRatio"]["source"] == "environment"
    everything = {each["name"] for each in lines(use("config", "ls", "--all"))}
    assert everything > shown.keys()
    assert {"flushDiskType", "tokenAdmin", "logLevel"} <= everything
    (one,) = lines(use("config", "get", "MQSTORE_FLUSH_DISK_TYPE"))
    assert (one["value"], one["source"]) == ("ASYNC_FLUSH", "default")
    assert "did you mean fileReservedTime?" in use("config", "get", "fileReserved", code=2).stderr
    how = use("config", "set", "flushDiskType", "SYNC_FLUSH", code=2).stderr
    assert "MQSTORE_FLUSH_DISK_TYPE=SYNC_FLUSH" in how
    assert "settings.flushDiskType=SYNC_FLUSH" in how
    use("config", "set", "flush_disk_type", "ASYNC_FLUSH")
    use("config", "set", "accessLog", "no")
    refused = use("config", "set", "flushDiskType", "BAD", code=2).stderr
    assert "should be 'SYNC_FLUSH' or 'ASYNC_FLUSH'" in refused
    refused = use("config", "set", "queryThreads", "0", "--service", "query", code=2).stderr
    assert "greater than or equal to 1" in refused


def test_an_index_rebuild_starts_the_job_or_says_how(
    use: Use, system: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = use("index", "rebuild", code=2).stderr
    assert "mqstore-jobs[spark]" in refused and "kubectl mqstore rebuild" in refused
    job = tmp_path / "mqstore-index-rebuild"
    job.write_text('#!/bin/sh\necho "$@" "$MQSTORE_TOKEN" > "${0%/*}/given"\nexit 3\n')
    job.chmod(0o755)
    use("index", "rebuild", "--dry-run", "--token", "t" * 16, code=3)
    given = (tmp_path / "given").read_text().split()
    assert given == ["--dry-run", f"{system.query_url},{system.writer_url}", "t" * 16]


def test_topics_are_created_shown_changed_and_deleted(use: Use) -> None:
    assert "would create" in use("topic", "create", "t1", "--dry-run", form="table").stdout
    assert lines(use("topic", "create", "t1", "--queues", "2"))[0]["queues"] == 2
    refused = use("topic", "create", "t1", code=2)
    assert "`mqstore topic update t1` changes it" in refused.stderr
    assert "t1" in [each["topic"] for each in lines(use("topic", "ls"))]
    assert (
        "would change"
        in use("topic", "update", "t1", "--perm", "4", "--dry-run", form="table").stdout
    )
    assert lines(use("topic", "update", "t1", "--queues", "3"))[0]["queues"] == 3
    use("topic", "update", "t1", code=2)
    use("topic", "update", "t1", "--perm", "5", code=2)
    shown = yaml.safe_load(use("topic", "info", "t1", form="yaml").stdout)
    assert [each["queueId"] for each in shown["queueBounds"]] == [0, 1, 2]
    assert use("topic", "info", "t1", form="table").stdout.splitlines()[0].split() == [
        "topic:",
        "t1",
    ]
    assert "Repeat the command with --yes" in use("topic", "delete", "t1", code=2).stderr
    assert lines(use("topic", "delete", "t1", "--dry-run"))[0]["dryRun"] is True
    assert lines(use("topic", "delete", "t1", "--yes"))[0]["dryRun"] is False
    assert "t1" in use("topic", "info", "t1", code=2).stderr


def test_queues_with_unread_messages_are_taken_away_after_a_confirmation(use: Use) -> None:
    use("topic", "create", "narrow", "--queues", "4")
    for queue_id in range(4):
        use("produce", "narrow", "x", "--queue", str(queue_id))
    fewer = ("topic", "update", "narrow", "--queues", "1")
    lost = "3 messages in 3 queues can be received no more, not consumed by any group (3)"
    assert lost in use(*fewer, "--dry-run", form="table").stdout
    refused = use(*fewer, code=2).stderr
    assert lost in refused and "Repeat the command with --yes" in refused
    drains = lines(use("topic", "update", "narrow", "--write-queues", "1"))[0]
    assert (drains["readQueues"], drains["writeQueues"]) == (4, 1)
    assert lines(use(*fewer, "--yes"))[0]["readQueues"] == 1


def test_messages_are_produced_from_arguments_lines_and_json(use: Use) -> None:
    use("topic", "create", "made", "--queues", "1")
    options = ("-k", "k1", "-k", "k2", "-t", "red", "-p", "a=b", "--sync")
    (placed,) = lines(use("produce", "made", "one", *options))
    (stored,) = lines(use("message", "get", placed["offsetMsgId"]))
    message = stored["message"]
    assert (message["body"], message["keys"], message["tags"]) == ("one", ["k1", "k2"], "red")
    assert message["properties"]["a"] == "b"
    assert len(lines(use("produce", "made", stdin="two\nthree\n", code=0))) == 2
    more = '{"body": "four", "orderingKey": "o"}\n\n{"bodyBase64": "Zml2ZQ=="}\n'
    assert len(lines(use("produce", "made", "--jsonl", "--rate", "1000", stdin=more))) == 2
    assert sorted(bodies(use("consume", "made"))) == ["five", "four", "one", "three", "two"]
    dry = use("produce", "made", "--jsonl", "--dry-run", stdin=more, form="table")
    assert dry.stdout == "would store 2 messages in made\n"
    assert (
        "line 3 of stdin"
        in use("produce", "made", "--jsonl", stdin=f"{more[:37]}\n{{", code=2).stderr
    )
    failed = use("produce", "no-topic", "a", "b", code=2).stderr
    assert failed.startswith("mqstore: messages 1 to 2 are not stored: ")
    assert failed.count("\n") == 1
    (late,) = lines(use("produce", "made", "later", "--delay", "1h"))
    assert late["queueOffset"] >= 0
    assert any(each["pending"] for each in lines(use("delay", "ls")))


def test_messages_are_read_without_a_trace(use: Use, system: Run) -> None:
    assert bodies(use("consume", "orders", "-n", "2")) == ["teapot 0", "teapot 1"]
    assert bodies(use("consume", "orders", "--from", "1")) == ["teapot 1", "teapot 2"]
    assert bodies(use("consume", "orders", "--from", "1h ago", "--tags", "sent")) == ["teapot 2"]
    assert bodies(use("consume", "orders", "--from", "latest")) == []
    assert bodies(use("consume", "orders", "--queue", "1")) == []
    assert use("consume", "orders", "--raw", "-n", "1").stdout == "teapot 0\n"
    followed = use("consume", "orders", "--follow", "--from", "earliest", "-n", "3")
    assert bodies(followed) == ["teapot 0", "teapot 1", "teapot 2"]
    assert "has no queue 9" in use("consume", "orders", "--queue", "9", code=2).stderr
    with system.client() as client:
        assert "orders" not in [topic for each in client.groups().groups for topic in each.topics]


def test_messages_are_found_listed_and_resent(use: Use) -> None:
    (found,) = lines(use("message", "find", "orders", "order-1"))
    assert found["body"] == "teapot 1"
    use("message", "find", "orders", "none", code=1)
    assert bodies(use("message", "ls", "orders", "--oldest", "-n", "2")) == ["teapot 0", "teapot 1"]
    traced = lines(use("message", "trace", found["offsetMsgId"]))
    assert traced[0]["copies"][0]["offsetMsgId"] == found["offsetMsgId"]
    use("topic", "create", "again", "--queues", "1")
    words = ("message", "resend", found["offsetMsgId"], "--to", "again")
    assert "would store" in use(*words, "--dry-run", form="table").stdout
    use(*words)
    (copy,) = lines(use("consume", "again"))
    assert (copy["body"], copy["keys"], copy["tags"]) == ("teapot 1", ["order-1"], "paid")
    assert copy["uniqKey"] != found["uniqKey"]


def test_a_group_consumes_and_is_moved_copied_and_deleted(use: Use) -> None:
    use("topic", "create", "work", "--queues", "1")
    use("produce", "work", "a", "b", "c")
    assert bodies(use("consume", "work", "--group", "g", "-n", "2")) == ["a", "b"]
    assert bodies(use("consume", "work", "-g", "g")) == ["c"]
    assert "group reset g work" in use("consume", "work", "-g", "g", "--from", "0", code=2).stderr
    assert "g" in [each["group"] for each in lines(use("group", "ls"))]
    (lag,) = lines(use("group", "lag", "g"))
    assert (lag["group"], lag["lag"]) == ("g", 0)
    assert lines(use("lag", "g"))[0]["group"] == "g"
    assert (
        "would change"
        in use("group", "update", "g", "--retries", "3", "--dry-run", form="table").stdout
    )
    assert lines(use("group", "update", "g", "--retries", "3"))[0]["config"]["retryTimesMax"] == 3

    dry = lines(use("group", "reset", "g", "work", "--to", "earliest", "--dry-run"))
    assert [(each["before"], each["after"]) for each in dry] == [(3, 0)]
    use("group", "reset", "g", "work", "--to", "1h ago", code=2)
    use("group", "reset", "g", "work", "--to", "1h ago", "--yes")
    use("group", "seek", "g", "work", "--queue", "0", "--to", "2", "--dry-run")
    use("group", "seek", "g", "work", "--queue", "0", "--to", "2")
    shown = yaml.safe_load(use("group", "info", "g", form="yaml").stdout)
    assert [each["committed"] for each in shown["offsets"]] == [2]
    use("group", "update", "h")
    (cloned,) = lines(use("group", "clone", "g", "h", "--yes"))
    assert cloned["after"] == 2
    use("group", "delete", "h", code=2)
    assert "would delete" in use("group", "delete", "h", "--dry-run", form="table").stdout
    use("group", "delete", "h", "--yes")
    assert "h" not in [each["group"] for each in lines(use("group", "ls"))]


def test_a_transaction_is_listed_shown_and_resolved(use: Use, system: Run) -> None:
    with system.client() as client:
        begun = client.begin("billing", "orders", NewMessage(body="paid?"), check_immunity_s=3600)
    name = begun.transaction_id
    assert name in [each["transactionId"] for each in lines(use("tx", "ls", "--group", "billing"))]
    assert lines(use("tx", "show", name))[0]["state"] == "pending"
    words = ("tx", "resolve", name, "rollback", "--reason", "a test")
    assert "would rollback" in use(*words, "--dry-run", form="table").stdout
    use(*words, code=2)
    assert lines(use(*words, "--yes"))[0]["state"] == "rolled-back"


def test_the_state_of_the_store_is_shown(use: Use) -> None:
    assert lines(use("retention", "plan"))[0]["bytesToGo"] == 0
    assert use("retention", "plan", form="csv").stdout.startswith("made_ms,")
    assert "SEGMENT" in use("retention", "plan", form="table").stdout
    use("retention", "run", code=2)
    use("retention", "run", "--dry-run")
    use("retention", "run", "--yes")
    assert lines(use("index", "status"))[0]["indexComplete"] is True
    assert "complete:" in use("index", "status", form="table").stdout
    assert lines(use("scrub", "status"))[0]["findingCount"] == 0
    assert "would read" in use("scrub", "start", "--dry-run", form="table").stdout
    use("scrub", "start")
    use("scrub", "repair", code=2)
    assert lines(use("scrub", "repair", "--dry-run")) == []
    assert lines(use("scrub", "repair", "--yes")) == []
    assert "opened" in [each["kind"] for each in lines(use("events"))]


def test_a_check_warns_beyond_a_limit(use: Use) -> None:
    use("check", "--disk", "100", "--coordinator")
    use("topic", "create", "late", "--queues", "1")
    use("produce", "late", "a", "b")
    use("consume", "late", "-g", "slow", "-n", "1")
    found = use("check", "--disk", "100", "--lag", "0", code=1)
    late = next(each for each in lines(found) if each["check"] == "groups")
    assert (late["state"], "slow 1 messages" in late["detail"]) == ("warning", True)
    gone = use("check", "--query-url", "http://127.0.0.1:9", code=3)
    assert gone.stderr.startswith("mqstore: http://127.0.0.1:9 does not answer")


def test_names_are_completed_and_a_dead_service_completes_nothing(
    system: Run,
) -> None:
    shell: Any = SimpleNamespace(params={"writer_url": system.writer_url})
    assert "orders" in completion.complete_topic(shell, "ord")
    assert completion.complete_topic(shell, "nothing-like-it") == []
    assert completion.complete_group(shell, "no-group") == []
    assert completion.complete_shard(shell, "") == []
    shell.params = {"writer_url": "http://127.0.0.1:9"}
    assert completion.complete_topic(shell, "") == []


def test_a_load_is_measured(use: Use) -> None:
    use("topic", "create", "load", "--queues", "2")
    assert "would store" in use("bench", "produce", "load", "--dry-run", form="table").stdout
    words = ("bench", "produce", "load", "-n", "20", "--batch", "5", "--clients", "2")
    (made,) = lines(use(*words, "--rate", "1000"))
    assert (made["messages"], made["requests"]) == (20, 4)
    assert 0 < made["p50Ms"] <= made["maxMs"]
    (consumed,) = lines(use("bench", "consume", "load", "--group", "b", "-n", "20"))
    assert consumed["messages"] == 20
    figures = use("bench", "tx", "load", "-n", "2", form="csv").stdout.splitlines()
    assert figures[0].startswith("messages,requests,seconds,messagesPerS,p50Ms")
    assert "no-topic" in use("bench", "produce", "no-topic", "-n", "1", code=2).stderr


def test_the_live_view_is_printed_in_a_pipe(use: Use) -> None:
    looks = lines(use("top", "-n", "2", "--interval", "0.1"))
    assert [each["bytesPerS"] is None for each in looks] == [True, False]
    assert "GROUP" in use("top", "-n", "1", form="table").stdout


def test_a_delayed_message_is_shown_with_its_due_time_and_no_place_in_the_topic(use: Use) -> None:
    head, row = use("produce", "orders", "--delay", "1h", "x", form="table").stdout.splitlines()
    cells = dict(zip(head.split(), row.split(), strict=True))
    assert (cells["QUEUE"], cells["OFFSET"]) == ("-", "-")
    assert cells["DUE"] > cells["STORED"]
    (document,) = lines(use("produce", "orders", "--delay", "1h", "x"))
    assert document["waitsIn"] == "rmq_sys_wheel_timer"
    assert document["dueAt"] - document["storeTimestamp"] >= 3_599_000
    assert "DUE" not in use("produce", "orders", "x", form="table").stdout


def test_the_source_of_offsets_is_named_as_it_was_looked_up(use: Use) -> None:
    use("group", "seek", "billing", "orders", "--queue", "0", "--to", "1")
    for words in (("group", "lag"), ("group", "lag", "billing")):
        assert use(*words, form="table").stdout.startswith("offsets of store-writer, as of now\n")


def test_lines_of_stdin_go_to_all_queues_in_turn(use: Use) -> None:
    use("topic", "create", "spread", "--queues", "4")
    stored = lines(use("produce", "spread", stdin="".join(f"{n}\n" for n in range(40))))
    assert [each["queueId"] for each in stored] == [*range(4)] * 10
    given = [{"body": "a", "queueId": 3}, {"body": "b"}, {"body": "c", "orderingKey": "k"}]
    text = "".join(f"{json.dumps(each)}\n" for each in given)
    first, second, _ = lines(use("produce", "spread", "--jsonl", stdin=text))
    assert (first["queueId"], second["queueId"]) == (3, 0)
    assert [each["queueId"] for each in lines(use("produce", "spread", "x", "y"))] == [0, 1]
    assert "not stored" in use("produce", "no-such-topic", stdin="x\n", code=2).stderr


def test_a_message_can_be_delivered_in_three_hours_and_not_two_hours_ago(use: Use) -> None:
    (stored,) = lines(use("produce", "orders", "--at", "in 3h", "x"))
    assert stored["dueAt"] - stored["storeTimestamp"] > 10_000_000
    assert "has passed" in use("produce", "orders", "--at", "2h ago", "x", code=2).stderr


def test_an_unknown_topic_names_the_call_before_the_command(use: Use) -> None:
    text = use("topic", "info", "no-such-topic", code=2).stderr
    assert 0 < text.index("GET /v1/topics") < text.index("mqstore topic ls")
