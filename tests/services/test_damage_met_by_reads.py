"""Damage that a read through query meets is repaired by store-writer, without a scrub pass."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.wire.produce import MessagePlace
from tests.services.service_processes import SEGMENT_SIZE, Process, query, writer

TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "system")}
SECURED = {f"token_{role}": token for role, token in TOKENS.items()}
SYSTEM = {"authorization": f"Bearer {TOKENS['system']}"}
DAMAGE = "/v1/internal/damage"
FLAG_AT, BODY_AT = 16, 88
COUNT = 20


def _filled(put: Process, root: Path) -> list[MessagePlace]:
    """Messages, all covered by block checksums; no pass of the scrub is due for a week."""
    with query(root, **SECURED) as find, Client(put.url, find.url, token=TOKENS["admin"]) as client:
        client.create_topic("read", queues=1)
        while client.scrub().last_pass_ended_at_ms is None:
            pass
        new = [NewMessage(body=f"body {number}") for number in range(COUNT)]
        placed = client.produce("read", new, durability="sync").messages
        while client.message(placed[-1].offset_msg_id).checksum.blocks != "verified":
            pass
    return list(placed)


def _flip(root: Path, offset: int) -> None:
    with (root / "commitlog" / f"{offset - offset % SEGMENT_SIZE:020d}").open("r+b") as log:
        log.seek(offset % SEGMENT_SIZE)
        byte = log.read(1)[0]
        log.seek(offset % SEGMENT_SIZE)
        log.write(bytes([byte ^ 0x40]))


@pytest.mark.parametrize(
    ("at", "problem"), [(FLAG_AT, "message-suspect"), (BODY_AT, "message-damaged")]
)
def test_a_read_has_the_writer_repair_what_it_met(tmp_path: Path, at: int, problem: str) -> None:
    root = tmp_path / "store"
    with writer(root, **SECURED) as put:
        hurt = _filled(put, root)[COUNT // 2]
        _flip(root, hurt.physical_offset + at)
        with (
            query(root, **SECURED) as find,  # it has not compared the block before
            Client(put.url, find.url, token=TOKENS["admin"]) as client,
        ):
            before = client.scrub()
            assert before.repair_count == before.finding_count == 0
            with pytest.raises(ProblemError) as refused:
                client.message(hurt.offset_msg_id)
            assert refused.value.type == problem
            while not (after := client.scrub()).repair_count:
                pass
            assert (after.finding_count, after.tombstone_count) == (0, 0)
            assert (after.began_at_ms, after.position) == (before.began_at_ms, None), "no pass"
            found = client.message(hurt.offset_msg_id)
            assert (found.body, found.checked_by) == (f"body {COUNT // 2}", None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "store"


@pytest.fixture(scope="module")
def put(store: Path) -> Iterator[Process]:
    with writer(store, **SECURED) as process:
        yield process


@pytest.fixture(scope="module")
def placed(put: Process, store: Path) -> list[MessagePlace]:
    return _filled(put, store)


def test_a_flood_of_reports_of_nothing_repairs_nothing(
    put: Process, placed: list[MessagePlace]
) -> None:
    healthy = range(placed[-1].physical_offset + placed[-1].size)
    absent = itertools.count(2**40)
    with httpx.Client(base_url=put.url, headers=SYSTEM) as http:
        before = http.get("/v1/store/scrub").json()
        for _ in range(50):
            for offsets in (healthy[:1024], healthy[-1024:], itertools.islice(absent, 1024)):
                reply = http.post(DAMAGE, json={"offsets": list(offsets)})
                assert reply.status_code == 202
                assert 0 <= reply.json()["waiting"] <= 1
        after = http.get("/v1/store/scrub").json()
        assert after == before
        assert (after["findingCount"], after["repairCount"]) == (0, 0)
        (line,) = [
            each
            for each in http.get("/metrics").text.splitlines()
            if each.startswith("mqstore_damage_reports_total")
        ]
        assert 1 <= float(line.split()[1]) <= 100


def test_reads_where_no_message_is_repair_nothing(
    put: Process, store: Path, placed: list[MessagePlace]
) -> None:
    begins = {each.physical_offset for each in placed}
    with (
        query(store, **SECURED) as find,
        httpx.Client(base_url=find.url, headers=SYSTEM) as http,
        Client(put.url, token=TOKENS["admin"]) as client,
    ):
        before = client.scrub()
        for offset in (*range(1, 300), *range(2**40, 2**40 + 200)):
            found = http.get(f"/v1/messages?physicalOffset={offset}")
            assert found.status_code == (200 if offset in begins else 404)
        assert client.scrub() == before


def test_a_report_is_bounded_and_of_the_system_role(put: Process) -> None:
    with httpx.Client(base_url=put.url, headers=SYSTEM) as http:
        for offsets in ([], list(range(1025)), [-1], [2**63], ["zero"], [0.5], None):
            assert http.post(DAMAGE, json={"offsets": offsets}).status_code == 422, offsets
        admin = {"authorization": f"Bearer {TOKENS['admin']}"}
        assert http.post(DAMAGE, json={"offsets": [0]}, headers=admin).status_code == 403


def test_a_close_with_damage_left_is_an_event_and_a_line_of_the_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root, damage_repair="manual", **SECURED) as put:
        hurt = _filled(put, root)[0]
        _flip(root, hurt.physical_offset + FLAG_AT)
        with httpx.Client(base_url=put.url, headers=SYSTEM) as http:
            http.post(DAMAGE, json={"offsets": [hurt.physical_offset]})
            while not http.get("/v1/store/scrub").json()["findingCount"]:
                pass
            with http.stream("GET", "/v1/events") as stream:
                put.process.terminate()
                data = [line for line in stream.iter_lines() if line.startswith("data: ")]
        last = json.loads(data[-1].removeprefix("data: "))
        place = hurt.physical_offset + FLAG_AT
        assert (last["kind"], last["findings"]) == ("closing-damaged", 1)
        assert last["firstOffset"] == place
        code, errors = put.ended()
        assert code == 0
        assert f"closed with 1 damaged places in its log, the first at offset {place}" in errors
