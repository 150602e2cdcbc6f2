"""What a recovery set aside is listed, counted, and removed on request."""

from __future__ import annotations

from pathlib import Path

import httpx

from mqstore.client import Client, NewMessage
from tests.services.service_processes import writer

PATH = "/v1/store/quarantine"


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
    with writer(store) as process, httpx.Client(base_url=process.url) as http:
        held = http.get(PATH).json()
        (entry,) = (each for each in held["entries"] if each["source"].startswith("commitlog/"))
        assert entry["length"] == 9
        assert entry["position"] == placed.physical_offset + placed.size
        assert held["bytes"] == sum(each["length"] for each in held["entries"])
        shown = http.get("/metrics").text
        assert f"mqstore_quarantine_bytes {float(held['bytes'])}" in shown

        assert http.delete(f"{PATH}/{entry['name']}").status_code == 204
        assert entry not in http.get(PATH).json()["entries"]
        gone = http.delete(f"{PATH}/{entry['name']}")
        assert gone.status_code == 404
        assert gone.json()["type"].endswith("quarantine-entry-unknown")
        escaping = http.delete(f"{PATH}/..%2F..%2Fcommitlog")
        assert escaping.status_code == 404
        assert (store / "commitlog").exists()
