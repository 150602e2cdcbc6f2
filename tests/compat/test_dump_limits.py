"""`mqstore store dump` where random stores seldom lead: settings of a broker, limits and damage."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat import ours
from tests.compat.compare import QUERY_LIMIT, Dump, differences
from tests.compat.damage import BODY_POSITION
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.scripts import Put, Script
from tests.compat.shapes import EVERYTHING, Shape, expand
from tests.compat.versions import mainly

pytestmark = [pytest.mark.referee, pytest.mark.slow]

EXT_ADDRESS_MAX = -2147483649
SIZES = ours.index_sizes(Shape().config)


def views_of(referee: Referee, store: Path, config: dict[str, Any]) -> tuple[Dump, Dump]:
    """Ours and RocketMQ's of the same store, which are the same."""
    found = Dump.of(ours.dump(store, config))
    theirs = Dump.of(referee.dump(copy_of(store), config))
    assert differences(found, theirs) == []
    return found, theirs


@mainly("4.9.7")
def test_an_entry_of_the_ext_queue_keeps_its_address(referee: Referee, tmp_path: Path) -> None:
    """The message's own tagsCode is that of its tag, the entry's is the address of the unit."""
    store = tmp_path / "store"
    config = EVERYTHING.config | {"enableConsumeQueueExt": True}
    script = Script(config, expand(6, EVERYTHING, referee.format).operations)
    referee.write(script, store)

    found, _ = views_of(referee, store, config)

    codes = [code for queue in found.entries.values() for _, _, code in queue.values()]
    assert any(code <= EXT_ADDRESS_MAX for code in codes)
    assert all(line["tagsCode"] > EXT_ADDRESS_MAX for line in found.messages)


def test_the_crc_property_is_left_in(referee: Referee, tmp_path: Path) -> None:
    if referee.format == "4.9":
        return  # there is none
    store = tmp_path / "store"
    config = EVERYTHING.config | {"enabledAppendPropCRC": True}
    referee.write(Script(config, expand(8, EVERYTHING, referee.format).operations), store)

    found, _ = views_of(referee, store, config)

    assert all("__CRC32#" in line["props"] for line in found.messages)


def test_a_query_gives_the_newest_of_all_that_collide(referee: Referee, tmp_path: Path) -> None:
    """Over several index files, ascending, and none of another topic's."""
    store = tmp_path / "store"
    shape = Shape(index_num=90, hash_slots=7)
    keys = ("AaAa", "BBBB", "AaBB other", "unrelated")
    puts = [
        Put("T" if n % 5 else "U", properties=(("KEYS", keys[n % len(keys)]),)) for n in range(200)
    ]
    referee.write(Script(shape.config, puts), store)

    found, _ = views_of(referee, store, shape.config)

    colliding = [
        line["off"]
        for line in found.messages
        if line["topic"] == "T" and line["keys"] != "unrelated"
    ]
    assert len(list((store / "index").iterdir())) > 1
    for key in ("AaAa", "BBBB", "AaBB"):
        assert found.queries["T", key] == colliding[-QUERY_LIMIT:]


def test_a_damaged_body_keeps_its_place_in_queue_and_index(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    puts = [Put("T", body=b"body", properties=(("KEYS", f"k{n}"),)) for n in range(9)]
    referee.write(Script(Shape().config, puts), store)
    whole = Dump.of(ours.dump(store, Shape().config))
    line = whole.messages[4]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(line["off"] + BODY_POSITION)
        file.write(b"B")

    result = ours.run_command("store", "dump", str(store), "--queries", *SIZES)
    found = Dump.of(result.lines)

    assert result.code == 1
    assert "messages with a damaged body: 1" in result.errors
    assert [each["crcOk"] for each in found.messages] == [n != 4 for n in range(9)]
    assert (found.entries, found.queries) == (whole.entries, whole.queries)


@mainly("5.4.0")
def test_the_installed_command_reports_a_cut_in_bytes_and_by_exit_code(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    script = Script(Shape().config, [Put("T", body=b"body" * 9)] * 9).ending("halt")
    referee.write(script, store)
    last = Dump.of(ours.dump(store, Shape().config)).messages[-1]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(last["off"] + 90)
        file.write(bytes(last["size"] - 90))

    done = subprocess.run(
        [ours.command(), "store", "dump", str(store), *SIZES],
        capture_output=True,
        text=True,
        timeout=ours.TIMEOUT_S,
        check=False,
    )
    found = Dump.of([json.loads(line) for line in done.stdout.splitlines()])

    assert done.returncode == 1
    assert (found.recovered["path"], found.recovered["maxPhyOffset"]) == ("abnormal", last["off"])
    assert f"bytes cut from the log: {found.recovered['cutBytes']}" in done.stderr
    assert 0 < found.recovered["cutBytes"] <= 90


def test_in_place_the_sizes_of_the_stores_own_index_count(referee: Referee, tmp_path: Path) -> None:
    """In memory the index is made again, of any size."""
    store = tmp_path / "store"
    referee.write(Script(Shape().config, [Put("T", properties=(("KEYS", "k"),))]), store)
    other = Shape().config | {"maxIndexNum": 999}

    assert ours.dump(store, other) == ours.dump(store, Shape().config)

    before = {path.name: path.stat().st_size for path in (store / "index").iterdir()}
    options = ("--in-place", "--hash-slots=31", "--index-num=999")
    assert ours.run_command("store", "dump", str(store), *options).code == 0
    after = {path.name: path.stat().st_size for path in (store / "index").iterdir()}
    assert set(after.values()) == set(before.values())
