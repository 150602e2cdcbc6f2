"""``mqstore store export`` and ``store import``: a round trip keeps all but places."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.puts import ImportRules
from tests.unit.storage.small_disk import small_disk
from tests.unit.storage.stores import CONFIG, open_store, put_some
from tests.unit.untouched import entries_of

PLACE = frozenset({"queueOffset", "physicalOffset", "offsetMsgId", "storeHost"})
SIZES = (f"--hash-slots={CONFIG.max_hash_slot_num}", f"--index-num={CONFIG.max_index_num}")
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=8
)
HOSTS = st.one_of(
    st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65_535)),
    st.builds(Host, st.binary(min_size=16, max_size=16), st.integers(0, 65_535)),
)


@st.composite
def put_messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Fields of messages of two topics and three queues."""
    fields = st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["T", "%RETRY%g"]),
            "queue_id": st.integers(0, 2),
            "body": st.binary(max_size=80),
            "named": st.dictionaries(
                NAMES.filter(lambda name: name not in ("DELAY", "__CRC32#")), NAMES, max_size=4
            ),
            "born_host": HOSTS,
            "born_timestamp_ms": st.integers(0, 2**40),
            "flag": st.integers(-(2**31), 2**31 - 1),
            "sys_flag": st.sampled_from([0, int(SysFlag.COMPRESSED), int(SysFlag.MULTI_TAGS)]),
            "reconsume_times": st.integers(0, 100),
        }
    )
    return draw(st.lists(fields, max_size=12))


def put_all(store: MessageStore, messages: Iterable[dict[str, Any]]) -> None:
    for fields in messages:
        given = dict(fields)
        encoded = properties.encode(
            given.pop("named"), trailing_separator=store.format.trailing_property_separator
        )
        store.append([Message(properties=encoded, store_host=store.host, **given)], as_batch=True)


def run(command: str, root: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["store", command, str(root), *options])


def exported(root: Path, *options: str) -> list[dict[str, Any]]:
    result = run("export", root, *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def kept(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in each.items() if k not in PLACE} for each in documents]


def imported(root: Path, file: Path, *options: str) -> Result:
    result = run("import", root, str(file), *options)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """30 messages in 3 queues."""
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, 30)
    return path


@pytest.fixture
def file(root: Path, tmp_path: Path) -> Path:
    path = tmp_path / "all.jsonl"
    assert run("export", root, "--to", str(path)).exit_code == 0
    return path


@given(put_messages(), st.sampled_from(["4.9", "5.x"]))
def test_a_round_trip_keeps_everything_but_places(
    tmp_path_factory: pytest.TempPathFactory, messages: list[dict[str, Any]], store_format: str
) -> None:
    home = tmp_path_factory.mktemp("round")
    with open_store(home / "first") as store:
        put_all(store, messages)
    first = exported(home / "first")
    file = home / "file.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in first))

    with open_store(home / "second", format=StoreFormat(store_format)):
        pass  # its settings accept messages however full the disk of the tests is
    imported(home / "second", file)

    assert len(first) == len(messages)
    assert kept(exported(home / "second")) == kept(first)


def test_an_export_changes_nothing_and_selects_by_topic_time_and_key(root: Path) -> None:
    before = entries_of(root)
    everything = exported(root)
    times = [each["storeTimestamp"] for each in everything]

    assert len(everything) == 30
    assert [each["keys"] for each in exported(root, "--key", "k7", "--key", "k8")] == [
        ["k7"],
        ["k8"],
    ]
    assert exported(root, "--key", f"U{9:031d}") == everything[9:10]
    absent = run("export", root, "--topic", "U")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert "the log has no message of the topic U" in absent.stderr
    assert exported(root, "--from", str(times[-1] + 1)) == []
    assert exported(root, "--until", "1h ago") == []
    assert exported(root, "--from", "1h ago", "--until", str(times[-1] + 1)) == everything
    assert entries_of(root) == before


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--from", "yesterday"), "'yesterday' is no time"),
        (("--from", "2h ago", "--until", "3h ago"), "--from 2h ago is not before --until 3h ago"),
        (("--to", "3h ago"), "--to 3h ago is a time, and --to names a file; use --until"),
    ],
)
def test_a_wrong_time_of_an_export_is_refused_in_one_line(
    root: Path, options: tuple[str, ...], why: str
) -> None:
    result = run("export", root, *options)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert why in result.stderr


def test_a_damaged_message_is_left_out_and_counted(root: Path) -> None:
    with (root / "commitlog" / segment_name(0)).open("r+b") as log:
        log.seek(100)
        log.write(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff")

    result = run("export", root)

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 29
    assert "1 stretches of the log cannot be read" in result.stderr


def test_a_file_that_exists_is_not_replaced(root: Path, file: Path) -> None:
    before = file.read_bytes()
    result = run("export", root, "--to", str(file))
    assert (result.exit_code, file.read_bytes()) == (2, before)
    assert "exists already" in result.stderr


def test_parquet_without_pyarrow_is_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", _without("pyarrow"))
    target = tmp_path / "x.parquet"

    result = run("export", root, "--to", str(target))

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "mqstore: Parquet needs pyarrow: pip install 'mqstore-cli[parquet]'"
    ]
    assert not target.exists()


def _without(name: str) -> Any:
    real = importlib.util.find_spec
    return lambda package: None if package == name else real(package)


def test_an_import_adds_to_a_store_behind_its_messages(
    root: Path, file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    with open_store(target) as store:
        put_some(store, 6, start=100)

    result = imported(target, file)

    assert result.stdout == "30 messages stored\n"
    found = exported(target)
    times = [each["storeTimestamp"] for each in found]
    assert times == sorted(times)
    assert [each["keys"] for each in found[6:]] == [each["keys"] for each in exported(root)]
    with open_store(target) as store:
        assert store.topic("T").write_queues == 3
    assert run("verify", target, "-o", "json").exit_code == 0
    assert not StorePaths(target).import_note.exists()


def test_bad_lines_are_named_and_nothing_is_stored(file: Path, tmp_path: Path) -> None:
    lines = file.read_text().splitlines()
    lines[3] = "{"
    lines[5] = '{"topic": "T", "body": "x", "queueId": -1}'
    lines[7] = '{"body": "x"}'
    lines[9] = '{"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "body": "x"}'
    file.write_text("\n".join(lines))

    for options in ((), ("--dry-run",)):
        result = run("import", tmp_path / "new", str(file), "--create", "4.9", *options)
        assert result.exit_code == 2
        *named, summary = result.stderr.splitlines()
        assert [each.split(" of ")[0] for each in named] == [
            f"mqstore: line {number}" for number in (4, 6, 8, 10)
        ]
        assert "queueId is -1" in named[1]
        assert summary == "mqstore: 4 bad lines: nothing was stored"
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[]", "it is no object"),
        ('{"topic": "T"}', "exactly one of body and bodyBase64"),
        ('{"topic": "T", "body": "x", "bodyBase64": "eA=="}', "exactly one of"),
        ('{"topic": "T", "bodyBase64": "?"}', "bodyBase64 is no base64"),
        ('{"topic": "T", "body": "\\ud800"}', "surrogate"),
        ('{"topic": "T", "body": 1}', "body is no text"),
        ('{"topic": "a/b", "body": "x"}', "a/b"),
        ('{"topic": "T", "body": "x", "flag": 4294967296}', "flag is 4294967296"),
        ('{"topic": "T", "body": "x", "flag": true}', "flag is True"),
        ('{"topic": "T", "body": "x", "bornHost": "nowhere"}', "nowhere"),
        ('{"topic": "T", "body": "x", "properties": {"a": 1}}', "property 'a' is no text"),
        ('{"topic": "T", "body": "x", "properties": {"a": "\\u0001"}}', "0x01"),
        ('{"topic": "T", "body": "x", "keys": "k"}', "keys is no list"),
        ('{"topic": "T", "body": "x", "colour": "red"}', "colour is no field"),
        ("[" * 100_000, "it is no JSON"),
    ],
)
def test_why_a_line_is_bad(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n")

    result = run("import", tmp_path / "new", str(file), "--create", "4.9")

    assert result.exit_code == 2
    assert why in result.stderr


def test_a_short_line_has_defaults(tmp_path: Path) -> None:
    file = tmp_path / "short.jsonl"
    file.write_text('{"topic": "T", "body": "x", "tags": "a", "keys": ["k", "l"]}\n\n')

    imported(tmp_path / "new", file, "--create", "5.x", *SIZES)

    (found,) = exported(tmp_path / "new")
    assert (found["body"], found["tags"], found["keys"]) == ("x", "a", ["k", "l"])
    assert (found["queueId"], found["bornHost"]) == (0, "127.0.0.1:0")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"properties": {"a": "x" * 70_000}}, "bytes are over 32767"),
        ({"body": "x" * 400}, "over maxMessageSize (300)"),
        ({"queueId": 65_536}, "at most 65536 queues"),
    ],
)
def test_a_message_that_the_store_will_refuse_is_named_before_anything_is_stored(
    file: Path, tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    target = tmp_path / "target"
    small = CONFIG.model_copy(update={"max_message_size": 300})
    with open_store(target, small, all_settings=True) as store:
        put_some(store, 1, start=500)
    lines = file.read_text().splitlines()
    lines[10] = json.dumps(json.loads(lines[10]) | wrong)
    file.write_text("\n".join(lines))
    for options in ((), ("--dry-run",)):
        refused = run("import", target, str(file), *options)
        assert refused.exit_code == 2
        assert f"line 11 of {file}: " in refused.stderr
        assert why in refused.stderr
    assert len(exported(target)) == 1


def test_an_import_stops_at_a_message_that_the_store_refuses_and_continues_behind(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImportRules, "check", lambda *_: None)
    target = tmp_path / "target"
    small = CONFIG.model_copy(update={"max_message_size": 300})
    with open_store(target, small, all_settings=True) as store:
        put_some(store, 1, start=500)
    lines = file.read_text().splitlines()
    long = json.loads(lines[10]) | {"body": "x" * 400}
    file.write_text("\n".join([*lines[:10], json.dumps(long), *lines[11:]]))

    refused = run("import", target, str(file))

    assert refused.exit_code == 2
    assert f"line 11 of {file}" in refused.stderr
    assert "the 10 messages before it are stored" in refused.stderr
    assert len(exported(target)) == 11
    other = tmp_path / "other.jsonl"
    other.write_text(lines[0])
    assert "was interrupted" in run("import", target, str(other)).stderr
    assert imported(target, other, "--restart").stdout == "1 messages stored\n"
    assert len(exported(target)) == 12


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("none/x.jsonl", "x.jsonl.part cannot be written (No such file or directory)"),
        ("all.jsonl/x", "x.part cannot be written (Not a directory)"),
        ("/proc/x", "/proc/x.part cannot be written"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_store_is_read(
    file: Path, tmp_path: Path, to: str, why: str
) -> None:
    result = run("export", tmp_path / "no store", "--to", str(tmp_path / to))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert why in result.stderr


def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    assert run("export", tmp_path / "no store", "--to", str(tmp_path / "x.jsonl")).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("NONE",), "none does not exist: name the file of an export"),
        (("HOME",), "is no regular file: name the file of an export"),
        (("FILE", "--format", "xml"), "--format xml: choose jsonl or parquet"),
        (("FILE", "--create", "6"), "--create 6: choose 4.9 or 5.x"),
        (("FILE",), "does not exist; name a store directory, or make one by --create"),
    ],
)
def test_a_wrong_input_is_refused_in_one_line(
    file: Path, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    names = {"NONE": f"{tmp_path}/none", "HOME": str(tmp_path), "FILE": str(file)}
    result = run("import", tmp_path / "no store", *(names.get(each, each) for each in options))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert why in result.stderr
    assert not (tmp_path / "no store").exists()


def test_a_store_that_accepts_no_messages_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with open_store(target) as store:
        store.write_pause.begin("maintenance")

    result = run("import", target, str(file))

    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("mqstore: nothing was stored: ")
    assert "maintenance" in line
    assert not StorePaths(target).import_note.exists()


def test_a_full_volume_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 4 << 20) as disk:
        (disk / "ballast").write_bytes(bytes(3_900_000))
        result = run("import", disk / "target", str(file), "--create", "4.9", *SIZES)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "nothing was stored: the volume of" in line
    assert "above 90 % nothing is stored" in line


def test_a_live_store_is_refused(root: Path, file: Path) -> None:
    with open_store(root):
        result = run("import", root, str(file))
    assert result.exit_code == 2
    assert "is in use" in result.stderr


def test_what_is_no_store_is_not_made(file: Path, tmp_path: Path) -> None:
    assert run("import", tmp_path / "none", str(file)).exit_code == 2
    assert not (tmp_path / "none").exists()
