"""store-writer keeps and counts the results of backups, and publishes them as events."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.client import NewMessage, ProblemError
from mqstore.storage.backup import Creation
from mqstore.wire.backup_reports import BackupResult
from mqstore.wire.examples.reports import BACKUP
from tests.services.service_processes import ServicePair, environment, service_pair

pytestmark = pytest.mark.slow
TOKENS: dict[str, Any] = {"token_admin": "a" * 32, "token_system": "s" * 32}


def _back_up(pair: ServicePair, action: str, place: Path, *words: str, token: str = "s") -> Result:
    report = ["--report", "--writer-url", pair.writer_url, "--token", token * 32]
    return CliRunner().invoke(app, ["backup", action, str(place), *words, *report])


def _events(pair: ServicePair) -> str:
    return httpx.get(
        f"{pair.writer_url}/v1/events?seconds=0", headers={"authorization": f"Bearer {'a' * 32}"}
    ).text


def _value(metrics: str, name: str) -> float:
    [found] = [line for line in metrics.splitlines() if line.startswith(f"{name} ")]
    return float(found.split()[1])


def test_a_backup_and_its_verification_are_reported_and_outlive_the_process(
    tmp_path: Path,
) -> None:
    root, place = tmp_path / "store", tmp_path / "backups"
    with service_pair(root, **TOKENS) as run, run.client(token="a" * 32) as client:
        before = client.backup_report()
        assert (before.created, before.whole, before.verified) == (None, None, None)
        client.create_topic("orders")
        client.produce("orders", [NewMessage(body=f"order {i}") for i in range(9)])
        assert _back_up(run, "create", place, "--store", str(root)).exit_code == 0
        assert _back_up(run, "verify", place).exit_code == 0
        found = client.backup_report()
        assert found.created is not None
        assert found.created == found.whole
        assert found.created.end_offset == client.store().max_offset
        assert found.created.place == str(place)
        assert found.verified is not None
        assert (found.verified.is_whole, found.verified.backup) == (True, found.created.backup)
        assert '"kind":"backup"' in _events(run)
        run.stop()
    with service_pair(root, **TOKENS) as run, run.client(token="a" * 32) as client:
        assert client.backup_report() == found
        headers = {"authorization": f"Bearer {'a' * 32}"}
        counted = httpx.get(f"{run.writer_url}/metrics", headers=headers).text
    names = ("whole_seconds", "failed", "end_offset", "copied_bytes")
    assert [_value(counted, f"mqstore_backup_{name}") for name in names] == [
        found.created.began_ms / 1000,
        0.0,
        found.created.end_offset,
        found.created.copied_bytes,
    ]


def test_a_failed_backup_keeps_the_last_whole_one(tmp_path: Path) -> None:
    root, place = tmp_path / "store", tmp_path / "backups"
    with service_pair(root, **TOKENS) as run, run.client(token="a" * 32) as client:
        client.create_topic("orders")
        _back_up(run, "create", place, "--store", str(root))
        whole = client.backup_report().whole
        place.joinpath("file").write_bytes(b"")
        refused = _back_up(run, "create", place / "file", "--store", str(root))
        assert refused.exit_code == 2
        found = client.backup_report()
        assert found.whole == whole
        assert found.created is not None
        assert not found.created.is_whole
        assert "is no directory" in found.created.error
        for path in place.rglob("*"):
            if path.is_file() and "tables" in str(path):
                path.write_bytes(b"damaged")
        assert _back_up(run, "verify", place).exit_code == 1
        verified = client.backup_report().verified
        assert verified is not None
        assert "1 objects" in verified.error
        headers = {"authorization": f"Bearer {'a' * 32}"}
        counted = httpx.get(f"{run.writer_url}/metrics", headers=headers).text
    assert "mqstore_backup_failed 1.0" in counted
    assert "mqstore_backup_verification_failed 1.0" in counted


@pytest.mark.parametrize(
    ("raised", "why"),
    [(KeyboardInterrupt(), "the command was interrupted"), (OSError("no room"), "no room")],
    ids=["interrupted", "failed"],
)
def test_a_backup_that_does_not_end_is_not_reported_as_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, why: str
) -> None:
    def run(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(Creation, "run", run)
    root, place = tmp_path / "store", tmp_path / "backups"
    with service_pair(root, **TOKENS) as pair, pair.client(token="a" * 32) as client:
        assert _back_up(pair, "create", place, "--store", str(root)).exit_code != 0
        found = client.backup_report()
    assert found.created is not None
    assert (found.created.is_whole, found.created.error) == (False, why)
    assert found.whole is None


def test_a_backup_whose_output_has_no_reader_is_reported_as_whole(tmp_path: Path) -> None:
    root, place = tmp_path / "store", tmp_path / "backups"
    reader, writer = os.pipe()
    os.close(reader)
    with service_pair(root, **TOKENS) as pair, pair.client(token="a" * 32) as client:
        words = ["backup", "create", str(place), "--store", str(root), "--report"]
        words += ["--writer-url", pair.writer_url, "--token", "s" * 32]
        subprocess.run(
            [sys.executable, "-m", "mqstore.cli.main", *words],
            env=environment() | {"PYTHONUNBUFFERED": "1"},
            stdout=writer,
            check=False,
        )
        found = client.backup_report()
    os.close(writer)
    assert found.created is not None
    assert (found.created.is_whole, found.created.error) == (True, "")


def test_a_backup_that_cannot_be_reported_is_done(tmp_path: Path) -> None:
    root, place = tmp_path / "store", tmp_path / "backups"
    with service_pair(root, **TOKENS) as run, run.client(token="a" * 32) as client:
        done = _back_up(run, "create", place, "--store", str(root), token="a")
        assert done.exit_code == 0
        assert "the result is not reported" in done.stderr
        assert client.backup_report().created is None
        unreadable = ["--report", "--token-file", str(tmp_path / "none")]
        words = ["backup", "create", str(place), "--store", str(root), *unreadable]
        refused = CliRunner().invoke(app, words)
        assert (refused.exit_code, "cannot be read" in refused.stderr) == (2, True)
        run.stop()
    reports = ["--report", "--writer-url", run.writer_url]
    at_rest = ["backup", "create", str(place), "--store", str(root), *reports]
    done = CliRunner().invoke(app, at_rest)
    assert (done.exit_code, "the result is not reported" in done.stderr) == (0, True)


def test_a_dry_run_is_not_reported_and_only_the_role_system_may_report(tmp_path: Path) -> None:
    root, place = tmp_path / "store", tmp_path / "backups"
    with service_pair(root, **TOKENS) as run, run.client(token="a" * 32) as client:
        assert _back_up(run, "create", place, "--store", str(root), "--dry-run").exit_code == 0
        assert client.backup_report().created is None
        with pytest.raises(ProblemError) as refused:
            client.put_backup_result(BackupResult.model_validate(BACKUP))
        assert refused.value.status == 403
