from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import message_id
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import MessageIdError
from mqstore.storage.seams import Seams
from tests.unit.storage.record_examples import hosts


def test_an_offset_id_is_host_port_and_offset_in_upper_case_hex() -> None:
    host = Host.parse("127.0.0.1", 10911)
    assert message_id.encode(host, 0x280E2F) == "7F00000100002A9F0000000000280E2F"
    assert message_id.decode("7f00000100002a9f0000000000280e2f") == (host, 0x280E2F)


@given(hosts, st.integers(0, 2**63 - 1))
def test_decoding_gives_back_what_was_encoded(host: Host, offset: int) -> None:
    text = message_id.encode(host, offset)
    assert len(text) == (56 if host.is_v6 else 32)
    assert message_id.decode(text) == (host, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F00000100002A9F0000000000280E2",
        "7F00000100002A9F0000000000280E2F00",
        "7F00000100002A9F0000000000280E2G",
        "7F000001 0002A9F0000000000280E 2",
        "7F0000010001000000000000002800E0",
        "7F00000100002A9FFFFFFFFFFFFFFFFF",
        "é" * 32,
    ],
)
def test_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(MessageIdError):
        message_id.decode(text)


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_refused_by_name(text: str) -> None:
    try:
        host, offset = message_id.decode(text)
    except MessageIdError:
        return
    assert message_id.encode(host, offset) == text.upper()


@dataclass
class SetClock:
    at_ms: int

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000


def unique_keys(clock: SetClock, seed: int = 1) -> UniqueKeys:
    return UniqueKeys(cast(Seams, SimpleNamespace(clock=clock, random=random.Random(seed))))


def at(*fields: int) -> int:
    year, month, day = fields
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


def test_a_unique_key_holds_its_makers_bytes_the_time_in_the_month_and_a_count() -> None:
    clock = SetClock(at(2024, 12, 1) + 0xABC)
    keys = unique_keys(clock)
    first, second = keys.next(), keys.next()
    assert len(first) == message_id.UNIQUE_KEY_LENGTH
    assert first[20:] == "00000ABC0000"
    assert second == first[:20] + "00000ABC0001"
    assert first == first.upper()
    assert unique_keys(clock, seed=2).next()[:20] != first[:20]


@pytest.mark.parametrize(("year", "month"), [(2025, 1), (2024, 11), (2024, 2)])
def test_the_time_in_a_key_restarts_with_the_month(year: int, month: int) -> None:
    clock = SetClock(at(2024, 12, 31))
    keys = unique_keys(clock)
    keys.next()
    clock.at_ms = at(year, month, 1) + 1
    assert keys.next()[20:28] == "00000001"


def test_keys_made_by_many_threads_all_differ() -> None:
    keys = unique_keys(SetClock(at(2024, 12, 31)))
    made: list[str] = []

    def make() -> None:
        made.extend([keys.next() for _ in range(500)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 2000
