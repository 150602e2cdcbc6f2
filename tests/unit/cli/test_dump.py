"""``mqstore store dump`` on stores of ours: lines, order, exit codes, and that nothing is written.

What it prints for stores of real RocketMQ is compared with RocketMQ's own view in tests/compat.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import SysFlag
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from tests.forked_processes import start, start_program
from tests.unit.storage.puts import put_message

SEGMENT = 1 << 16
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=50,
    max_index_num=200,
)
BORN = Host.parse("10.0.0.9", 4321)
BORN_V6 = Host.parse("2001:db8::1", 4321)

Line = dict[str, Any]


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(root, CONFIG, production_seams())


def message(
    store: MessageStore,
    *,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes | None = b"body",
    sys_flag: int = 0,
    born_host: Host = BORN,
    **named: str,
) -> Message:
    encoded = properties.encode(named, trailing_separator=store.format.trailing_property_separator)
    return Message(
        topic, queue_id, body, encoded, born_host, store.host, 1_700_000_000_000, sys_flag=sys_flag
    )


def run_dump(root: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["store", "dump", str(root), *options])


def lines_of(result: Result) -> list[Line]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def dumped(root: Path, *options: str, code: int = 0) -> list[Line]:
    result = run_dump(root, *options)
    assert result.exit_code == code, result.output
    return lines_of(result)


def of_type(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["t"] == kind]


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def small_store(root: Path) -> Path:
    """Three messages in two queues, closed cleanly."""
    with open_store(root) as store:
        put_message(store, message(store, UNIQ_KEY="U1", KEYS="a b", TAGS="tag"))
        put_message(store, message(store, queue_id=1, body=b"", born_host=BORN_V6))
        put_message(store, message(store, topic="Other", body=b"x" * 100, KEYS="a"))
    return root


def test_a_message_line_has_every_field(small_store: Path) -> None:
    first = of_type(dumped(small_store), "msg")[0]

    assert list(first) == [
        *("t", "off", "size", "topic", "q", "qoff", "flag", "phys", "sysFlag", "bornTs"),
        *("bornHost", "storeTs", "storeHost", "reconsume", "pto", "bodyLen", "bodyCrc", "crcOk"),
        *("bodySha256", "props", "tags", "keys", "uniqKey", "offsetMsgId", "tagsCode"),
    ]
    assert first["bornHost"] == "10.0.0.9|4321"
    assert first["storeHost"] == "127.0.0.1|10911"
    assert first["bodyCrc"] == zlib.crc32(b"body") & 0x7FFFFFFF
    assert first["bodySha256"] == hashlib.sha256(b"body").hexdigest()
    assert first["props"] == {"UNIQ_KEY": "U1", "KEYS": "a b", "TAGS": "tag"}
    assert (first["uniqKey"], first["keys"], first["tags"]) == ("U1", "a b", "tag")
    assert first["tagsCode"] == properties.tags_code("tag")
    assert first["offsetMsgId"] == "7F00000100002A9F" + "0" * 16
    assert first["crcOk"] is True


def test_a_message_without_properties_has_null(small_store: Path) -> None:
    second = of_type(dumped(small_store), "msg")[1]

    assert (second["props"], second["tags"], second["keys"]) == (None, None, None)
    assert (second["bodyLen"], second["bodyCrc"], second["crcOk"]) == (0, 0, True)
    assert second["bornHost"] == "2001:db8:0:0:0:0:0:1|4321"


def test_lines_come_in_order(small_store: Path) -> None:
    kinds = [line["t"] for line in dumped(small_store, "--queries")]

    assert kinds == ["recovered"] + ["msg"] * 3 + ["queue"] * 3 + ["cq"] * 3 + ["query"] * 4


def test_queues_and_entries_are_as_in_the_files(small_store: Path) -> None:
    lines = dumped(small_store)
    sizes = {line["off"]: line["size"] for line in of_type(lines, "msg")}

    assert {
        (line["topic"], line["q"], line["min"], line["max"]) for line in of_type(lines, "queue")
    } == {
        ("T", 0, 0, 1),
        ("T", 1, 0, 1),
        ("Other", 0, 0, 1),
    }
    for entry in of_type(lines, "cq"):
        assert entry["size"] == sizes[entry["off"]]


def test_the_first_line_reports_the_recovery(small_store: Path) -> None:
    lines = dumped(small_store)
    last = of_type(lines, "msg")[-1]

    assert lines[0] == {
        "t": "recovered",
        "path": "normal",
        "minPhyOffset": 0,
        "maxPhyOffset": last["off"] + last["size"],
        "cutBytes": 0,
    }


def test_queries_cover_each_topic_and_key_once(small_store: Path) -> None:
    lines = dumped(small_store, "--queries")
    first, _, third = (line["off"] for line in of_type(lines, "msg"))

    assert [(line["topic"], line["key"], line["offsets"]) for line in of_type(lines, "query")] == [
        ("T", "U1", [first]),
        ("T", "a", [first]),
        ("T", "b", [first]),
        ("Other", "a", [third]),
    ]


def test_queries_include_hash_collisions_and_stop_at_the_64_newest(root: Path) -> None:
    with open_store(root) as store:
        placed = [
            put_message(
                store, message(store, KEYS="AaAa" if number % 2 else "BBBB")
            ).physical_offset
            for number in range(100)
        ]

    queries = of_type(dumped(root, "--queries"), "query")

    assert [line["key"] for line in queries] == ["BBBB", "AaAa"]
    assert all(line["offsets"] == placed[-64:] for line in queries)


def test_segment_ends_are_blank_lines(root: Path) -> None:
    with open_store(root) as store:
        for _ in range(5):
            put_message(store, message(store, body=bytes(SEGMENT // 2 - 100)))

    lines = dumped(root)
    log = [line for line in lines if line["t"] in ("msg", "blank")]

    assert len(of_type(lines, "blank")) == 2
    for before, after in itertools.pairwise(log):
        assert before["off"] + before["size"] == after["off"]


def test_nothing_is_written(small_store: Path) -> None:
    before = fingerprint(small_store)

    dumped(small_store, "--queries")

    assert fingerprint(small_store) == before


def test_a_store_that_was_killed_is_recovered_in_memory_only(root: Path) -> None:
    killed_while_open(root)
    before = fingerprint(root)

    lines = dumped(root, "--queries")

    assert lines[0]["path"] == "abnormal"
    assert len(of_type(lines, "msg")) == 20
    assert len(of_type(lines, "cq")) == 20
    assert fingerprint(root) == before


def test_derived_files_that_are_missing_are_made_in_memory(small_store: Path) -> None:
    expected = dumped(small_store, "--queries")
    for name in ("consumequeue", "index", "mqstore"):
        (small_store / name).rename(small_store.with_name(name))

    found = dumped(small_store, "--queries", "--hash-slots", "50", "--index-num", "200")

    assert found == expected


def test_strange_files_change_nothing(small_store: Path) -> None:
    expected = dumped(small_store, "--queries")
    for name in ("commitlog/strange", "index/strange", "consumequeue/T/0/strange", "strange"):
        (small_store / name).write_text("x")

    assert dumped(small_store, "--queries") == expected


def test_a_living_store_can_be_dumped(root: Path) -> None:
    with open_store(root) as store:
        put_message(store, message(store, KEYS="k"))

        assert len(of_type(dumped(root), "msg")) == 1


def test_a_wrong_body_crc_is_a_message_that_keeps_its_entry(small_store: Path) -> None:
    damage(small_store, of_type(dumped(small_store), "msg")[0]["off"] + 88)

    result = run_dump(small_store, "--queries")
    lines = lines_of(result)

    assert [line["crcOk"] for line in of_type(lines, "msg")] == [False, True, True]
    assert len(of_type(lines, "cq")) == 3
    assert of_type(lines, "query")[0]["offsets"] == [0]
    assert result.exit_code == 1
    assert "damaged body" in result.stderr


def test_an_unreadable_record_in_the_middle_is_a_bad_line(small_store: Path) -> None:
    whole = of_type(dumped(small_store), "msg")
    damage(small_store, whole[1]["off"] + 4)

    lines = dumped(small_store, code=1)

    assert [line["off"] for line in of_type(lines, "bad")] == [whole[1]["off"]]
    assert of_type(lines, "bad")[0]["why"]
    assert [line["off"] for line in of_type(lines, "msg")] == [whole[0]["off"], whole[2]["off"]]


def test_a_torn_tail_is_cut_and_said(root: Path) -> None:
    killed_while_open(root)
    end = of_type(dumped(root), "msg")[-1]
    log = root / "commitlog" / ("0" * 20)
    (root / "mqstore" / "state").unlink()
    with log.open("r+b") as file:
        file.seek(end["off"] + end["size"] // 2)
        file.write(bytes(end["size"] - end["size"] // 2))

    result = run_dump(root)
    lines = lines_of(result)

    assert result.exit_code == 1
    assert lines[0]["cutBytes"] > 0
    assert lines[0]["maxPhyOffset"] == end["off"]
    assert f"bytes cut from the log: {lines[0]['cutBytes']}" in result.stderr


def test_the_delay_topic_shows_delivery_times(root: Path) -> None:
    with open_store(root) as store:
        put_message(store, message(store, topic="SCHEDULE_TOPIC_XXXX", TAGS="t", DELAY="1"))

    lines = dumped(root)
    found = of_type(lines, "msg")[0]

    assert found["tagsCode"] == found["storeTs"] + 1000
    assert of_type(lines, "cq")[0]["tagsCode"] == found["tagsCode"]


def test_prepared_records_have_no_entry(root: Path) -> None:
    with open_store(root) as store:
        put_message(store, message(store, sys_flag=SysFlag.TRANSACTION_PREPARED))

    lines = dumped(root)

    assert len(of_type(lines, "msg")) == 1
    assert of_type(lines, "cq") == []


def test_in_place_recovers_for_good(root: Path) -> None:
    killed_while_open(root)
    assert (root / "abort").exists()

    lines = dumped(root, "--in-place")

    assert lines[0]["path"] == "abnormal"
    assert not (root / "abort").exists()
    assert dumped(root)[0]["path"] == "normal"


def test_in_place_is_refused_while_another_holds_the_lock(root: Path) -> None:
    with open_store(root) as store:
        put_message(store, message(store))
        result = run_dump(root, "--in-place")

    assert result.exit_code == 2
    (refused,) = lines_of(result)
    assert refused["t"] == "refused"
    assert "in use" in refused["why"]


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "file"):
        (tmp_path / "file").touch()
        result = run_dump(path)
        assert result.exit_code == 2
        assert [line["t"] for line in lines_of(result)] == ["refused"]
    assert not (tmp_path / "missing").exists()


def test_wrong_usage_is_exit_code_2() -> None:
    assert CliRunner().invoke(app, ["store", "dump"]).exit_code == 2
    assert run_dump(Path("x"), "--hash-slots", "0").exit_code == 2


def test_a_reader_that_leaves_early_is_no_error(root: Path) -> None:
    with open_store(root) as store:
        for number in range(2000):
            store.append(message(store, KEYS=f"key{number}"))
    process = start("mqstore.cli.main", "store", "dump", str(root), "--queries", interactive=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def killed_while_open(root: Path) -> None:
    """A store with 20 messages whose writer died."""
    program = (
        "import sys; from pathlib import Path; from tests.unit.cli import test_dump as t\n"
        "store = t.open_store(Path(sys.argv[1]))\n"
        "for n in range(20): t.put_message(store, t.message(store, queue_id=n % 3, KEYS=f'k{n}'))\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = start_program(program, str(root))
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def damage(root: Path, offset: int) -> None:
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(offset)
        found = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([found ^ 0xFF]))
