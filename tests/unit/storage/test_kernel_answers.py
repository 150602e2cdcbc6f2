"""Placements as JSON, against the struct that the interface describes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.service.structs import struct_of
from mqstore.storage._kernel import Placement, placements_json
from mqstore.storage.codec.hosts import Host
from mqstore.wire.produce import MessagePlace

NUMBERS = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65535)) | st.builds(
    Host, st.binary(min_size=16, max_size=16), st.integers(0, 65535)
)
PLACEMENTS = st.builds(
    Placement, st.integers(0, 2**63 - 1), NUMBERS, NUMBERS, NUMBERS, NUMBERS, HOSTS
)
PLACED = struct_of(MessagePlace)
KEYS = st.text() | st.text("0123456789ABCDEF", min_size=32, max_size=32)
quote = msgspec.json.Encoder().encode
LEAST = -(2**63)
LARGEST = Placement(2**63 - 1, LEAST, LEAST, LEAST, LEAST, Host(b"\xff" * 16, 65535))


@given(st.lists(st.tuples(PLACEMENTS, KEYS, st.booleans())), NUMBERS)
@example([(LARGEST, "", True)] * 3, -(2**63))
@example([(LARGEST, '"\\\x7f\0\u00e9', False)], 0)
def test_placements_are_written_as_the_struct_is(
    rows: list[tuple[Placement, str, bool]], shard: int
) -> None:
    placements, keys = [row[0] for row in rows], [row[1] for row in rows]
    repeats = frozenset(number for number, row in enumerate(rows) if row[2])
    due = [
        PLACED(
            offset_msg_id=placed.offset_message_id,
            uniq_key=key,
            queue_id=placed.queue_id,
            queue_offset=placed.queue_offset,
            physical_offset=placed.physical_offset,
            size=placed.size,
            store_timestamp=placed.store_timestamp_ms,
            shard=shard,
            repeat=repeat,
        )
        for placed, key, repeat in rows
    ]
    assert placements_json(placements, keys, shard, repeats, quote) == quote(due)


def test_keys_that_are_too_few_or_no_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="1 keys for 2 placements"):
        placements_json([LARGEST] * 2, ["a"], 0, (), quote)
    with pytest.raises(TypeError):
        placements_json([LARGEST], [b"a"], 0, (), quote)  # type: ignore[list-item]  # what is refused
    with pytest.raises(TypeError):
        placements_json([None], ["a"], 0, (), quote)  # type: ignore[list-item]  # what is refused
