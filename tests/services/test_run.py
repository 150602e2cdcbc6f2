"""``mqstore run``: starting, refusing, and ending in every way."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, ClientError, NewMessage, Pull, Unreachable
from mqstore.storage.paths import StorePaths
from tests.forked_processes import run_mqstore
from tests.long_runs import few_first
from tests.services.service_processes import (
    END_TIMEOUT_S,
    Run,
    children_of,
    environment,
    query,
    run_arguments,
    running,
    start,
    without_progress,
    writer,
)


def _abort(store: Path) -> Path:
    return store / "abort"


def _refusal(store: Path | None, *arguments: str, plain_user: bool = False, **settings: Any) -> str:
    """Return the only line that a refused start prints."""
    if plain_user:
        process = start(store, *arguments, plain_user=True, **settings)
        output, errors = process.communicate(timeout=60)
        code = process.wait()
    else:
        words = run_arguments(store, *arguments)
        done = run_mqstore(*words, environment=environment(**settings))
        output, errors, code = done.stdout, done.stderr, done.returncode
    assert code == 2, errors
    assert output == ""
    line = without_progress(errors)
    assert len(line.splitlines()) == 1, errors
    return line


class _OpenPolls:
    """Long polls in threads, all sent and none answered."""

    def __init__(self, run: Run, topic: str, count: int) -> None:
        self.answers: list[Pull | ClientError] = []
        self._threads = [
            threading.Thread(target=self._poll, args=(run, topic)) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()
        self._await_open(run, count)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)
            assert not thread.is_alive()

    def _poll(self, run: Run, topic: str) -> None:
        with run.client() as client:
            try:
                self.answers.append(client.pull(topic, 0, wait_s=30))
            except ClientError as error:
                self.answers.append(error)

    @staticmethod
    def _await_open(run: Run, count: int) -> None:
        _await_metric(run.query_url, f"mqstore_open_polls {count}.0")


def _await_metric(url: str, line: str) -> None:
    with httpx.Client(base_url=url) as http:
        for _ in range(10_000):
            if line in http.get("/metrics").text:
                return
    raise AssertionError(f"the metrics do not say {line}")


def _half_a_produce(run: Run) -> socket.socket:
    """A connection on which the service waits for the rest of a body."""
    host, _, port = run.writer_url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
    connection.sendall(head + b"Content-Type: application/json\r\n\r\n{")
    _await_metric(run.writer_url, "mqstore_http_in_flight 2.0")  # this one, and the question
    return connection


def test_banner_has_store_addresses_and_offsets(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        assert str(store) in run.banner
        assert f"{run.writer_url}/docs" in run.banner
        assert f"{run.query_url}/docs" in run.banner
        assert "offsets 0 to 0" in run.banner
        assert _abort(store).exists()


@pytest.mark.parametrize("number", few_first([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_signal_closes_the_store_cleanly_with_long_polls_and_half_a_request_open(
    tmp_path: Path, number: signal.Signals
) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        with run.client() as client:
            client.create_topic("t", queues=1)
        polls = _OpenPolls(run, "t", 5)
        with _half_a_produce(run) as half:
            code, errors = run.stop(number)
            assert half.recv(100).startswith(b"HTTP/1.1 503 ")
        polls.join()
    assert (code, errors) == (0, "")
    assert not _abort(store).exists()
    assert all(isinstance(answer, Pull) and not answer.messages for answer in polls.answers)


def test_repeated_ctrl_c_still_closes_cleanly(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        with run.client() as client:
            client.create_topic("t", queues=1)
        polls = _OpenPolls(run, "t", 3)
        for _ in range(5):
            os.killpg(run.process.pid, signal.SIGINT)
        code, errors = run.ended()
        polls.join()
    assert (code, errors) == (0, "")
    assert not _abort(store).exists()


def test_ctrl_c_at_make_closes_the_store_cleanly(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store, under_make=True) as run:
        os.killpg(run.process.pid, signal.SIGINT)
        code, _ = run.stop(signal.SIGINT)
    assert code == -signal.SIGINT
    assert not _abort(store).exists()


@pytest.mark.parametrize("number", few_first([signal.SIGINT, signal.SIGTERM]))
def test_signal_while_the_services_start_ends_all_quietly(
    tmp_path: Path, number: signal.Signals
) -> None:
    store = tmp_path / "store"
    process = start(store)
    while len(children_of(process.pid)) < 2:
        assert process.poll() is None
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=END_TIMEOUT_S)
    assert (process.returncode, output, errors) == (0, "", "")
    assert not _abort(store).exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_everything_killed_starts_again_with_what_was_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        with run.client() as client:
            client.create_topic("t", queues=1)
            client.produce("t", [NewMessage(body="kept")], durability="async")
        run.stop(signal.SIGKILL)
    assert _abort(store).exists()
    with running(store) as run, run.client() as client:
        assert [each.body for each in client.pull("t", 0).messages] == ["kept"]
        assert client.recovery().plan["path"] == "abnormal"


def test_children_end_cleanly_when_their_parent_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        pids = [os.pidfd_open(pid) for pid in run.children()]
        run.process.kill()
        run.process.wait()
        for pid in pids:
            assert _await_end(pid)
    assert not _abort(store).exists()


@pytest.mark.slow
def test_everything_ends_cleanly_when_make_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store, under_make=True) as run:
        make = run.process.pid
        (supervisor,) = children_of(make)
        pids = [os.pidfd_open(pid) for pid in (supervisor, *children_of(supervisor))]
        assert len(pids) == 4
        os.kill(make, signal.SIGKILL)
        for pid in pids:
            assert _await_end(pid)
    assert not _abort(store).exists()


def test_a_start_whose_parent_is_gone_is_one_line(tmp_path: Path) -> None:
    assert "parent process 1 has ended" in _refusal(tmp_path / "store", "--parent-pid", "1")


def _await_end(pidfd: int) -> bool:
    ready, _, _ = select.select([pidfd], [], [], END_TIMEOUT_S)
    os.close(pidfd)
    return bool(ready)


@pytest.mark.parametrize("name", few_first(["writer", "query"]))
def test_a_childs_death_ends_all_with_its_reason(tmp_path: Path, name: str) -> None:
    with running(tmp_path / "store") as run:
        os.kill(run.child(name), signal.SIGKILL)
        code, errors = run.ended()
        assert code == 1
        assert f"the {name} process ended: killed by SIGKILL" in errors
        with pytest.raises(Unreachable), run.client() as client:
            client.store()


def test_clean_close_is_what_the_next_start_finds(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store) as run:
        with run.client() as client:
            client.create_topic("t", queues=1)
            client.produce("t", [NewMessage(body="kept")])
        assert run.stop() == (0, "")
    with running(store) as run, run.client() as client:
        assert [each.body for each in client.pull("t", 0).messages] == ["kept"]
        assert client.recovery().plan["startReason"] == "clean close of ours, unchanged since"


@pytest.mark.slow
def test_an_end_saves_how_far_transactions_are(tmp_path: Path) -> None:
    """A broker that opens the store next checks no decided transaction."""
    store = tmp_path / "store"
    with running(store, coordinator=True) as run:
        with run.client() as client:
            client.create_topic("t", queues=1)
            begun = client.begin("billing", "t", [NewMessage(body="a"), NewMessage(body="b")])
            client.commit_transaction(begun.transaction_id)
        assert run.stop() == (0, "")
    saved = (store / "config" / "consumerOffset.json").read_text()
    assert re.findall(r"(RMQ_SYS_\w+@\w+)\W+0\W+(\d+)", saved) == [
        ("RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS", "2"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS", "2"),
    ]


def test_what_went_through_a_pool_is_answered_and_found(tmp_path: Path) -> None:
    pool: dict[str, Any] = {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 2,
    }
    bodies = [f"{number} ".ljust(30_000, ".") for number in range(60)]
    store = tmp_path / "store"
    with writer(store, mapped_file_size_commit_log=256 << 10, **pool) as one, query(store) as find:
        with Client(one.url, find.url) as client:
            client.create_topic("T", queues=1)
            for body in bodies:
                (placed,) = client.produce(
                    "T", [NewMessage(body=body)], durability="async"
                ).messages
                pulled = client.pull("T", 0, offset=placed.queue_offset, wait_s=30)
                assert [message.body for message in pulled.messages] == [body]
        one.process.terminate()
        assert one.ended()[0] == 0


def test_existing_store_keeps_its_sizes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store, mapped_file_size_commit_log=1 << 20) as found, Client(found.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage()])
    with running(store) as run, run.client() as client:
        assert client.store().segment_size == 1 << 20


def test_old_messages_are_kept_unless_a_setting_says_otherwise(tmp_path: Path) -> None:
    """A run over a broker's store may serve only to read it."""
    store = tmp_path / "store"
    with writer(store, mapped_file_size_commit_log=1 << 20) as found, Client(found.url) as client:
        client.create_topic("t", queues=1)
        while client.store().segments < 3:
            client.produce("t", [NewMessage(body="x" * 100_000)], durability="async")
    for segment in (store / "commitlog").iterdir():
        os.utime(segment, (0, 0))
    with running(store) as run, run.client() as client:
        assert client.run_retention().bytes_to_go == 0
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\ncleanFileForciblyEnable=true\ndeleteWhen=04\n")
    with running(store, config_file=conf) as run, run.client() as client:
        assert client.run_retention().bytes_to_go == 0
    with running(store, config_file=conf, retention=True) as run, run.client() as client:
        assert client.retention().rule["fileReservedTime"] == 48
        assert client.retention().deletes
    with running(store, file_reserved_time=72) as run, run.client() as client:
        assert client.run_retention().bytes_to_go == 2 << 20


def _broker_conf(store: Path) -> dict[str, str]:
    text = StorePaths(store).broker_conf.read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def test_a_run_sets_nothing_but_the_segment_size_of_a_new_store(tmp_path: Path) -> None:
    """A broker that starts with broker.conf has RocketMQ's own settings, or the operator's."""
    store = tmp_path / "store"
    due = {
        "fileReservedTime": "72",
        "cleanFileForciblyEnable": "true",
        "flushDiskType": "ASYNC_FLUSH",
        "mappedFileSizeCommitLog": str(64 << 20),
    }
    with running(store) as run, run.client() as client:
        assert _broker_conf(store).items() >= due.items()
        assert client.retention().rule["fileReservedTime"] > 700_000
    with running(store, fileReservedTime=48, flushDiskType="SYNC_FLUSH") as run:
        due |= {"fileReservedTime": "48", "flushDiskType": "SYNC_FLUSH"}
        assert _broker_conf(store).items() >= due.items()
        with run.client() as client:
            assert client.retention().rule["fileReservedTime"] == 48


def test_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = _refusal(tmp_path / "store", "--query-port", str(port))
    assert f"port {port}" in line
    assert "in use" in line


def test_locked_store_is_one_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store):
        assert "lock" in _refusal(store)


def test_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in _refusal(tmp_path / "file" / "store")


@pytest.mark.parametrize("inside", few_first([False, True]))
@pytest.mark.slow
def test_directory_that_cannot_be_written_is_one_line(tmp_path: Path, inside: bool) -> None:
    (tmp_path / "store").mkdir(mode=0o500)
    store = tmp_path / "store" / "deeper" if inside else tmp_path / "store"
    line = _refusal(store, plain_user=True)
    assert str(store) in line
    assert "permission denied" in line.lower()


@pytest.mark.slow
def test_directory_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0)
    assert "permission denied" in _refusal(tmp_path / "store", plain_user=True).lower()


def test_empty_store_path_is_one_line(tmp_path: Path) -> None:
    assert "setting store" in _refusal(None, store_path_root_dir="")


@pytest.mark.slow
def test_store_path_may_hold_spaces_and_quotes(tmp_path: Path) -> None:
    store = tmp_path / 'it\'s a $HOME "store"'
    with running(store, under_make=True) as run:
        assert str(store) in run.banner
    assert (store / "commitlog").exists()


def test_wrong_setting_is_one_line(tmp_path: Path) -> None:
    assert "maxIndexNum" in _refusal(tmp_path / "store", max_index_num="many")


def test_network_address_without_tokens_is_one_line(tmp_path: Path) -> None:
    assert "needs tokens" in _refusal(tmp_path / "store", "--host", "0.0.0.0")


def test_all_web_pages_without_tokens_are_refused_in_one_line(tmp_path: Path) -> None:
    assert "set tokens" in _refusal(tmp_path / "store", cors_allowed_origins="*")


def test_with_tokens_each_role_does_its_part(tmp_path: Path) -> None:
    tokens = {role: f"{role}-token-long-enough" for role in ("admin", "produce", "consume")}
    settings: dict[str, Any] = {f"token_{role}": token for role, token in tokens.items()}
    settings["coordinator"] = True
    with running(tmp_path / "store", "--host", "0.0.0.0", **settings) as run:
        clients = {role: run.client(token=token) for role, token in tokens.items()}
        clients["admin"].create_topic("t", queues=1)
        (placed,) = clients["produce"].produce("t", [NewMessage(body="x")]).messages
        assert clients["consume"].message(placed.offset_msg_id).body == "x"
        begun = clients["produce"].begin("billing", "t", [NewMessage(body="y")])
        assert clients["consume"].transaction(begun.transaction_id).state == "pending"
        for role, call in (
            ("consume", "create_topic"),
            ("produce", "queues"),
            ("produce", "store"),
        ):
            arguments = () if call == "store" else ("t",)
            with pytest.raises(ClientError, match="403"):
                getattr(clients[role], call)(*arguments)
        with run.client() as anonymous, pytest.raises(ClientError, match="401"):
            anonymous.store()
        for client in clients.values():
            client.close()
