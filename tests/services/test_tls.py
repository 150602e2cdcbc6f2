"""TLS by settings: real certificates, mutual TLS, and rotation while a service runs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from mqstore.client import Client, NewMessage, ProblemError, Target, Unreachable, make_tls_context
from tests.forked_processes import run_mqstore
from tests.long_runs import few_first
from tests.services.service_processes import (
    END_TIMEOUT_S,
    Process,
    Run,
    environment,
    running,
    start,
    writer,
)

TOKEN, OTHER = "token-number-one-of-admin", "token-number-two-of-admin"


@dataclass
class Files:
    """A directory as Kubernetes mounts a Secret of cert-manager."""

    path: Path

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert": self.path / "tls.crt", "tls_key": self.path / "tls.key"}

    @property
    def ca(self) -> Path:
        return self.path / "ca.crt"

    def issue(self, authority: trustme.CA) -> None:
        """Each file is replaced, not written over."""
        issued = authority.issue_cert("localhost", "127.0.0.1")
        for name, blob in (
            ("tls.crt", issued.cert_chain_pems[0]),
            ("tls.key", issued.private_key_pem),
            ("ca.crt", authority.cert_pem),
        ):
            new = self.path / f"{name}.new"
            new.write_bytes(blob.bytes())
            new.rename(self.path / name)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    found = Files(tmp_path / "tls")
    found.path.mkdir()
    found.issue(authority)
    return found


def _client(process: Process, tls: ssl.SSLContext, token: str | None = None) -> Client:
    return Client(process.url, process.url, tls=tls, token=token)


def _await(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_service_is_reached_by_tls_only(tmp_path: Path, files: Files) -> None:
    with writer(tmp_path / "store", ca=files.ca, **files.settings) as process:
        with _client(process, make_tls_context(files.ca)) as client:
            client.create_topic("t")
            assert [topic.topic for topic in client.topics().topics] == ["t"]
        with httpx.Client() as plain, pytest.raises(httpx.HTTPError):
            plain.get(process.url.replace("https", "http"))
        other = Files(tmp_path / "other")
        other.path.mkdir()
        other.issue(trustme.CA())
        with _client(process, make_tls_context(other.ca)) as client, pytest.raises(Unreachable):
            client.topics()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_before_1_2_is_refused(tmp_path: Path, files: Files) -> None:
    with writer(tmp_path / "store", ca=files.ca, **files.settings) as process:
        context = make_tls_context(files.ca)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        address = httpx.URL(process.url)
        assert address.port is not None
        with (
            socket.create_connection((address.host, address.port)) as connection,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(connection, server_hostname="localhost")


def test_rotated_certificate_is_used_without_a_restart(tmp_path: Path, files: Files) -> None:
    with writer(tmp_path / "store", ca=files.ca, **files.settings) as process:
        old = make_tls_context(files.ca)
        with _client(process, old) as before:
            assert before.health(Target.WRITER).status == "ready"
            (files.path / "tls.key").write_text("half of a rotation")
            with _client(process, old) as meanwhile:
                assert meanwhile.health(Target.WRITER).status == "ready"
            files.issue(trustme.CA())
            with _client(process, make_tls_context(files.ca)) as after:
                assert after.health(Target.WRITER).status == "ready"
            with _client(process, old) as late, pytest.raises(Unreachable):
                late.health(Target.WRITER)
            assert before.health(Target.WRITER).status == "ready"


def test_mutual_tls_answers_none_but_probes_without_a_certificate(
    tmp_path: Path, files: Files, authority: trustme.CA
) -> None:
    settings = {**files.settings, "tls_client_ca": files.ca}
    with writer(tmp_path / "store", ca=files.ca, **settings) as process:
        with _client(process, make_tls_context(files.ca)) as stranger:
            assert stranger.health(Target.WRITER).status == "ready"
            with pytest.raises(ProblemError) as caught:
                stranger.topics()
            assert caught.value.status == 401
        authority.issue_cert("job").private_key_and_cert_chain_pem.write_to_path(
            tmp_path / "client.pem"
        )
        with _client(process, make_tls_context(files.ca, tmp_path / "client.pem")) as known:
            assert known.topics().topics == ()
        trustme.CA().issue_cert("job").private_key_and_cert_chain_pem.write_to_path(
            tmp_path / "forged.pem"
        )
        with (
            _client(process, make_tls_context(files.ca, tmp_path / "forged.pem")) as forged,
            pytest.raises(Unreachable),
        ):
            forged.topics()


def test_tokens_are_rotated_without_a_restart(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    (tokens / "admin").write_text(TOKEN)

    def accepts(process: Process, token: str) -> bool:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.get(f"{process.url}/v1/store", headers=headers).status_code == 200

    with writer(tmp_path / "store", tokens_dir=tokens) as process:
        assert accepts(process, TOKEN)
        assert not accepts(process, OTHER)
        (tokens / "admin").write_text(f"{TOKEN}\n{OTHER}\n")
        _await(lambda: accepts(process, OTHER))
        assert accepts(process, TOKEN)
        (tokens / "admin").write_text(OTHER)
        _await(lambda: not accepts(process, TOKEN))
        assert accepts(process, OTHER)


@pytest.mark.slow
def test_a_coordinator_goes_on_with_a_rotated_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    for role in ("admin", "system"):
        (tokens / role).write_text(f"{role}-token-number-one")
    with running(tmp_path / "store", coordinator=True, tokens_dir=tokens) as run:
        with run.client(token="system-token-number-one") as old:
            old.create_topic("t")
            (tokens / "system").write_text("system-token-number-two")
            _await(lambda: not _is_answered(old))
        with run.client(token="admin-token-number-one") as client:

            def reaches_the_shard() -> bool:
                """By a request of its own, under the system token."""
                try:
                    client.producers()
                except ProblemError as refused:
                    assert refused.type == "coordinator-not-ready"
                    return False
                return True

            _await(reaches_the_shard)
            begun = client.begin("billing", "t", [NewMessage(body="x")])
            assert client.commit_transaction(begun.transaction_id).state == "committed"


def _is_answered(client: Client) -> bool:
    try:
        client.store()
    except ProblemError as refused:
        assert refused.status == 401
        return False
    return True


def test_commands_take_a_token_and_an_authority(tmp_path: Path, files: Files) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    (tokens / "consume").write_text(f"{TOKEN}\n{OTHER}\n")

    def events(*arguments: str, **settings: Path | str) -> tuple[int, str]:
        command = ("events", "--writer-url", process.url, *arguments)
        ended = run_mqstore(*command, environment=environment(**settings))
        return ended.returncode, ended.stderr

    with writer(tmp_path / "store", ca=files.ca, tokens_dir=tokens, **files.settings) as process:
        ca = ("--ca", str(files.ca))
        assert events(*ca, "--token-file", str(tokens / "consume")) == (0, "")
        assert events(token_file=tokens / "consume", ca=files.ca) == (0, "")
        assert events(*ca, token=OTHER) == (0, "")
        assert events(*ca)[0] == 2
        assert events("--token", TOKEN)[0] == 3


def _silent(process: Process) -> socket.socket:
    """A connection that never begins its handshake."""
    url = httpx.URL(process.url)
    assert url.port is not None
    return socket.create_connection((url.host, url.port), timeout=END_TIMEOUT_S)


def _is_over_share(process: Process, files: Files) -> bool:
    with _client(process, make_tls_context(files.ca)) as client:
        try:
            client.topics()
        except ProblemError as error:
            return error.type == "client-over-share"
    return False


@pytest.mark.slow
def test_handshakes_that_never_end_take_places_for_a_bounded_time(
    tmp_path: Path, files: Files
) -> None:
    settings = {"max_connections": 8, "max_client_share": 50, "receive_timeout_s": 5}
    with (
        writer(tmp_path / "store", ca=files.ca, **files.settings, **settings) as process,
        contextlib.ExitStack() as stack,
        _client(process, make_tls_context(files.ca)) as client,
    ):
        silent = [stack.enter_context(_silent(process)) for _ in range(4)]
        while not _is_over_share(process, files):  # who looked before may still have a place
            silent.append(stack.enter_context(_silent(process)))
            assert len(silent) < 20
        assert client.health(Target.WRITER).status == "ready"
        assert [connection.recv(1) for connection in silent] == [b""] * len(silent)
        assert client.topics().topics == ()


def test_handshake_that_never_ends_does_not_delay_the_end_of_the_service(
    tmp_path: Path, files: Files
) -> None:
    with (
        writer(tmp_path / "store", ca=files.ca, **files.settings) as process,
        _silent(process) as silent,
    ):
        process.process.terminate()
        assert process.ended()[0] == 0
        assert silent.recv(1) == b""


def test_mqstore_run_serves_tls(tmp_path: Path, files: Files) -> None:
    with running(tmp_path / "store", coordinator=True, **files.settings) as run:
        assert run.writer_url.startswith("https://")
        with _client_of(run, files) as client:
            client.create_topic("t", queues=1)
            begun = client.begin("billing", "t", [NewMessage(body="x")])
            assert client.commit_transaction(begun.transaction_id).state == "committed"
            assert [each.body for each in client.pull("t", 0).messages] == ["x"]
        assert run.stop() == (0, "")


def _client_of(run: Run, files: Files, certificate: Path | None = None) -> Client:
    tls = make_tls_context(files.ca, certificate)
    urls = run.writer_url, run.query_url
    return Client(*urls, coordinator_url=run.coordinator_url, tls=tls)


@pytest.mark.slow
def test_a_coordinator_goes_by_the_authority_that_it_is_given(
    tmp_path: Path, files: Files, authority: trustme.CA
) -> None:
    """The client also presents its own certificate where one is required."""
    given = {**files.settings, "tls_client_ca": files.ca, "upstream_ca": files.ca}
    blob = authority.issue_cert("job").private_key_and_cert_chain_pem
    blob.write_to_path(tmp_path / "client.pem")
    with running(tmp_path / "store", coordinator=True, **given) as run:
        with _client_of(run, files, tmp_path / "client.pem") as client:
            client.create_topic("t")
            begun = client.begin("billing", "t", [NewMessage(body="x")])
            assert client.rollback_transaction(begun.transaction_id).state == "rolled-back"
        assert run.stop() == (0, "")


@pytest.mark.slow
def test_a_coordinator_calls_no_address_that_another_authority_signed(
    tmp_path: Path, files: Files
) -> None:
    other = Files(tmp_path / "other")
    other.path.mkdir()
    other.issue(trustme.CA())
    given = {**files.settings, "upstream_ca": other.ca}
    with running(tmp_path / "store", coordinator=True, **given) as run:
        assert run.process.stdout is not None
        assert "NO TRANSACTIONS" in (line := run.process.stdout.readline())
        assert "certificate verify failed" in line
        with _client_of(run, files) as client, pytest.raises(ProblemError) as refused:
            client.begin("billing", "t", [NewMessage(body="x")])
        assert refused.value.type == "coordinator-not-ready"


@pytest.mark.parametrize("left_out", few_first(["tls_cert", "tls_key"]))
def test_half_of_the_settings_is_refused(tmp_path: Path, files: Files, left_out: str) -> None:
    settings = {name: path for name, path in files.settings.items() if name != left_out}
    process = start(tmp_path / "store", **settings)
    _, errors = process.communicate(timeout=END_TIMEOUT_S)
    assert process.returncode == 2
    assert "tlsCert and tlsKey, both" in errors
