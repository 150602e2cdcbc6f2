"""Delayed messages of a broker with more delay levels than messageDelayLevel has here."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, bodies, open_store

MANY = CONFIG.model_copy(update={"message_delay_level": "1h 1h 1h"})
FEW = CONFIG.model_copy(update={"message_delay_level": "1h 1h"})


def put_delayed(store: MessageStore, level: int) -> None:
    table = {"DELAY": str(level), "UNIQ_KEY": f"k{level}"}
    encoded = properties.encode(table, trailing_separator=store.format.trailing_property_separator)
    body = b"level %d" % level
    put_message(store, Message("T", 0, body, encoded, store.host, store.host, 1_700_000_000_000))


def test_messages_of_a_missing_level_are_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path, MANY) as store:
        put_delayed(store, 2)
        put_delayed(store, 3)
        assert [each.level for each in store.delays.status()] == [1, 2, 3]
    with open_store(tmp_path, FEW) as store:
        of_three = store.delays.status()[2]
        assert (of_three.level, of_three.delay, of_three.pending) == (3, "", 1)
        assert "messageDelayLevel has 2 levels" in str(of_three.waiting)
        assert {hold.name for hold in store.delays.holds()} == {"2", "3"}
    assert "messageDelayLevel has 2 levels" in caplog.text
    found = Verification(tmp_path, FEW, production_seams()).findings()
    assert ["delay level 3" in each.what for each in found] == [True]


def test_they_are_delivered_once_the_setting_has_their_level(tmp_path: Path) -> None:
    with open_store(tmp_path, MANY) as store:
        store.create_topic("T", queues=1)
        put_delayed(store, 3)
    with open_store(tmp_path, FEW):
        pass
    soon = CONFIG.model_copy(update={"message_delay_level": "1s 1s 1s"})
    with open_store(tmp_path, soon, deliver_delayed=False) as store:
        store.delays.service.step(0)
        assert store.delays.status()[2].waiting is None
        assert bodies(store, topic="T", queues=1) <= {b"level 3"}
