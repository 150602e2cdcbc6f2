"""The commands of docs/how-to that need no cluster do what their page says.

Only addresses and placeholders change. tests/e2e/test_runbooks.py runs those of a release.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Client, NewMessage, WantedMessages
from mqstore.service import settings
from tests.services.page_blocks import FENCE, HOW_TO, Reader, blocks_of
from tests.services.scripted_leader import ScriptedLeader
from tests.services.service_processes import running, writer

LOCAL: Final = re.compile(r"curl |(\.venv/bin/)?mqstore |cp |make (?!images)|printf |chronyc |seq ")
"""Beginnings of blocks that need no cluster."""
RUN_HERE: Final = {
    ("archive-messages", "curl -X DELETE"),
    ("back-up-and-restore", ".venv/bin/mqstore backup create"),
    ("back-up-and-restore", ".venv/bin/mqstore backup prune"),
    ("back-up-and-restore", ".venv/bin/mqstore restore BACKUPS RESTORED --dry-run"),
    ("call-from-javascript", "curl 'localhost:8082/v1/topics/orders/queues/0/messages"),
    ("check-a-clock-step", "chronyc"),
    ("consume-in-order", "curl -X PUT localhost:8081/v1/groups/billing/members"),
    ("consume-in-order", "curl -X POST localhost:8081/v1/groups/billing:receive"),
    ("consume-in-order", "curl localhost:8081/v1/groups/billing/members"),
    ("consume-messages", "curl -X POST localhost:8081/v1/groups/shipping:receive"),
    ("consume-messages", "curl -X POST localhost:8081/v1/groups/shipping:ack"),
    ("everyday-commands", ".venv/bin/mqstore topic create"),
    ("everyday-commands", "seq 3"),
    ("everyday-commands", ".venv/bin/mqstore topic update"),
    ("everyday-commands", ".venv/bin/mqstore generate"),
    ("everyday-commands", ".venv/bin/mqstore debug"),
    ("export-and-import", ".venv/bin/mqstore store export"),
    ("export-and-import", ".venv/bin/mqstore produce"),
    ("find-a-lost-message", ".venv/bin/mqstore message trace"),
    ("find-a-lost-message", "curl 'localhost:8082/v1/messages/ID'"),
    ("find-a-lost-message", ".venv/bin/mqstore message get"),
    ("find-a-lost-message", "curl 'localhost:8082/v1/topics/TOPIC/messages?key=KEY'"),
    ("find-a-lost-message", "curl 'localhost:8082/v1/topics/TOPIC/messages?from=MS"),
    ("find-a-lost-message", "curl localhost:8081/v1/store/recovery"),
    ("find-a-lost-message", ".venv/bin/mqstore store dump"),
    ("follow-a-broker", "cp -a"),
    ("follow-a-broker", ".venv/bin/mqstore promote"),
    ("handle-dead-letters", ".venv/bin/mqstore dlq ls"),
    ("handle-dead-letters", "curl 'localhost:8082/v1/groups/shipping/dead-letters"),
    ("handle-dead-letters", ".venv/bin/mqstore dlq resend"),
    ("monitor-lag", ".venv/bin/mqstore group lag"),
    ("monitor-the-services", "curl localhost:8081/healthz/ready"),
    ("move-from-a-broker", "cp -a"),
    ("move-from-a-broker", ".venv/bin/mqstore store verify"),
    ("open-a-refused-store", ".venv/bin/mqstore store info"),
    ("pause-writes", "curl -X PUT"),
    ("produce-messages", "curl -X POST"),
    ("produce-messages", "curl -H"),
    ("pause-writes", "curl -X PUT localhost:8081/v1/store/writes -H 'content-type: app"),
    ("rebuild-the-index", ".venv/bin/mqstore store rebuild"),
    ("repair-a-store", ".venv/bin/mqstore store repair"),
    ("repair-a-store", ".venv/bin/mqstore store rebuild"),
    ("replay-from-a-time", "curl -X POST"),
    ("replay-from-a-time", "curl 'localhost:8082/v1/topics/orders/queues/0/offset"),
    ("replay-from-a-time", "curl -X POST localhost:8082/v1/offsets:by-time"),
    ("rotate-tokens", "printf"),
    ("send-transactions", "curl localhost:8083/v1/transactions"),
}
"""Page and beginning of each block that a test of this module runs."""
NOT_RUN: Final = {
    ("archive-messages", "make expiry-report"): "needs an object store; tests/spark archives",
    ("back-up-and-restore", ".venv/bin/mqstore restore BACKUPS RESTORED --to-time"): "needs a log"
    " of two hours; test_restored_stores ends logs",
    ("everyday-commands", ".venv/bin/mqstore bench"): "is slow; test_command_line_walk has it",
    ("everyday-commands", ".venv/bin/mqstore context add"): "test_contexts has it",
    ("follow-a-broker", ".venv/bin/mqstore follow"): "runs until Ctrl-C; test_followers runs it",
    ("prevent-unread-expiry", "make expiry-report"): "needs Spark; tests/spark makes reports",
    ("rebuild-the-index", "make index-rebuild"): "needs Spark; tests/spark rebuilds",
    ("send-transactions", "curl -X PUT"): "needs a producer; test_producers_called_back has one",
    ("use-the-console", "make run"): "runs until Ctrl-C; test_run runs it",
}
LEFT_OUT: Final = re.compile(
    r"chronyc|timedatectl|sh bin/mqbroker|MQSTORE_CONFIG_FILE=|\.venv/bin/mqstore check"
)
"""Commands of executed blocks that need the node, a broker, run until Ctrl-C, or judge what other
tests have stored."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the pages use it"),
    pytest.mark.xdist_group("how-to-pages"),
]


def _block(page: str, beginning: str) -> list[str]:
    """The commands that are run of the first block with this beginning."""
    assert (page, beginning) in RUN_HERE
    found = [block for block in blocks_of(page) if block[0].startswith(beginning)]
    return [command for command in found[0] if not LEFT_OUT.match(command)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """All services over a store with a consumed message of topic orders."""
    home = tmp_path_factory.mktemp("pages")
    with running(home / "store", coordinator=True) as run, run.client() as client:
        client.create_topic("orders", queues=1)
        client.produce(
            "orders", [NewMessage(body="two teapots", keys=("order-1",))], durability="sync"
        )
        client.commit("billing", "orders", {0: 1})
        yield Reader(run, home / "store", home)


def test_each_block_without_a_cluster_is_run_or_says_why_not() -> None:
    blocks = [
        (page.stem, commands[0])
        for page in sorted(HOW_TO.glob("*.md"))
        for commands in blocks_of(page.stem)
        if LOCAL.match(commands[0])
    ]
    entries = RUN_HERE | NOT_RUN.keys()
    lacking = [
        (page, first)
        for page, first in blocks
        if not any(page == name and first.startswith(start) for name, start in entries)
    ]
    unused = [
        (name, start)
        for name, start in entries
        if not any(page == name and first.startswith(start) for page, first in blocks)
    ]
    assert (lacking, unused) == ([], [])


def test_call_from_javascript(reader: Reader) -> None:
    beginning = "curl 'localhost:8082/v1/topics/orders/queues/0/messages"
    pulled, _ = reader.replies(_block("call-from-javascript", beginning))
    assert (pulled["next"], pulled["messages"][0]["physicalOffset"]) == ("1", "0")


def test_everyday_commands(reader: Reader) -> None:
    page = "everyday-commands"
    created, placed, read, found, lags = reader.replies(
        _block(page, ".venv/bin/mqstore topic create")
    )
    assert created["queues"] == 8
    assert read["body"] == found["body"] == "two teapots"
    assert placed["uniqKey"] == found["uniqKey"]
    assert "groups" in lags
    printed, by_time, raw, copied, grouped = reader.replies(_block(page, "seq 3"))
    assert len(printed.splitlines()) == 3
    assert by_time["tags"] == "paid"
    assert (str(raw).strip() in ("two teapots", "1", "2", "3"), copied) == (True, "")
    assert len(grouped.splitlines()) == 2
    _, dry, reset, deleted = reader.replies(_block(page, ".venv/bin/mqstore topic update"))
    assert dry.splitlines()
    assert reset.splitlines()
    assert deleted["topic"] == "invoices"
    reader.replies(_block(page, ".venv/bin/mqstore generate"))
    for name in ("mqstore-alerts.yaml", "mqstore-dashboard.json", "mqstore.service"):
        assert (reader.home / name).stat().st_size
    (bundle,) = reader.replies(_block(page, ".venv/bin/mqstore debug"))
    assert (reader.home / bundle["file"]).exists()


def test_find_a_lost_message(reader: Reader) -> None:
    by_key, by_id = _block("find-a-lost-message", ".venv/bin/mqstore message trace")
    (traced,) = reader.replies([by_key])
    (copy,) = traced["copies"]
    assert copy["kind"] == "message"
    message_id = copy["offsetMsgId"]
    reader.replies([by_id], **{"MESSAGE-ID": message_id})
    (look,) = _block("find-a-lost-message", "curl 'localhost:8082/v1/messages/ID'")
    (found,) = reader.replies([look], ID=message_id)
    assert found["body"] == "two teapots"
    named, listed, many = _block("find-a-lost-message", ".venv/bin/mqstore message get")
    two = {"OTHER-ID": message_id, "ID": message_id}
    (reader.home / "ids.txt").write_text(f"{message_id}\n{message_id}\n", encoding="utf-8")
    for printed in reader.replies([named, listed], **two):
        assert printed.count("two teapots") == 2
    (many_found,) = reader.replies([many], **two)
    assert [each["message"]["body"] for each in many_found["results"]] == ["two teapots"] * 2
    keyed = _block("find-a-lost-message", "curl 'localhost:8082/v1/topics/TOPIC/messages?key=KEY'")
    (matches,) = reader.replies(keyed, TOPIC="orders", KEY="order-1")
    assert matches["complete"]
    timed = _block("find-a-lost-message", "curl 'localhost:8082/v1/topics/TOPIC/messages?from=MS")
    for each in timed:
        (times,) = reader.replies(
            [each.replace("to=MS", f"to={time.time_ns()}"[:16])], TOPIC="orders", MS="0"
        )
        assert message_id in [message["offsetMsgId"] for message in times["messages"]]
    recovery = _block("find-a-lost-message", "curl localhost:8081/v1/store/recovery")
    assert reader.replies(recovery)[0]["plan"]["actions"] == []
    dump, verify = _block("find-a-lost-message", ".venv/bin/mqstore store dump")
    assert message_id in str(reader.replies([dump], KEY="order-1")[0])
    reader.replies([verify])


def test_monitor_the_services(reader: Reader) -> None:
    ready, metrics, events = _block("monitor-the-services", "curl localhost:8081/healthz/ready")
    is_ready, scraped = reader.replies([ready, metrics])
    assert is_ready["status"] == "ready"
    assert "mqstore_store_open 1.0" in scraped
    assert json.loads(reader.first_line(events))["kind"]


def test_check_a_clock_step(reader: Reader) -> None:
    (metrics,) = reader.replies(_block("check-a-clock-step", "chronyc"))
    assert "mqstore_clock_steps_total 0.0" in metrics


def test_monitor_lag(reader: Reader) -> None:
    of_all, of_one, by_http = reader.replies(_block("monitor-lag", ".venv/bin/mqstore group lag"))
    assert [each["group"] for each in of_all["groups"]] == ["billing"]
    assert of_one["topics"][0]["topic"] == by_http["topics"][0]["topic"] == "orders"


def test_consume_messages(reader: Reader) -> None:
    url = "curl -X POST localhost:8081/v1/groups/shipping"
    (received,) = reader.replies(_block("consume-messages", f"{url}:receive"))
    (message,) = received["messages"]
    assert message["body"] == "two teapots"
    acknowledge = _block("consume-messages", f"{url}:ack")
    (settled,) = reader.replies(acknowledge, RECEIPT=message["receipt"])
    assert settled["results"] == [{"receipt": message["receipt"], "status": "ok"}]


def test_handle_dead_letters(reader: Reader) -> None:
    with reader.run.client() as client:
        sent = [NewMessage(body=f"no teapot {n}") for n in range(3)]
        client.produce("orders", sent)
        bad = client.receive("shipping", "orders").messages
        client.give_back("shipping", bad, delay_level=-1, reason="no stock")
        ids = [each.offset_msg_id for each in client.dead_letters("shipping").messages]
        listing, resend, export, purge = _block("handle-dead-letters", ".venv/bin/mqstore dlq ls")
        (listed,) = reader.replies([f"{listing} --limit 1"])
        assert (listed["offsetMsgId"], listed["reason"]) == (ids[0], "no stock")

        beginning = "curl 'localhost:8082/v1/groups/shipping/dead-letters"
        filtered, trace = _block("handle-dead-letters", beginning)
        (found,) = reader.replies([filtered])
        assert [each["offsetMsgId"] for each in found["messages"]] == ids
        (traced,) = reader.replies([trace], **{"ORIGIN-ID": listed["originMessageId"]})
        assert [each["kind"] for each in traced["copies"]] == ["message", "dead-letter"]

        one, rest = _block("handle-dead-letters", ".venv/bin/mqstore dlq resend")
        (result,) = reader.replies([one], ID=ids[0])
        assert (result["status"], result["topic"]) == ("done", "%RETRY%shipping")
        assert ids[0] not in reader.replies([rest])[0]
        assert reader.replies([export])[0]["letters"] == len(ids) - 1
        assert reader.replies([purge])[0]["dryRun"] is True
        reader.replies([resend])
        again = client.receive("shipping", "orders").messages
        assert {each.body for each in again} == {each.body for each in sent}


def test_consume_messages_with_the_python_client(reader: Reader) -> None:
    page = (HOW_TO / "consume-messages.md").read_text(encoding="utf-8")
    (program,) = [found[2] for found in FENCE.finditer(page) if found[1] == "python"]
    with reader.run.client() as client:
        client.create_topic("orders", queues=4)
        client.produce("orders", [NewMessage(body="paid teapots", tags="paid")] * 2)
        urls = {"MQSTORE_WRITER_URL": reader.run.writer_url}
        process = subprocess.Popen(
            [sys.executable, "-c", program.replace("shipping", "python-shipping")],
            env=os.environ | urls,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["paid teapots\n"] * 2
            process.send_signal(signal.SIGINT)
        # The signal may have come before the second message was acknowledged.
        again = client.receive("python-shipping", {"orders": WantedMessages(tags="paid")}).messages
        assert len(again) <= 1


def test_consume_messages_in_order(reader: Reader) -> None:
    page = (HOW_TO / "consume-in-order.md").read_text(encoding="utf-8")
    (program,) = [found[2] for found in FENCE.finditer(page) if found[1] == "python"]
    with reader.run.client() as client:
        client.create_topic("orders", queues=4)
        client.produce("orders", [NewMessage(body=f"pot {n}", ordering_key="k") for n in range(3)])
        with subprocess.Popen(
            [sys.executable, "-c", program.replace("billing", "python-billing")],
            env=os.environ | {"MQSTORE_WRITER_URL": reader.run.writer_url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            found: list[str] = []
            while len(found) < 3:
                found += [line for line in [process.stdout.readline()] if line.startswith("pot ")]
            process.send_signal(signal.SIGINT)
    assert found == ["pot 0\n", "pot 1\n", "pot 2\n"]

    url = "localhost:8081/v1/groups/billing"
    (joined,) = reader.replies(_block("consume-in-order", f"curl -X PUT {url}/members"))
    held = {each["queueId"] for each in joined["queues"] if each["topic"] == "orders"}
    assert held == set(range(4))
    (received,) = reader.replies(_block("consume-in-order", f"curl -X POST {url}:receive"))
    assert received["messages"]
    listing, leave = _block("consume-in-order", f"curl {url}/members")
    assert reader.replies([listing])[0]["members"][0]["queues"] == joined["queues"]
    reader.replies([leave])
    assert reader.replies([listing])[0]["members"] == []


def test_produce_messages(reader: Reader) -> None:
    with reader.run.client() as client:
        client.create_topic("orders", queues=4)
        first, second = [
            reader.replies(_block("produce-messages", "curl -X POST"))[0]["messages"][0]
            for _ in range(2)
        ]
        assert first["queueId"] == second["queueId"]
        found = client.message(second["offsetMsgId"])
    assert (found.tags, found.keys, found.ordering_key) == ("paid", ("order-1",), "customer-7")


def test_deliver_a_message_later(reader: Reader) -> None:
    with reader.run.client() as client:
        client.create_topic("orders", queues=4)
        placed, delays = reader.replies(_block("produce-messages", "curl -H"))
        assert placed["messages"][0]["queueId"] == 0
        assert delays["timed"]["pending"] == 1


def test_produce_messages_with_the_python_client(reader: Reader) -> None:
    with reader.run.client() as client:
        client.create_topic("orders", queues=4)
        (before,) = client.produce("orders", NewMessage(ordering_key="customer-7")).messages
        output = reader.output_of_program("produce-messages")
        assert int(output) == before.queue_offset + 1_000


def test_trace_with_opentelemetry(reader: Reader) -> None:
    with reader.run.client() as client:  # messages of other pages are not for its group
        client.create_topic("orders", queues=4)
        client.reset_offsets("packing", "orders", "latest")
    output = reader.output_of_program("trace-with-opentelemetry")
    assert "two teapots\n" in output
    for span in ("send orders", "receive orders", "process orders", "ack"):
        assert f'"name": "{span}"' in output


def test_use_the_python_client(reader: Reader) -> None:
    """Its programs in their order; each group begins at the first message."""
    with reader.run.client() as client:
        client.create_topic("refunds", queues=1)
        client.produce("refunds", NewMessage(body="refund 1"))
    mail, pack, refund, letters, replay, produce, audit = range(7)

    def printed(number: int) -> list[str]:
        return reader.output_of_program("use-the-python-client", number).splitlines()

    assert len(printed(mail)) == 1
    packed = printed(pack)
    assert ("two teapots" in "".join(packed[::2]), {*packed[1::2]}) == (True, {"{'ok'}"})
    assert printed(refund) == ["2 bank is closed"]
    assert printed(produce) == ["stored in queue 0"]
    with reader.run.client() as client:
        found = client.receive("refunding", "refunds").messages
        client.give_back("refunding", found, delay_level=-1, reason="bank is closed")
    assert printed(letters) == ["refunds bank is closed", "1"]
    assert int(printed(replay)[0]) > 0
    *queues, lag = printed(audit)
    assert ("two teapots" in "".join(queues), int(lag) >= 0) == (True, True)


def test_replay_from_a_time(reader: Reader) -> None:
    (planned,) = reader.replies(_block("replay-from-a-time", "curl -X POST"))
    assert planned["dryRun"] is True
    beginning = "curl 'localhost:8082/v1/topics/orders/queues/0/offset"
    offset, pull, follow = _block("replay-from-a-time", beginning)
    (place,) = reader.replies([offset])
    (pulled,) = reader.replies([pull], N=str(place["offset"]))
    assert pulled["messages"][0]["body"] == "two teapots"
    assert "two teapots" in reader.first_line(follow)
    beginning = "curl -X POST localhost:8082/v1/offsets:by-time"
    (offsets,) = reader.replies(_block("replay-from-a-time", beginning))
    assert offsets["results"][0]["offset"] == place["offset"]


def test_pause_writes(reader: Reader) -> None:
    paused, flushed = reader.replies(_block("pause-writes", "curl -X PUT"))
    assert paused["paused"] is True
    assert flushed["durableOffset"] > 0
    resume = blocks_of("pause-writes")[1]
    assert reader.replies(resume)[0]["paused"] is False


def test_send_transactions(reader: Reader) -> None:
    begin, commit = _block("send-transactions", "curl localhost:8083/v1/transactions")
    (begun,) = reader.replies([begin])
    (committed,) = reader.replies([commit.replace("/ID:", f"/{begun['transactionId']}:")])
    assert committed["state"] == "committed"


def test_send_transactions_with_the_python_client(reader: Reader) -> None:
    assert reader.output_of_program("send-transactions") == "committed\n"


def test_archive_messages(reader: Reader) -> None:
    reader.replies(_block("archive-messages", "curl -X DELETE"))


def test_back_up_without_kubernetes(reader: Reader) -> None:
    page = "back-up-and-restore"
    names: dict[str, Any] = {a: str(reader.home / a.lower()) for a in ("BACKUPS", "RESTORED")}
    created, listed, flaws = reader.replies(
        _block(page, ".venv/bin/mqstore backup create"), **names
    )
    assert (created["id"], flaws) == (listed["id"], "")
    beginning = ".venv/bin/mqstore restore BACKUPS RESTORED --dry-run"
    dry, restored, verified = reader.replies(_block(page, beginning), **names)
    assert (dry["backup"], dry["replaces"]) == (created["id"], False)
    assert restored["end"] == created["end"] > 0
    assert verified["findings"] == 0
    plan, pruned = reader.replies(_block(page, ".venv/bin/mqstore backup prune"), **names)
    assert plan["kept"] == pruned["kept"] == [created["id"]]


def _closed_store(home: Path) -> Path:
    with writer(home / "store") as process:
        process.process.terminate()
        process.ended()
    return home / "store"


def test_repair_verify_and_move_a_store_at_rest(reader: Reader, tmp_path: Path) -> None:
    at_rest = Reader(reader.run, _closed_store(tmp_path), tmp_path)
    plan, repair = at_rest.replies(_block("repair-a-store", ".venv/bin/mqstore store repair"))
    assert (plan["t"], repair["t"], repair["left"]) == ("planned", "repaired", {})
    rebuilds = [
        *at_rest.replies(_block("repair-a-store", ".venv/bin/mqstore store rebuild")),
        *at_rest.replies(_block("rebuild-the-index", ".venv/bin/mqstore store rebuild")),
    ]
    results = [json.loads(each.splitlines()[-1]) for each in rebuilds]
    assert [each["t"] for each in results] == ["planned", "rebuilt", "rebuilt"]
    shown, verified = at_rest.replies(
        _block("open-a-refused-store", ".venv/bin/mqstore store info")
    )
    assert (shown["left"], shown["problems"], verified["brokerStarts"]) == ("closed", [], True)
    (verified,) = at_rest.replies(_block("move-from-a-broker", ".venv/bin/mqstore store verify"))
    assert verified["brokerStarts"] is True
    copy, verify = _block("move-from-a-broker", "cp -a")
    paths = {"/path/to/broker/store": str(at_rest.store), "/path/to/copy": str(tmp_path / "copy")}
    for command in (copy, verify):
        for name, path in paths.items():
            command = command.replace(name, path)
        at_rest.replies([command])


def test_export_messages_import_them_and_produce_them_again(reader: Reader, tmp_path: Path) -> None:
    with writer(tmp_path / "store") as process:
        with Client(process.url, process.url) as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", NewMessage(body="two teapots"))
        process.process.terminate()
        process.ended()
    at_rest = Reader(reader.run, tmp_path / "store", tmp_path)
    export, check, store = _block("export-and-import", ".venv/bin/mqstore store export")
    at_rest.replies([export])
    copy = str(tmp_path / "copy")
    assert at_rest.replies([check, store], COPY=copy) == [
        "would store 1 messages of 1 topics\n",
        "1 messages stored\n",
    ]
    (placed,) = at_rest.replies(_block("export-and-import", ".venv/bin/mqstore produce"))
    assert placed["offsetMsgId"]


def test_follow_a_broker_and_take_over(reader: Reader, tmp_path: Path) -> None:
    broker = _closed_store(tmp_path)
    (copy,) = _block("follow-a-broker", "cp -a")
    copy = copy.replace("/path/to/broker/store", str(broker)).replace("data/copy", "copy")
    Reader(reader.run, tmp_path / "copy", tmp_path).replies([copy])
    log = b"".join(each.read_bytes() for each in sorted((broker / "commitlog").iterdir()))
    leader = ScriptedLeader(lambda: log.rstrip(b"\0"))
    copied, address = tmp_path / "copy", leader.address
    with running(copied, broker_role="SLAVE", ha_master_address=address) as run:
        promote = _block("follow-a-broker", ".venv/bin/mqstore promote")
        (promoted,) = Reader(run, copied, tmp_path).replies(promote)
        assert promoted["role"] == "leader"
    leader.close()


def test_rotate_tokens(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    at_rest = Reader(reader.run, tmp_path, tmp_path)
    (write,) = _block("rotate-tokens", "printf")
    at_rest.replies([f"OLD=0123456789abcdef NEW=fedcba9876543210; {write}"])
    given = settings.load(tokens_dir=tmp_path / "tokens")
    assert given.tokens()["produce"] == ("0123456789abcdef", "fedcba9876543210")
