"""Recipes by which a real broker leaves the states of the inventory in a store; and the states that
no broker here can leave, with the reason."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqstore.storage import inventory
from mqstore.storage.inventory import Subject, Verdict, states
from mqstore.storage.paths import StorePaths
from tests.compat import ours
from tests.compat.referee import Referee, StatesBroker
from tests.free_ports import free_port
from tests.unit.storage.stores import FILES

SIZES: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
TOPIC: Final = "orders"

survey: Final = importlib.import_module("mqstore.storage.inventory.survey")
_TOPIC_SUBJECTS: Final = {
    "name": Subject.TOPIC,
    "field": Subject.TOPIC_FIELD,
    "attribute": Subject.TOPIC_ATTRIBUTE,
}
_GROUP_SUBJECTS: Final = {
    "field": Subject.GROUP_FIELD,
    "attribute": Subject.GROUP_ATTRIBUTE,
}

UNWRITTEN: Final = {
    "transactions-of-3": "a RocketMQ 3 writes it",
    "lmq-store": "RocketMQ-MQTT writes it",
    "lmq-store-none": "RocketMQ-MQTT writes it",
    "file-system": "the operating system writes it",
    "ours": "mqstore writes it",
    "lost-log": "stores of test_lost_logs.py have it: the log of a broker is moved away",
    "host-v6": "stores of test_referee_writes.py have it: clients of a broker here use IPv4",
    "tables-in-rocksdb-none": "a broker that makes the RocksDB writes tables into it",
}
"""States that no recipe leaves, with the reason."""


@dataclass(frozen=True)
class Recipe:
    """Settings of a broker, and what it is made to do; ``leaves`` is all that is not read."""

    name: str
    version: str
    settings: Mapping[str, Any]
    make: Callable[[StatesBroker], None]
    leaves: frozenset[str]
    reads: frozenset[str] = field(default_factory=frozenset)
    """States with the verdict read that only this recipe leaves."""

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def config(self) -> dict[str, Any]:
        """All settings of the broker."""
        return {**SIZES, **self.settings}


def states_of(root: Path) -> set[str]:
    """Return the names of all states of a store, whatever their verdict; those of its records only
    where no other one is refused."""
    paths = StorePaths(root)
    found = set(_in_files(paths))
    found.update(_in_table(paths, "topics.json", "topicConfigTable", _TOPIC_SUBJECTS))
    found.update(
        _in_table(paths, "subscriptionGroup.json", "subscriptionGroupTable", _GROUP_SUBJECTS)
    )
    if not found & with_verdict(Verdict.REFUSED):
        found.update(_in_records(root))
    return found


def _in_files(paths: StorePaths) -> Iterator[str]:
    for path in survey._paths(FILES, paths):
        found = survey._state_of_file(FILES, paths.root, path)
        yield f"unknown file {path}" if found is None else found.name


def _in_table(
    paths: StorePaths, file: str, member: str, subjects: Mapping[str, Subject]
) -> Iterator[str]:
    """Yield the states of names, of fields and of attributes."""
    for name, entry in survey._entries(FILES, paths.config / file, member).items():
        assert isinstance(entry, dict)
        system = states.find(Subject.TOPIC, str(name)) if "name" in subjects else None
        if system is not None:
            yield system.name
        for key, value in entry.items():
            if key == "attributes":
                texts = [f"{one}={each}" for one, each in value.items()]
                yield from (_name_of(subjects["attribute"], text) for text in texts)
            elif value not in (None, "", [], {}):
                text = json.dumps(value, separators=(",", ":"), sort_keys=True)
                yield _name_of(subjects["field"], f"{key}={text}")


def _in_records(root: Path) -> Iterator[str]:
    """Yield the states of flags and properties; properties of a producer's own have none."""
    for line in ours.dump(root, SIZES, queries=False, whole=False):
        if line["t"] != "msg":
            continue
        for name in line["props"] or ():
            found = states.find(Subject.PROPERTY, name)
            if found is not None:
                yield found.name
        for flag in (each for each in inventory.ALL if each.subject is Subject.RECORD_FLAG):
            if any(line["sysFlag"] & int(bits, 16) for bits in flag.shown.split(", ")):
                yield flag.name


def _name_of(subject: Subject, text: str) -> str:
    found = states.find(subject, text)
    return f"unknown {subject} {text}" if found is None else found.name


def expected(version: str) -> set[str]:
    """Return the names of the states that a broker of a version may leave."""
    line = "4.9" if version.startswith("4.") else "5.x"
    return {each.name for each in inventory.ALL if line in each.versions}


def with_verdict(verdict: Verdict) -> set[str]:
    """Return the names of the states with a verdict."""
    return {each.name for each in inventory.ALL if each.verdict is verdict}


def plain(broker: StatesBroker) -> None:
    """Messages, of which a group has read some."""
    broker.do("topic", name=TOPIC, queues=2)
    broker.do("send", topic=TOPIC, bodies=["a", "b", "c"])
    broker.do("pull", group="reader", topic=TOPIC, count=1)


def other_topics(broker: StatesBroker) -> None:
    """Topics whose queues are no plain ones: of batches, compacted, and static."""
    broker.do("topic", name="batches", queues=1, attributes={"queue.type": "BatchCQ"})
    broker.do("send", topic="batches", bodies=["b1", "b2"], queue=0, batch=True)
    broker.do("topic", name="newest", queues=1, attributes={"cleanup.policy": "COMPACTION"})
    broker.do("send", topic="newest", bodies=["n1", "n2"])
    broker.do("topic", name="mapped", queues=1)
    broker.do("make", what="static-topic", topic="mapped")


def _other_stores(broker: StatesBroker) -> None:
    """Queues of other types, and in RocksDB timed messages, half messages, index and POP."""
    plain(broker)
    other_topics(broker)
    broker.do("send", topic=TOPIC, bodies=["later"], delayMs=60_000)
    broker.do("transact", topic=TOPIC, sends={"half": "unknown"}, visible=3)
    broker.do("pop", group="popper", topic=TOPIC, bodies=["a"], ack=["b"], invisibleMs=60_000)


def _with_names(broker: StatesBroker) -> None:
    """States that mqstore serves a store without."""
    broker.do("make", what="broker-properties")
    broker.do("make", what="group-policies", group="with.policies")
    broker.do("topic", name="tagged", queues=1, multiTag=True)
    broker.do("send", topic="tagged", bodies=["t" * 5000], properties={"__SHARDINGKEY": "k"})


def _with_names_of_5(broker: StatesBroker) -> None:
    _with_names(broker)
    attributes = {"message.type": "FIFO", "queue.type": "SimpleCQ", "reserve.time": "72"}
    broker.do("topic", name="attributed", queues=1, attributes=attributes)
    broker.do("topic", name="priorities", queues=2, attributes={"message.type": "PRIORITY"})
    broker.do("send", topic="priorities", bodies=["p"], properties={"_SYS_MSG_PRIORITY_": "1"})
    broker.do("make", what="user")
    broker.do("make", what="request-mode", topic=TOPIC, group="by-pop")
    broker.do("make", what="static-subscription", topic=TOPIC, group="by-pop")
    broker.do("make", what="static-topic-deleted", topic="mapped")
    broker.do("topic", name="batches", queues=1, attributes={"queue.type": "BatchCQ"})
    broker.do("send", topic="batches", bodies=["b1", "b2"], queue=0, batch=True)
    broker.do("make", what="topic-deleted", topic="batches")


_FILTERS: Final = {
    "enableConsumeQueueExt": True,
    "enableCalcFilterBitMap": True,
    "enablePropertyFilter": True,
    "traceTopicEnable": True,
}
_PROVIDER: Final = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
_USERS: Final = {
    "authenticationMetadataProvider": _PROVIDER.format("authentication", "Authentication"),
    "authorizationMetadataProvider": _PROVIDER.format("authorization", "Authorization"),
}
_NAMED_OF_5: Final = frozenset(
    {
        "acl",
        "broker-properties",
        "inner-batch",
        "inner-batch-size",
        "odd-group-name",
        "ordered-pop",
        "own-retry-policy",
        "priority",
        "priority-factor",
        "priority-topic",
        "request-modes",
        "reserve-time",
        "static-subscription",
    }
)
LIVES: Final = (
    Recipe(
        "ordinary",
        "4.9.7",
        _FILTERS,
        _with_names,
        frozenset({"broker-properties", "odd-group-name"}),
    ),
    Recipe(
        "ordinary",
        "5.4.0",
        {**_FILTERS, **_USERS, "popConsumerKVServiceInit": True, "enabledAppendPropCRC": True},
        _with_names_of_5,
        _NAMED_OF_5,
    ),
    *(
        Recipe(
            "light-queues",
            version,
            {"enableLmq": True, "enableMultiDispatch": True},
            lambda _: None,
            frozenset({"ordered-pop"} if version == "5.4.0" else ()),
            reads=frozenset({"lmq-offsets", "multi-dispatch", "abort"}),
        )
        for version in ("4.9.7", "5.4.0")
    ),
    Recipe(
        "timer-snapshots",
        "5.4.0",
        {"timerWheelSnapshotFlush": True, "timerWheelSnapshotIntervalMs": 100},
        lambda _: None,
        frozenset({"ordered-pop"}),
        reads=frozenset({"timer-snapshot"}),
    ),
    Recipe(
        "controller",
        "5.4.0",
        {"enableControllerMode": True},
        lambda _: None,
        frozenset({"controller", "ordered-pop"}),
    ),
)
"""Stores that are opened here and handed back. ``ordinary`` leaves each state that no other recipe
of its version does; a broker is killed where ``abort`` is to be left."""


def left_by_others(version: str) -> set[str]:
    """Return the states that recipes of a version leave besides the ordinary one."""
    found = (each for each in (*LIVES, *REFUSED) if each.version == version)
    return {name for each in found if each.name != "ordinary" for name in each.leaves | each.reads}


REFUSED: Final = (
    Recipe(
        "other-stores",
        "5.4.0",
        {
            "popConsumerKVServiceEnable": True,
            "popConsumerKVServiceInit": True,
            "transRocksDBEnable": True,
            "transWriteOriginTransHalfEnable": False,
            "timerRocksDBEnable": True,
            "indexRocksDBEnable": True,
        },
        _other_stores,
        frozenset(
            {
                "batch-queues",
                "batch-topic",
                "compacted-topic",
                "compaction",
                "pop-in-rocksdb",
                "static-topics",
                "timers-in-rocksdb",
                "transactions-in-rocksdb",
            }
        ),
    ),
    Recipe(
        "rocksdb",
        "5.4.0",
        {"storeType": "defaultRocksDB"},
        plain,
        frozenset({"queues-in-rocksdb", "tables-in-rocksdb"}),
    ),
    Recipe(
        "tables-v2",
        "5.4.0",
        {"configManagerVersion": "v2"},
        plain,
        frozenset({"tables-of-v2"}),
    ),
    Recipe(
        "both-queues",
        "5.4.0",
        {"rocksdbCQDoubleWriteEnable": True},
        plain,
        frozenset({"queues-in-rocksdb"}),
    ),
    Recipe(
        "tiered",
        "5.4.0",
        {
            "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
            "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider"
            ".PosixFileSegment",
            "tieredStoreGroupCommit": False,
        },
        plain,
        frozenset({"tiered"}),
        reads=frozenset({"tiered-none"}),
    ),
    *(
        Recipe(
            "dledger",
            version,
            {
                "enableDLegerCommitLog": True,
                "dLegerGroup": "group",
                "dLegerPeers": "n0-127.0.0.1:{port}",
                "dLegerSelfId": "n0",
            },
            plain,
            frozenset({"dledger"}),
        )
        for version in ("4.9.7", "5.4.0")
    ),
)


def settings_of(recipe: Recipe, store: Path) -> dict[str, Any]:
    """Return all settings of a recipe's broker of a store."""
    found = recipe.config
    if recipe.name == "dledger":
        found["dLegerPeers"] = f"n0-127.0.0.1:{free_port()}"
    if recipe.name == "tiered":
        found["tieredStoreFilePath"] = str(store.with_name("tier"))
    return found


def write(referee: Referee, recipe: Recipe, store: Path) -> None:
    """Leave the states of a recipe in a store."""
    with referee.states(store, settings_of(recipe, store)) as broker:
        recipe.make(broker)
        broker.end()
