"""Runs ``mqstore store import``: checks every line of a file, then stores the messages."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqstore.cli.exit_codes import EXIT_OK, EXIT_REFUSED, refuse
from mqstore.cli.message_documents import Imported, identity_of, imported_of
from mqstore.cli.message_files import FileForm, form_of, read, require_regular
from mqstore.cli.message_selection import Selection
from mqstore.cli.progress import Progress, show_progress
from mqstore.cli.store_command import index_sizes, run_command
from mqstore.storage import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import (
    PROPERTY_KEYS,
    PROPERTY_UNIQ_KEY,
    Record,
    StoreFormat,
    crc32c,
)
from mqstore.storage.host import production_seams
from mqstore.storage.puts import ImportRules, MessageImport, open_import
from mqstore.storage.topic_names import is_system_topic

NAMED_MAX: Final = 20
"""Bad lines that are named; the others are counted."""
_SAMPLE: Final = 1 << 20
"""Bytes at each end of a file by which it is recognized."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The file, the messages and the target of an import, as given."""

    file: Path
    form: str | None
    topics: list[str] | None
    from_time: str | None
    until_time: str | None
    keys: list[str] | None
    create: str | None
    restart: bool
    dry_run: bool


@dataclass(slots=True)
class Survey:
    """The content of a file."""

    count: int = 0
    bad: int = 0
    named: list[str] = field(default_factory=list)
    """The first bad lines, and why."""
    queues: Counter[str] = field(default_factory=Counter)
    """By topic, the number of queues."""
    first_ms: int = 0
    """Store time of the first message."""

    def refuse(self) -> int:
        """Print the bad lines; the exit code."""
        for line in self.named:
            refuse(line)
        if self.bad > len(self.named):
            refuse(f"and {self.bad - len(self.named)} more")
        refuse(f"{self.bad} bad lines: nothing was stored")
        return EXIT_REFUSED


class Source:
    """The selected messages of one file; may be read repeatedly."""

    def __init__(self, path: Path, form: FileForm, selection: Selection, now_ms: int) -> None:
        self.path = path
        self._form = form
        self._selection = selection
        self._now_ms = now_ms

    @property
    def name(self) -> str:
        """Identifies content and selection. Raises OSError."""
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            checksum = crc32c(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            checksum = crc32c(file.read(_SAMPLE), checksum)
        chosen = str(self._selection)
        named = f"{self.path.name} ({size} bytes, CRC-32C {checksum:08x})"
        return f"{named}, {chosen}" if chosen else named

    def messages(self, store_format: StoreFormat) -> Iterator[tuple[int, Imported | ValueError]]:
        """Yield each selected message with the number of its line, or why it is none."""
        for number, document in read(self.path, self._form):
            if isinstance(document, ValueError):
                yield number, document
                continue
            try:
                found = imported_of(document, store_format, self._now_ms)
            except ValueError as error:
                yield number, error
                continue
            if self._is_selected(found):
                yield number, found

    def _is_selected(self, found: Imported) -> bool:
        keys = {*found.properties.get(PROPERTY_KEYS, "").split()}
        keys.add(found.properties.get(PROPERTY_UNIQ_KEY, ""))
        return self._selection.has(found.topic, found.store_ms, keys)

    def survey(self, rules: ImportRules, progress: Progress) -> Survey:
        """Read and check the whole file, by the rules of the store."""
        survey = Survey()
        for number, found in self.messages(rules.format):
            progress("check", number, 0)
            why = _why_bad(found, rules)
            if why is not None:
                survey.bad += 1
                if len(survey.named) < NAMED_MAX:
                    survey.named.append(f"line {number} of {self.path}: {why}")
            elif isinstance(found, Imported):
                survey.first_ms = survey.first_ms or found.store_ms
                survey.count += 1
                survey.queues[found.topic] = max(survey.queues[found.topic], found.queue_id + 1)
        return survey


def _why_bad(found: Imported | ValueError, rules: ImportRules) -> str | None:
    if isinstance(found, ValueError):
        return str(found)
    if is_system_topic(found.topic, rules.format):
        return f"topic {found.topic} is RocketMQ's own, and holds offsets of its store"
    try:
        rules.check(found.message(rules.format, found.born_host))
    except (StorageError, ValueError) as error:
        return str(error)
    return None


def run(directory: Path, choice: Choice, hash_slots: int | None, index_num: int | None) -> int:
    """Check and store all selected messages; the exit code."""
    return run_command(
        lambda: _run(directory.absolute(), choice, index_sizes(hash_slots, index_num)),
        refuse,
        unread=EXIT_OK,
    )


def _run(root: Path, choice: Choice, config: StoreConfig) -> int:
    seams = production_seams()
    selection = Selection.of(choice.topics, choice.from_time, choice.until_time, choice.keys)
    form = form_of(choice.file, choice.form)
    require_regular(choice.file)
    source = Source(choice.file, form, selection, seams.clock.now_ms())
    create = _format_of(choice.create)
    if create is None and not root.exists():
        raise ValueError(f"{root} does not exist; name a store directory, or make one by --create")
    with show_progress() as progress:
        rules = ImportRules.of(seams.files, root, config, create)
        survey = source.survey(rules, progress)
        if survey.bad:
            return survey.refuse()
        if choice.dry_run:
            print(f"would store {survey.count} messages of {len(survey.queues)} topics")
            return EXIT_OK
        target = open_import(
            root,
            config,
            seams,
            source.name,
            first_ms=survey.first_ms,
            create=create,
            restarts=choice.restart,
        )
        with target as opened:
            opened.make_topics(survey.queues)
            run = Storing(opened, source, survey)
            run.store(progress)
    print(f"{run.done} messages stored" + (f", {run.before} of them before" if run.before else ""))
    sys.stdout.flush()
    return EXIT_OK


def _format_of(text: str | None) -> StoreFormat | None:
    if text is not None and text not in set(StoreFormat):
        raise ValueError(f"--create {text}: choose {' or '.join(StoreFormat)}")
    return None if text is None else StoreFormat(text)


class Storing:
    """The storing of one file's messages."""

    def __init__(self, target: MessageImport, source: Source, survey: Survey) -> None:
        self._target = target
        self._source = source
        self._survey = survey
        self.done = self.before = 0
        """Messages that are stored, and those of them that an interrupted import stored."""

    def store(self, progress: Progress) -> None:
        """Store the messages behind those that are stored. Raises ValueError, StorageError."""
        stored = self._target.stored()
        for number, found in self._source.messages(self._target.format):
            progress("import", self.done, self._survey.count)
            if isinstance(found, ValueError):
                raise self._stopped(number, found)
            known = next(stored, None)
            if known is not None:
                self._require_same(number, found, known)
                self.before += 1
            else:
                self._put(number, found)
            self.done += 1

    def _require_same(self, number: int, found: Imported, known: Record) -> None:
        if identity_of(known) != found.identity:
            raise ValueError(
                f"line {number} of {self._source.path} is not the message at offset "
                f"{known.physical_offset}, where an interrupted import stored it: the store was "
                "written to since; give --restart to import the whole file once more"
            )

    def _put(self, number: int, found: Imported) -> None:
        try:
            message = found.message(self._target.format, self._target.host)
            self._target.put(message, found.store_ms)
        except (StorageError, OSError, ValueError) as error:
            raise self._stopped(number, error) from error

    def _stopped(self, number: int, why: Exception) -> ValueError:
        return ValueError(
            f"line {number} of {self._source.path}: {why}; the {self.done} messages before it are "
            "stored, and the same command continues behind them"
        )
