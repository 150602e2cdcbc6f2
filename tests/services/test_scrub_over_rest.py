"""The scrub over REST: what the disk changed under a running store is named, and not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.client import NewMessage, ProblemError
from tests.services.service_processes import service_pair


def test_a_flipped_bit_is_named_and_its_message_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with service_pair(root, damage_repair="manual") as run, run.client() as client:
        client.create_topic("scrubbed", queues=1)
        (placed,) = client.produce("scrubbed", [NewMessage(body="a")], durability="sync").messages
        # What was synced is covered just after the answer: only then may it change.
        while client.message(placed.offset_msg_id).checksum.blocks != "verified":
            pass
        topic_at = placed.physical_offset + 88 + 1 + 1
        with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(topic_at)
            log.write(b"S")

        while not client.scrub().findings:
            client.run_scrub()

        (found,) = client.scrub().findings
        assert (found.offset, found.length, found.field) == (topic_at, 1, "TOPIC")
        assert (found.record_offset, found.topic) == (placed.physical_offset, "scrubbed")
        assert (found.queue_id, found.queue_offset) == (0, placed.queue_offset)
        with pytest.raises(ProblemError) as refused:
            client.message(placed.offset_msg_id)
        assert refused.value.type == "message-suspect"

        (planned,) = client.repair_log(dry_run=True).plan["actions"]
        assert planned["kind"] == "restore-bytes"
        assert client.scrub().finding_count == 1
        assert client.repair_log().done
        scrub = client.scrub()
        assert (scrub.finding_count, scrub.repair_count, scrub.tombstone_count) == (0, 1, 0)
        assert client.message(placed.offset_msg_id).body == "a"


def test_a_flipped_bit_is_put_back_by_the_scrub(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with service_pair(root) as run, run.client() as client:
        client.create_topic("scrubbed", queues=1)
        (placed,) = client.produce("scrubbed", [NewMessage(body="a")], durability="sync").messages
        while client.message(placed.offset_msg_id).checksum.blocks != "verified":
            pass
        with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(placed.physical_offset + 8)
            log.write(b"\xff\xff")
        while not client.scrub().repair_count:
            client.run_scrub()
        found = client.message(placed.offset_msg_id)
        assert (found.body, found.checked_by) == ("a", None)
