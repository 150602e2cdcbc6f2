"""Our side of the comparisons: mqstore's own store, driven by the same scripts.

The only module here that imports mqstore. As a program it runs one script and may be killed:
`python -m tests.compat.ours write|append DIR SCRIPT FORMAT`, answering as the referee does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests import forked_processes
from tests.compat.scripts import (
    Batch,
    Flush,
    Operation,
    Put,
    Script,
    Sleep,
    WaitDelayed,
    WaitDispatch,
    visible,
)
from tests.unit.storage.puts import put_batch, put_message

if TYPE_CHECKING:
    from mqstore.storage.codec.hosts import Host
    from mqstore.storage.codec.record import Message
    from mqstore.storage.layout import StoreFormat
    from mqstore.storage.log.commit_log import Placement
    from mqstore.storage.message_store import MessageStore

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180
BATCH_ITEM_HEAD = struct.Struct(">iiiii")

Line = dict[str, Any]


class OursError(Exception):
    """Our command ended otherwise than with a dump."""


def write(script: Script, directory: Path, store_format: str) -> list[Line]:
    """Make a store in `directory`; the answers to the script's puts, in order."""
    return _run(script, directory, store_format, create=True)


def append(script: Script, directory: Path, store_format: str) -> list[Line]:
    """Open the store in `directory` and run a script on it."""
    return _run(script, directory, store_format, create=False)


def close_without_index(directory: Path, config: Mapping[str, Any], store_format: str) -> None:
    """A halt takes the index, and the next opening closes before it is made again."""
    from mqstore.storage.dispatch import dispatcher as dispatch

    halted = _open(directory, config, store_format, create=False)
    halted._stop_services()
    halted._parts.running_manifest.step(0.0)
    halted._parts.directory.lock.release()
    for file in (directory / "index").iterdir():
        file.unlink()
    with patch.object(dispatch, "INDEX_PATIENCE_S", 0):
        _open(directory, config, store_format, create=False, services=False).close()


def accept_loss(directory: Path, *options: str, is_sure: bool = True) -> None:
    """Run `mqstore store accept-loss` and confirm the loss that it names; without `is_sure`, there
    may be none."""
    arguments = ["store", "accept-loss", str(directory), "-o", "json", *options]
    planned = run_command(*arguments, "--dry-run")
    if planned.code and not is_sure:
        return
    accepted = run_command(*arguments, "--confirm", planned.lines[-1]["confirm"])
    if planned.code or accepted.code:
        raise OursError(f"{planned.summary}, then {accepted.summary}")


def dump(
    directory: Path, config: Mapping[str, Any], *, queries: bool = True, whole: bool = True
) -> list[Line]:
    """Return the lines of `mqstore store dump`, which changes nothing.

    Raises OursError when the dump was refused, and, if `whole`, when it says that data is cut.
    """
    options = ["--queries"] if queries else []
    found = run_command("store", "dump", str(directory), *options, *index_sizes(config))
    if found.code not in ((0,) if whole else (0, 1)) or found.lines[0]["t"] != "recovered":
        raise OursError(f"dump of {directory}: {found.summary}")
    return found.lines


def verify(directory: Path, config: Mapping[str, Any]) -> tuple[list[Line], Line]:
    """Return the findings and the summary of `mqstore store verify`, which changes nothing."""
    found = run_command("store", "verify", str(directory), "-o", "json", *index_sizes(config))
    if not found.lines or found.code != bool(found.lines[-1]["findings"]):
        raise OursError(f"verify of {directory}: {found.summary}")
    return found.lines[:-1], found.lines[-1]


def index_sizes(config: Mapping[str, Any]) -> list[str]:
    """Return the options of a command for the index sizes that `config` has."""
    names = (("--hash-slots", "maxHashSlotNum"), ("--index-num", "maxIndexNum"))
    return [f"{option}={config[name]}" for option, name in names if name in config]


@dataclass(frozen=True)
class CommandResult:
    """The result of a `mqstore` command: exit code, lines of JSON, text of stderr."""

    code: int
    lines: list[Line]
    errors: str

    @property
    def summary(self) -> str:
        """The exit code, the first and the last line, and the end of stderr."""
        ends = self.lines if len(self.lines) < 3 else [self.lines[0], self.lines[-1]]
        return f"exit code {self.code}, {ends}, {self.errors[-4000:]!r}"


def run_command(*arguments: str) -> CommandResult:
    """Run a `mqstore` command in this process, as its console script does.

    Raises what the command raises besides SystemExit.
    """
    from typer.testing import CliRunner

    from mqstore.cli.main import app

    umask = os.umask(0o077)
    try:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    finally:
        os.umask(umask)
    lines = [json.loads(line) for line in done.stdout_bytes.splitlines()]
    return CommandResult(done.exit_code, lines, done.stderr)


def clean(directory: Path, config: Mapping[str, Any], store_format: str, *, rounds: int) -> Line:
    """Run rounds of the cleaner by hand, as ``Referee.clean`` does; the clock stands still."""
    from tests.simulation.clock import SimulatedClock
    from tests.simulation.scheduler import SimulatedScheduler

    clock = SimulatedClock(time.time_ns() // 1_000_000)
    scheduler = SimulatedScheduler(random.Random(0), clock)
    store = _open(directory, config, store_format, create=False, clock=clock, scheduler=scheduler)
    with store:
        store.run_retention()
        scheduler.run_for((rounds - 0.1) * store.config.clean_resource_interval / 1000)
        status = store.status()
        return {"minPhyOffset": status.min_offset, "maxPhyOffset": status.max_offset}


def command() -> str:
    """The installed `mqstore`."""
    beside = Path(sys.executable).with_name("mqstore")
    installed = ROOT / ".venv" / "bin" / "mqstore"
    found = shutil.which(str(beside)) or shutil.which(str(installed))
    assert found is not None, "no mqstore command; run `make setup`"
    return found


def _run(script: Script, directory: Path, store_format: str, *, create: bool) -> list[Line]:
    if script.halts:
        return _run_halting(script, directory, store_format, create=create)
    answers: list[Line] = []
    store = _open(directory, script.config, store_format, create=create)
    try:
        _operate(store, script.operations, answers.append)
    finally:
        store.close()
    return answers


def _run_halting(script: Script, directory: Path, store_format: str, *, create: bool) -> list[Line]:
    file = directory.with_name(directory.name + ".script.jsonl")
    file.write_text(script.to_json_lines(), encoding="utf-8")
    verb = "write" if create else "append"
    process = forked_processes.start(__name__, verb, str(directory), str(file), store_format)
    output, errors = process.communicate(TIMEOUT_S)
    if process.returncode != -signal.SIGKILL:
        raise OursError(f"exit {process.returncode}\n{errors[-4000:]}")
    whole = [raw for raw in output.splitlines(keepends=True) if raw.endswith("\n")]
    return [json.loads(raw) for raw in whole]


def _open(
    directory: Path,
    config: Mapping[str, Any],
    store_format: str,
    *,
    create: bool,
    services: bool = True,
    **seams: Any,
) -> MessageStore:
    from mqstore.storage.config import StoreConfig
    from mqstore.storage.layout import StoreFormat
    from mqstore.storage.message_store import MessageStore, StoreOptions
    from mqstore.storage.system.threads import production_seams

    given = dict(config)
    options = StoreOptions(
        format=StoreFormat(store_format),
        create=create,
        services=services,
        deliver_delayed=bool(given.pop("deliverDelayed", False)),
    )
    settings = StoreConfig.model_validate(given)
    return MessageStore.open(directory, settings, replace(production_seams(), **seams), options)


def _operate(
    store: MessageStore, operations: Sequence[Operation], answer: Callable[[Line], None]
) -> None:
    for index, operation in enumerate(operations):
        match operation:
            case Put():
                answer(_answer(index, [put_message(store, _message(operation, store.format))]))
            case Batch():
                answer(_answer(index, put_batch(store, _messages(operation, store.format))))
            case Flush():
                store.flush.wait(store.flush.request(store.status().max_offset), 10)
            case Sleep(ms):
                threading.Event().wait(ms / 1000)
            case WaitDispatch():
                while store.status().dispatched_offset < store.status().max_offset:
                    threading.Event().wait(0.001)
            case WaitDelayed():
                while any(level.pending for level in store.delays.status()):
                    threading.Event().wait(0.001)


def _answer(index: int, placements: Sequence[Placement]) -> Line:
    first = placements[0]
    return {
        "t": "put",
        "op": index,
        "status": "PUT_OK",
        "msgId": ",".join(placement.offset_message_id for placement in placements),
        "off": first.physical_offset,
        "size": sum(placement.size for placement in placements),
        "qoff": first.queue_offset,
        "count": len(placements),
        "storeTs": first.store_timestamp_ms,
    }


def _message(put: Put, store_format: StoreFormat) -> Message:
    from mqstore.storage.codec.record import Message

    if put.properties_raw is not None:
        encoded = put.properties_raw.encode()
    else:
        encoded = _encoded(visible(put.properties), store_format.trailing_property_separator)
    return Message(
        topic=put.topic,
        queue_id=put.queue_id,
        body=put.body,
        properties=encoded,
        born_host=_host(put.born_host),
        store_host=_host(put.store_host),
        born_timestamp_ms=put.born_timestamp_ms,
        flag=put.flag,
        sys_flag=put.sys_flag,
        reconsume_times=put.reconsume_times,
        prepared_transaction_offset=put.prepared_transaction_offset,
    )


def _messages(batch: Batch, store_format: StoreFormat) -> list[Message]:
    """As a 4.9 store reads them: the batch's own properties follow those of each message."""
    template = _message(
        Put(
            topic=batch.topic,
            queue_id=batch.queue_id,
            properties=None,
            sys_flag=batch.sys_flag,
            born_timestamp_ms=batch.born_timestamp_ms,
            born_host=batch.born_host,
            store_host=batch.store_host,
            reconsume_times=batch.reconsume_times,
        ),
        store_format,
    )
    own, trailing = _encoded(visible(batch.properties), False), store_format.writes_v2_records
    return [
        template.replace(
            flag=part.flag,
            body=part.body,
            properties=_joined(
                _encoded(visible(part.properties), store_format.trailing_property_separator),
                b"" if trailing else own,
            ),
        )
        for part in batch.parts
    ]


def _joined(properties: bytes, more: bytes) -> bytes:
    between = b"\x02" if properties and more and not properties.endswith(b"\x02") else b""
    return properties + between + more


def _encoded(properties: Mapping[str, str] | None, trailing_separator: bool) -> bytes:
    from mqstore.storage.codec import properties as codec

    return codec.encode(properties or {}, trailing_separator=trailing_separator)


def _host(text: str) -> Host:
    from mqstore.storage.codec.hosts import Host

    address, port = text.rsplit("|", 1)
    return Host.parse(address, int(port))


def _main(verb: str, directory: str, file: str, store_format: str) -> None:
    script = Script.from_json_lines(Path(file).read_text(encoding="utf-8"))
    store = _open(Path(directory), script.config, store_format, create=verb == "write")
    puts = threading.Semaphore(0)

    def answer(line: Line) -> None:
        print(json.dumps(line), flush=True)
        puts.release()

    def kill_after_puts() -> None:
        for _ in range(script.halt_after_puts):
            puts.acquire()
        os.kill(os.getpid(), signal.SIGKILL)

    if script.end == "haltMidWrite":
        threading.Thread(target=kill_after_puts, daemon=True).start()
    _operate(store, script.operations, answer)
    if script.halts:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
