"""Permissions in the tables of a store: a broker and mqstore obey them alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.referee import Referee
from tests.compat.versions import mainly
from tests.services.service_processes import running

pytestmark = [pytest.mark.referee, pytest.mark.slow]

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
NO_PERMISSION = 16
PERMS = {f"P{perm}": perm for perm in range(8)}


def _write_tables(root: Path) -> None:
    config = root / "config"
    config.mkdir(parents=True)
    topics: dict[str, Any] = {
        name: {"topicName": name, "perm": perm, "readQueueNums": 1, "writeQueueNums": 1}
        for name, perm in PERMS.items()
    }
    groups = {
        name: {"groupName": name, "consumeEnable": name != "off", "retryQueueNums": 1}
        for name in ("on", "off")
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))


@mainly("5.4.0")
def test_pulls_are_refused_where_a_broker_refuses_them(referee: Referee, tmp_path: Path) -> None:
    pulls = [{"group": "on", "topic": name} for name in PERMS]
    pulls += [{"group": "off", "topic": "P6"}]
    _write_tables(tmp_path / "theirs")
    replies = referee.permissions(tmp_path / "theirs", {"config": SIZES, "pulls": pulls})
    theirs = {(each["group"], each["topic"]): each["code"] for each in replies}
    assert set(theirs.values()) == {0, NO_PERMISSION}
    _write_tables(tmp_path / "mine")
    with running(tmp_path / "mine", store_format=referee.format) as run:
        for (group, topic), code in theirs.items():
            queue = f"{run.query_url}/v1/topics/{topic}/queues/0/messages"
            pulled = httpx.get(queue, params={"offset": 0, "group": group})
            receive = f"{run.writer_url}/v1/groups/{group}:receive"
            received = httpx.post(receive, json={"topics": {topic: {}}})
            served = (pulled.is_success, received.is_success)
            assert served == ((code == 0),) * 2, (group, topic)
            if code:
                kinds = {reply.json()["type"].rpartition(":")[2] for reply in (pulled, received)}
                assert kinds == {"group-disabled" if group == "off" else "topic-not-readable"}
