"""An index file that cannot be made holds up nothing but the index."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from mqstore.storage.message_store import Durability
from tests.simulation.retention_machine import Machine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message

PUTS = 200


def _put(machine: Machine, first: int) -> None:
    for number in range(first, first + PUTS):
        put_message(machine.store, message(machine.store, number), Durability.ASYNC)


def _is_complete(machine: Machine) -> bool:
    return machine.store.dispatcher.catch_up.complete


def _has_key(machine: Machine, number: int) -> bool:
    return bool(machine.store.lookups.by_key("T", f"k{number}").records)


def test_queues_go_on_without_the_index_and_it_catches_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "mqstore")
    machine = Machine()
    store = machine.store
    _put(machine, 0)
    machine.run(1)
    assert _is_complete(machine)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(store.index, "_roll", refuse)
        _put(machine, PUTS)
        machine.run(10)
        queue = store.queues.get("T", 0)
        assert queue is not None
        assert queue.max_index == 2 * PUTS
        assert store.dispatcher.behind == 0
        assert not _is_complete(machine)
        assert not store.lookups.by_key("T", "k399").complete
        assert caplog.text.count("the index cannot go on") == 1
    machine.run(10)
    assert _is_complete(machine)
    assert all(_has_key(machine, number) for number in range(2 * PUTS))
    _put(machine, 2 * PUTS)
    assert _is_complete(machine)
    assert _has_key(machine, 3 * PUTS - 1)
    items = sum(file.index_count - 1 for file in store.index.files)
    assert items == 3 * PUTS * len(store.index.keys_of(store.lookups.by_key("T", "k0").records[0]))
