"""Delayed messages: pending here, delivered by real RocketMQ, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.examples import copy_of, example_directory
from tests.compat.referee import Referee
from tests.compat.scripts import SCHEDULE_TOPIC, Put, Script, Sleep, WaitDelayed
from tests.compat.versions import mainly

pytestmark = [pytest.mark.referee, pytest.mark.slow]

CONFIG = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": "1s 1s 2s",
}
DELIVERING = CONFIG | {"deliverDelayed": True}
COMMIT = 0x8
COPIED = ("topic", "q", "flag", "sysFlag", "bornTs", "bornHost", "storeHost", "reconsume", "pto")
PENDING = 24

Line = dict[str, Any]
Run = Callable[[Script, Path], Sequence[Line]]


def puts(first: int = 0, count: int = PENDING) -> list[Put]:
    """Puts of all levels and beyond, some without a delay; the bodies name the level."""
    return [
        Put(
            topic="TopicTest" if number % 2 else "%RETRY%group-a",
            queue_id=number % 3,
            body=b"%d" % number,
            properties=(
                ("TAGS", "TagA"),
                ("KEYS", f"order-{number}"),
                ("UNIQ_KEY", f"{number:032X}"),
                *((("DELAY", str(number % 5)),) if number % 5 else ()),
            ),
            flag=number,
            sys_flag=COMMIT if number % 7 == 3 else 0,
            reconsume_times=number % 4,
            prepared_transaction_offset=17,
        )
        for number in range(first, first + count)
    ]


def sides(referee: Referee) -> dict[str, Run]:
    def we(script: Script, store: Path) -> Sequence[Line]:
        run = ours.append if store.exists() else ours.write
        return run(script, store, referee.format)

    def they(script: Script, store: Path) -> Sequence[Line]:
        run = referee.append if store.exists() else referee.write
        return run(script, store)

    return {"ours": we, "theirs": they}


def delivered(found: Dump) -> list[Line]:
    """All copies, in log order."""
    return [
        line
        for line in found.messages
        if line["topic"] != SCHEDULE_TOPIC and "REAL_TOPIC" in (line["props"] or {})
    ]


def fields(line: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a copy that do not depend on its time and place."""
    return {name: line[name] for name in (*COPIED, "props", "bodySha256", "tagsCode")}


def by_level(found: Dump) -> dict[str, list[Line]]:
    levels: dict[str, list[Line]] = {}
    for line in delivered(found):
        levels.setdefault(line["props"]["DELAY"], []).append(fields(line))
    return levels


@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
@mainly("5.4.0")
def test_what_is_pending_here_is_delivered_there(referee: Referee, first: str, second: str) -> None:
    run, config = sides(referee), CONFIG
    script = Script(config, puts())
    with example_directory(script) as directory:
        store = directory / "store"
        run[first](script, store)
        both = {name: copy_of(store) for name in run}
        for name, copied in both.items():
            run[name](Script(DELIVERING, [WaitDelayed()]), copied)
        mine = Dump.of(ours.dump(both["ours"], config))
        theirs = Dump.of(ours.dump(both["theirs"], config))
        assert len(delivered(mine)) == sum(number % 5 > 0 for number in range(PENDING))
        assert by_level(mine) == by_level(theirs)
        # And on: what one side delivered, the other neither repeats nor forgets.
        run[first](Script(DELIVERING, [*puts(100, 5), WaitDelayed()]), both[second])
        after = Dump.of(ours.dump(both[second], config))
        assert len(delivered(after)) == len(delivered(mine)) + 4
        assert delivered(Dump.of(referee.dump(copy_of(both[second]), config))) == delivered(after)


def test_both_delay_a_put_alike(referee: Referee) -> None:
    script = Script(CONFIG, puts())
    with example_directory(script) as directory:
        found = {}
        for name, run in sides(referee).items():
            run(script, directory / name)
            dump = Dump.of(ours.dump(directory / name, CONFIG))
            found[name] = [
                {member: line[member] for member in (*COPIED, "qoff", "props", "bodySha256")}
                for line in dump.messages
            ]
        assert found["ours"] == found["theirs"]


@mainly("4.9.7")
def test_a_halted_brokers_deliveries_are_not_repeated(referee: Referee) -> None:
    """The broker wrote no progress, because it does so after ten seconds."""
    script = Script(DELIVERING, [*puts(), WaitDelayed(), *puts(200, 3)]).ending("halt")
    with example_directory(script) as directory:
        store = directory / "store"
        referee.write(script, store)
        assert not _progress(store), "the test wants a broker that saved nothing"
        ours.append(Script(DELIVERING, [WaitDelayed()]), store, referee.format)
        keys = [line["props"]["UNIQ_KEY"] for line in delivered(Dump.of(ours.dump(store, CONFIG)))]
        assert (
            len(keys) == len(set(keys)) == sum(n % 5 > 0 for n in (*range(PENDING), 200, 201, 202))
        )


def _progress(store: Path) -> bool:
    return (store / "config" / "delayOffset.json").exists()


def test_a_broker_goes_on_after_our_kill(referee: Referee) -> None:
    """The broker repeats at most as much as after a kill of its own, and loses nothing."""
    script = Script(DELIVERING, [*puts(), Sleep(1300)]).ending("halt")
    with example_directory(script) as directory:
        store = directory / "store"
        ours.write(script, store, referee.format)
        referee.append(Script(DELIVERING, [WaitDelayed()]), store)
        keys = {line["props"]["UNIQ_KEY"] for line in delivered(Dump.of(ours.dump(store, CONFIG)))}
        assert len(keys) == sum(number % 5 > 0 for number in range(PENDING))
