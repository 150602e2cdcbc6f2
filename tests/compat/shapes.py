"""Random stores: hypothesis draws a `Shape` and a seed, `expand` makes the script of them.

Hypothesis cannot draw 200 whole messages itself; a seeded generator can, and the pair (seed, shape)
in a failure report is all that is needed to make the same store again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.compat.scripts import Batch, Operation, Part, Properties, Put, Script

# Java's String.hashCode is equal for all of these.
COLLIDING = ("AaAa", "BBBB", "AaBB", "BBAa")
TAGS = (*COLLIDING, "TagA", "größe", "标签", "\U0001f600", "x" * 40, "a||b")
KEYS = (*COLLIDING, "order-1", "order-2", "Ключ", "\U0001f511key", "k" * 120)
TOPICS = ("TopicTest", "%RETRY%group-a", "TOPIC-with_all|chars%1", "t", "L" * 127)
NAMES = ("color", "größe", "имя", "\U0001f40d", "__internal", "a b", "REAL")
VALUES = ("red", "", "ß" * 30, "\U0001f600\U0001f601", "1", "a\tb", "line\nbreak", "x" * 300)
IPV4 = ("10.200.8.62|13717", "127.0.0.1|10911", "0.0.0.0|0", "255.255.255.255|65535")
IPV6 = ("fdf6:8534:ea1e:6cbe:5001:f255:ca74:912c|50568", "::1|10911", "2001:db8::8:800:200c:417a|1")
ORDINARY_SYS_FLAGS = (0, 0, 0, 0, 1, 2)
TRANSACTION_SYS_FLAGS = (0x4, 0x8, 0xC)
# Any 64 or 32 bits may stand in these fields.
LONGS = (0, 1, -1, 2**63 - 1, -(2**63), 1_700_000_000_000)
INTS = (0, 0, 0, 1, -1, 2**31 - 1, -(2**31))


@dataclass(frozen=True)
class Shape:
    """The kind of a store; the `…_percent` are shares of the operations."""

    messages: int = 40
    segment_bytes: int = 64 * 1024
    queue_file_entries: int = 20
    hash_slots: int = 31
    index_num: int = 64
    topics: int = 3
    queues: int = 2
    batch_percent: int = 20
    ipv6_percent: int = 20
    transaction_percent: int = 10
    multi_dispatch_percent: int = 0
    delay_percent: int = 0
    large_body_percent: int = 5
    no_properties_percent: int = 5
    raw_properties_percent: int = 5
    long_topics: bool = False  # V2 records; only where the format has them
    sync_flush: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """The settings, by RocketMQ's names."""
        return {
            "mappedFileSizeCommitLog": self.segment_bytes,
            "mappedFileSizeConsumeQueue": self.queue_file_entries * 20,
            "maxHashSlotNum": self.hash_slots,
            "maxIndexNum": self.index_num,
            "flushDiskType": "SYNC_FLUSH" if self.sync_flush else "ASYNC_FLUSH",
            "enableMultiDispatch": self.multi_dispatch_percent > 0,
            "enableLmq": self.multi_dispatch_percent > 0,
        }


# Every kind of message, enough of them that segments, queue files and index files roll.
EVERYTHING = Shape(
    messages=150,
    segment_bytes=32 * 1024,
    topics=len(TOPICS),
    multi_dispatch_percent=15,
    delay_percent=10,
    long_topics=True,
)


def shapes(messages: int) -> st.SearchStrategy[Shape]:
    """Shapes of stores with about so many messages."""

    def sometimes(percent: int) -> st.SearchStrategy[int]:
        return st.sampled_from((0, percent))

    return st.builds(
        Shape,
        messages=st.integers(messages, messages + messages // 4),
        segment_bytes=st.sampled_from((16 * 1024, 64 * 1024, 100_000)),
        queue_file_entries=st.sampled_from((5, 16, 100)),
        hash_slots=st.sampled_from((1, 31, 500)),
        # RocketMQ names an index file by the millisecond: two smaller ones may be one file.
        index_num=st.sampled_from((150, 5000)),
        topics=st.integers(1, len(TOPICS)),
        queues=st.integers(1, 4),
        batch_percent=st.sampled_from((0, 20, 60)),
        ipv6_percent=st.sampled_from((0, 20, 100)),
        transaction_percent=sometimes(15),
        multi_dispatch_percent=sometimes(30),
        delay_percent=sometimes(10),
        large_body_percent=sometimes(10),
        no_properties_percent=sometimes(10),
        raw_properties_percent=sometimes(10),
        long_topics=st.booleans(),
        sync_flush=st.booleans(),
    )


SEEDS = st.integers(0, 2**32 - 1)


def expand(seed: int, shape: Shape, store_format: str) -> Script:
    """The script of a shape, always the same for the same arguments."""
    return Script(shape.config, _Generator(random.Random(seed), shape, store_format).operations())


class _Generator:
    def __init__(self, rng: random.Random, shape: Shape, store_format: str) -> None:
        self.rng = rng
        self.shape = shape
        self.format = store_format
        self.topics = list(TOPICS[: shape.topics])
        if shape.long_topics and store_format == "5.x":
            self.topics += ["M" * 128, "N" * 200]

    def operations(self) -> list[Operation]:
        operations: list[Operation] = []
        messages = 0
        while messages < self.shape.messages:
            if self.chance(self.shape.batch_percent):
                batch = self.batch()
                messages += len(batch.parts)
                operations.append(batch)
            else:
                messages += 1
                operations.append(self.put())
        # RocketMQ's rebuild indexes a last message that is in no queue (prepared) a second time.
        operations.append(self.batch())
        return operations

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def put(self) -> Put:
        """An ordinary message or one of the special kinds, which do not mix."""
        properties: Properties | None = self.properties()
        raw: str | None = None
        sys_flag = self.rng.choice(ORDINARY_SYS_FLAGS)
        topic = self.rng.choice(self.topics)
        if self.chance(self.shape.transaction_percent):
            sys_flag |= self.rng.choice(TRANSACTION_SYS_FLAGS)
        elif self.chance(self.shape.multi_dispatch_percent) and not topic.startswith("%RETRY%"):
            properties = self.multi_dispatch(properties or ())
        elif self.chance(self.shape.delay_percent):
            properties = (*(properties or ()), ("DELAY", str(self.rng.randint(1, 20))))
        elif self.chance(self.shape.no_properties_percent):
            properties = None
        elif self.chance(self.shape.raw_properties_percent):
            properties, raw = None, self.raw_properties()
        return Put(
            topic=topic,
            queue_id=self.rng.randrange(self.shape.queues),
            body=self.body(),
            properties=properties,
            properties_raw=raw,
            flag=self.rng.choice(INTS),
            sys_flag=sys_flag,
            born_timestamp_ms=self.rng.choice(LONGS),
            born_host=self.host(),
            store_host=self.host(),
            reconsume_times=self.rng.choice(INTS),
            prepared_transaction_offset=self.rng.choice(LONGS),
        )

    def batch(self) -> Batch:
        parts = [
            Part(self.small_body(), self.part_properties(), self.rng.choice(INTS))
            for _ in range(self.rng.randint(1, 6))
        ]
        return Batch(
            topic=self.rng.choice(self.topics),
            parts=tuple(parts),
            queue_id=self.rng.randrange(self.shape.queues),
            properties=(("CLUSTER", "DefaultCluster"),) if self.chance(50) else None,
            sys_flag=self.rng.choice(ORDINARY_SYS_FLAGS),
            born_timestamp_ms=self.rng.choice(LONGS),
            born_host=self.host(),
            store_host=self.host(),
            reconsume_times=self.rng.choice(INTS),
        )

    def host(self) -> str:
        return self.rng.choice(IPV6 if self.chance(self.shape.ipv6_percent) else IPV4)

    def body(self) -> bytes | None:
        if self.chance(self.shape.large_body_percent):
            return self.rng.randbytes(self.rng.randint(1000, self.shape.segment_bytes // 2))
        return None if self.chance(3) else self.small_body()

    def small_body(self) -> bytes:
        kind = self.rng.randrange(10)
        if kind == 0:
            return b""
        if kind < 5:
            return "消息 body ".encode() * self.rng.randint(1, 15)
        return self.rng.randbytes(self.rng.randint(1, 250))

    def part_properties(self) -> Properties | None:
        return None if self.chance(self.shape.no_properties_percent) else self.properties()

    def properties(self) -> Properties:
        found: dict[str, str] = {}
        if self.chance(70):
            found["TAGS"] = self.rng.choice(TAGS)
        if self.chance(70):
            found["KEYS"] = self.keys()
        if self.chance(80):
            found["UNIQ_KEY"] = f"{self.rng.getrandbits(128):032X}"
        for _ in range(self.rng.randint(0, 3)):
            found[self.rng.choice(NAMES)] = self.rng.choice(VALUES)
        pairs = list(found.items())
        self.rng.shuffle(pairs)
        return tuple(pairs)

    def keys(self) -> str:
        """Up to four keys, also the same twice, and more spaces than needed."""
        keys = [self.rng.choice(KEYS) for _ in range(self.rng.randint(1, 4))]
        return self.rng.choice((" ", " ", "  ")).join(keys) + self.rng.choice(("", "", " "))

    def multi_dispatch(self, properties: Properties) -> Properties:
        names = self.rng.sample(range(4), self.rng.randint(1, 3))
        queues = ",".join(f"%LMQ%client{n}" for n in names)
        wait = (("WAIT", "true"),) if self.chance(20) else ()
        return (*properties, ("INNER_MULTI_DISPATCH", queues), *wait)

    def raw_properties(self) -> str:
        """
        Properties as no client writes them: both endings, empty and broken pairs. Not without any
        0x01: no broker stores that, and our strict reading takes it for a torn record.
        """
        return self.rng.choice(
            (
                "TAGS\x01TagA\x02KEYS\x01order-1",
                "TAGS\x01TagA\x02KEYS\x01order-1\x02",
                "\x02\x02KEYS\x01order-2\x02\x02",
                "empty\x01\x02KEYS\x01order-1\x02",
                "TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01\x02",
                "noseparator\x02KEYS\x01order-2",
                "\x01noname\x02a\x01b\x01c\x02",
                "KEYS\x01order-1\x02KEYS\x01order-2\x02",
            )
        )
