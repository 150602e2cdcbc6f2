"""Looks up the states of the table in one store directory. Reads only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.storage.errors import GroupNameError, StoreUnsupported
from mqstore.storage.inventory import states
from mqstore.storage.inventory.state import Content, State, Subject, Verdict
from mqstore.storage.inventory.states import ALL
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.tables import table_text
from mqstore.storage.topic_names import check_group

_DEPTH_MAX: Final = 4
"""Directories below the one of a state, in which files are looked for."""
_DEEPER: Final = [
    state.shown
    for state in ALL
    if state.subject is Subject.FILE
    and "/" in state.shown
    and not state.shown.startswith("config/")
]
_SHOWN_MAX: Final = 5
"""Topics and groups that a report names."""
_SYSTEM_PREFIX: Final = "rmq_sys_"
_SPECIAL_TOPIC: Final = re.compile(
    "|".join([_SYSTEM_PREFIX, *(f"(?:{s.pattern})" for s in ALL if s.subject is Subject.TOPIC)])
)
_ROCKSDB_TABLE: Final = ".sst"
_ROCKSDB_LOG: Final = ".log"
TOPICS_MEMBER: Final = "topicConfigTable"
GROUPS_MEMBER: Final = "subscriptionGroupTable"
_ATTRIBUTES: Final = "attributes"
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})


class _TableSubjects(NamedTuple):
    field: Subject
    attribute: Subject
    noun: str


_TOPIC_SUBJECTS: Final = _TableSubjects(Subject.TOPIC_FIELD, Subject.TOPIC_ATTRIBUTE, "topic")
_GROUP_SUBJECTS: Final = _TableSubjects(Subject.GROUP_FIELD, Subject.GROUP_ATTRIBUTE, "group")


@dataclass(frozen=True, slots=True)
class Found:
    """One state of one store, or something that the table does not have."""

    state: State | None
    subject: Subject
    where: str
    """Path below the root, or names of topics or groups."""

    @property
    def verdict(self) -> Verdict:
        """The state's; what the table does not have is named."""
        return Verdict.NAMED if self.state is None else self.state.verdict

    @property
    def what(self) -> str:
        """Description of the state, and of what is done about it."""
        if self.state is None:
            return "not known to mqstore, left unchanged"
        return f"{self.state.holds} ({self.state.name}); {self.state.action}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def survey(files: FileSystem, paths: StorePaths) -> list[Found]:
    """Return what is refused or named of a store, refused first.

    Tables that cannot be read are left out: the opening has errors of its own for them. Raises
    OSError.
    """
    found = [
        *_files(files, paths),
        *survey_topics(_entries(files, paths.config / "topics.json", TOPICS_MEMBER)),
        *survey_groups(_entries(files, paths.config / "subscriptionGroup.json", GROUPS_MEMBER)),
    ]
    return sorted(found, key=lambda each: each.verdict is not Verdict.REFUSED)


def survey_topics(topics: Mapping[str | int, object]) -> list[Found]:
    """Return what is refused or named of topics, as ``topics.json`` or a leader has them."""
    return [*_topics(map(str, topics)), *_members(topics, _TOPIC_SUBJECTS)]


def survey_groups(groups: Mapping[str | int, object]) -> list[Found]:
    """Return what is refused or named of groups, as ``subscriptionGroup.json`` or a leader has
    them."""
    return list(_members(groups, _GROUP_SUBJECTS))


def with_verdict(found: Iterable[Found], verdict: Verdict) -> list[Found]:
    """Return those of one verdict."""
    return [each for each in found if each.verdict is verdict]


def refuse(found: Iterable[Found], root: Path) -> None:
    """Raise StoreUnsupported where one is refused, with all that are."""
    refused = list(map(str, with_verdict(found, Verdict.REFUSED)))
    if refused:
        raise StoreUnsupported(
            f"{root} has what mqstore cannot serve, and was not changed: {'. '.join(refused)}"
        )


def _files(files: FileSystem, paths: StorePaths) -> Iterator[Found]:
    for name in _paths(files, paths):
        state = _state_of_file(files, paths.root, name)
        if state is None or state.verdict is not Verdict.READ:
            yield Found(state, Subject.FILE, name)


def _paths(files: FileSystem, paths: StorePaths) -> Iterator[str]:
    """Yield what lies in the root and in ``config/``, and deeper paths of the table."""
    for name in files.list(paths.root):
        if name != paths.config.name:
            yield name
    yield from (f"config/{name}" for name in files.list(paths.config))
    for name in _DEEPER:
        if files.stat(paths.root / name) is not None:
            yield name


def _state_of_file(files: FileSystem, root: Path, name: str) -> State | None:
    for state in ALL:
        if (
            state.subject is Subject.FILE
            and state.matches(name)
            and _has(files, root / name, state)
        ):
            return state
    return None


def _has(files: FileSystem, path: Path, state: State) -> bool:
    match state.content:
        case Content.ANY:
            return True
        case Content.FILES:
            return _has_file(files, path, _DEPTH_MAX)
        case Content.ROCKSDB:
            return any(_is_rocksdb_data(files, path / name) for name in files.list(path))
        case Content.COMPARED:
            return False
        case Content.MEMBERS:
            return any(_entries(files, path, member) for member in state.members)


def _has_file(files: FileSystem, directory: Path, depth: int) -> bool:
    for name in files.list(directory):
        stat = files.stat(directory / name)
        if stat is not None and not stat.is_directory:
            return True
        if depth and _has_file(files, directory / name, depth - 1):
            return True
    return False


def _is_rocksdb_data(files: FileSystem, path: Path) -> bool:
    stat = files.stat(path)
    return path.suffix == _ROCKSDB_TABLE or (
        path.suffix == _ROCKSDB_LOG and stat is not None and stat.size > 0
    )


def _entries(files: FileSystem, path: Path, member: str) -> Mapping[str | int, object]:
    """Return a member of a JSON file; empty where it is missing or cannot be read."""
    try:
        found = (table_text.load(files, path) or {}).get(member)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _topics(names: Iterable[str]) -> Iterator[Found]:
    for name in names:
        if not _SPECIAL_TOPIC.match(name):  # nearly all, of which a store may have many
            continue
        state = states.find(Subject.TOPIC, name)
        is_unknown = state is None and name.startswith(_SYSTEM_PREFIX)
        if is_unknown or (state is not None and state.verdict is not Verdict.READ):
            yield Found(state, Subject.TOPIC, f"topic {name}")


def _members(tables: Mapping[str | int, object], of: _TableSubjects) -> Iterator[Found]:
    """Yield one for each field and each attribute, with the topics or groups that have it."""
    fields: dict[str, list[str]] = {}
    attributes: dict[str, list[str]] = {}
    for name, entry in tables.items():
        for field, value in entry.items() if isinstance(entry, dict) else ():
            if field == _ATTRIBUTES and isinstance(value, dict):
                for key, each in value.items():
                    attributes.setdefault(f"{key}={each}", []).append(str(name))
            elif value not in _NOTHING and not _is_ordinary_name(field, value):
                text = json.dumps(value, separators=(",", ":"), sort_keys=True)
                fields.setdefault(f"{field}={text}", []).append(str(name))
    yield from _of_many(fields, of.field, of.noun)
    yield from _of_many(attributes, of.attribute, of.noun)


def _is_ordinary_name(field: str, value: object) -> bool:
    """Whether a field is the name of a topic, or of a group that requests may name."""
    if field != "groupName":
        return field == "topicName"
    try:
        check_group(str(value))
    except GroupNameError:
        return False
    return True


def _of_many(names: Mapping[str, list[str]], subject: Subject, noun: str) -> Iterator[Found]:
    for text, of in names.items():
        state = states.find(subject, text)
        if state is None or state.verdict is not Verdict.READ:
            more = f" and {len(of) - _SHOWN_MAX} more" if len(of) > _SHOWN_MAX else ""
            plural = "s" if len(of) > 1 else ""
            yield Found(
                state, subject, f"{text} of {noun}{plural} {', '.join(of[:_SHOWN_MAX])}{more}"
            )
