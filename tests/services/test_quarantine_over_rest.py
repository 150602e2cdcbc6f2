"""Quarantined files of a recovery are listed, counted, and removed on request."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from tests.services.service_processes import writer


def test_what_a_recovery_cut_is_shown_and_can_be_removed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store) as process, Client(process.url, process.url) as client:
        client.create_topic("t", queues=1)
        (placed,) = client.produce("t", [NewMessage(body="kept")], durability="sync").messages
        process.process.kill()
        process.process.wait()
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(placed.physical_offset + placed.size)
        log.write(b"no record")
    with writer(store) as process, Client(process.url) as client:
        held = client.quarantine()
        (entry,) = (each for each in held.entries if each.source.startswith("commitlog/"))
        assert entry.length == 9
        assert entry.position == placed.physical_offset + placed.size
        assert held.bytes == sum(each.length for each in held.entries)
        shown = httpx.get(f"{process.url}/metrics").text
        assert f"mqstore_quarantine_bytes {float(held.bytes)}" in shown

        client.remove_quarantined(entry.name)
        assert entry not in client.quarantine().entries
        with pytest.raises(ProblemError, match="quarantine-entry-unknown"):
            client.remove_quarantined(entry.name)
        outside = httpx.delete(f"{process.url}/v1/store/quarantine/..%2F..%2Fcommitlog")
        assert outside.json()["type"].endswith("not-found")
        assert (store / "commitlog").exists()
