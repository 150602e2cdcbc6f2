"""An import is cut off by kills and power cuts at every step: the next import of the same file
continues it, and stores every message once.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from mqstore.cli.import_lines import Source, Storing
from mqstore.cli.message_files import FileForm
from mqstore.cli.message_selection import Selection
from mqstore.storage import message_import
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_import import ImportRules, open_import
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.verify import walk_log
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints, every
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.unit.storage.puts import put_message

ROOT = Path("/store")
MESSAGES = 60
STEPS = 15


class Life:
    """A store with some messages, into which a file is imported; every effect may be the last."""

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        options = StoreOptions(format=StoreFormat.V4_9, boot_id="0" * 32, pid=1)
        with MessageStore.open(ROOT, CONFIG, self.machine.seams, options) as store:
            new = NewMessage(1_000, 50, 1, None)
            message = message_of(store, ("T", 0), new, self.machine.clock.now_ms())
            put_message(store, message)

    def store_all(self, machine: SimulatedMachine) -> Storing:
        rules = ImportRules.of(machine.seams.files, ROOT, CONFIG, StoreFormat.V4_9)
        survey = self.source.survey(rules, lambda *_: None)
        first_ms = survey.first_ms
        with open_import(ROOT, CONFIG, machine.seams, "file", first_ms=first_ms) as target:
            target.make_topics(survey.queues)
            storing = Storing(target, self.source, survey)
            storing.store(lambda *_: None)
        return storing

    def run(self) -> int:
        """Returns the number of crashes."""
        points = CrashPoints(self.chance, lambda disk, _: self.check(disk), every(STEPS))
        with points.of(self.machine.disk):
            self.store_all(self.machine)
        return points.states

    def check(self, disk: SimulatedDisk) -> None:
        """Continue after a crash: every message is there once, in the order of the file."""
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        assert self.store_all(machine).done == MESSAGES
        options = StoreOptions(boot_id="0" * 32, pid=1, services=False)
        with MessageStore.open(ROOT, CONFIG, machine.seams, options) as store:
            found = [each.keys for each in walk_log(store.log) if isinstance(each, Record)]
        assert found[1:] == [f"key-{number}" for number in range(MESSAGES)]


def test_an_import_that_is_cut_off_continues_without_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_import, "SYNC_EVERY", 7)
    file = tmp_path / "all.jsonl"
    documents = [
        {"topic": "T", "queueId": n % 3, "body": f"body {n}" * 20, "keys": [f"key-{n}"]}
        for n in range(MESSAGES)
    ]
    times = [1_600_000_000_000 + 60_000 * n for n in range(MESSAGES)]
    file.write_text(
        "\n".join(
            json.dumps(each | {"storeTimestamp": time})
            for each, time in zip(documents, times, strict=True)
        )
    )
    source = Source(file, FileForm.JSONL, Selection(), times[0])
    assert Life(source, 5).run() > 3
