"""store-writer keeps and counts the result of an expiry report, and sends it as an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import ProblemError
from mqstore.wire.examples.reports import EXPIRY as EXAMPLE
from tests.services.service_processes import service_pair

pytestmark = pytest.mark.slow

PATH = "/v1/reports/expiry"


def test_a_report_outlives_the_process_and_is_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with service_pair(root) as run, run.client() as client:
        assert client.expiry_report().report is None
        assert "mqstore_expiry_report_seconds 0.0" in httpx.get(f"{run.writer_url}/metrics").text
        assert client.put_expiry_report(EXAMPLE).report == EXAMPLE
        events = httpx.get(f"{run.writer_url}/v1/events?seconds=0").text
        assert '"kind":"expiry"' in events
        assert '"group":"billing"' in events
        run.stop()
    with service_pair(root) as run, run.client() as client:
        assert client.expiry_report().report == EXAMPLE
        counted = httpx.get(f"{run.writer_url}/metrics").text
    for line in (
        "mqstore_expiry_at_risk 1.0",
        "mqstore_expiry_disk_fills 0.0",
        'mqstore_expiry_lost_messages{horizon_hours="24"} 3713.0',
        'mqstore_expiry_risk_messages{kind="group",name="billing",topic="orders"} 3713.0',
    ):
        assert line in counted


def test_where_nothing_is_at_risk_there_is_no_event(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store") as run, run.client() as client:
        fine: dict[str, Any] = {**EXAMPLE, "atRisk": False, "diskFills": True, "risks": []}
        client.put_expiry_report(fine)
        assert "mqstore_expiry_disk_fills 1.0" in httpx.get(f"{run.writer_url}/metrics").text
        assert '"kind":"expiry"' not in httpx.get(f"{run.writer_url}/v1/events?seconds=0").text


def test_only_a_job_may_hand_one_in(tmp_path: Path) -> None:
    tokens: dict[str, Any] = {"token_admin": "a" * 32, "token_system": "s" * 32}
    with service_pair(tmp_path / "store", **tokens) as run:
        with run.client(token="a" * 32) as client, pytest.raises(ProblemError) as refused:
            client.put_expiry_report(EXAMPLE)
        assert refused.value.status == 403
        with run.client(token="s" * 32) as client:
            client.put_expiry_report(EXAMPLE)


def test_a_file_that_cannot_be_read_is_no_report(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with service_pair(root) as run, run.client() as client:
        client.put_expiry_report(EXAMPLE)
        run.stop()
    path = root / "mqstore" / "expiry-report.json"
    path.write_bytes(path.read_bytes().replace(b"billing", b"calling"))
    with service_pair(root) as run, run.client() as client:
        assert client.expiry_report().report is None
