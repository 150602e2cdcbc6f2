"""The shard on which a transaction under a unique key begins, through any shard."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.service.forwarding import FORWARDED
from mqstore.service.key_shards import shard_of
from mqstore.storage.errors import TransactionsNotLoaded
from mqstore.storage.transactions import TransactionEngine
from mqstore.wire import unique_keys
from tests.long_runs import few_first
from tests.unit.writer.writers_in_process import Writers, kind_of, run, spec, states

BEGIN = "/v1/transactions"
FROM_A_SHARD = {FORWARDED: "9"}


def key_of(*homes: int) -> str:
    """A key whose shard is ``homes[N]`` among shards 0 to N."""
    wanted = [(home, range(count)) for count, home in enumerate(homes, 1)]
    keys = (f"k{number}" for number in itertools.count())
    return next(
        key for key in keys if all(shard_of(key, shards) == home for home, shards in wanted)
    )


MOVED = key_of(0, 1)
"""Its shard was 0 while there was no other, and becomes 1."""


async def send(
    writers: Writers, shard: int, given: dict[str, Any], **headers: str
) -> httpx.Response:
    async with writers.http(shard) as http:
        return await http.post(BEGIN, json=given, headers=headers)


async def send_to_all(
    writers: Writers, given: dict[str, Any], *shards: int, **headers: str
) -> list[tuple[str, str]]:
    """The reply of each shard."""
    return states([await send(writers, each, given, **headers) for each in shards or (0, 1)])


def not_loaded(*_: Any) -> bool:
    raise TransactionsNotLoaded("the half messages are being read")


async def keep_keys(writers: Writers) -> None:
    """Shard 0 owns all keys, and has stored a message under one."""
    writers.put_list({"shards": [0]})
    await writers.check()
    async with writers.http(0) as http:
        message = {"body": "x", "uniqKey": "first"}
        stored = await http.post("/v1/topics/t/messages", json={"messages": [message]})
        assert stored.status_code == 201, stored.text


async def let_keys_move(writers: Writers) -> None:
    """From shard 0 to both."""
    await keep_keys(writers)
    writers.put_list()
    await writers.check()


@pytest.mark.parametrize("home", few_first([1, 0]))
def test_the_key_of_the_first_message_chooses_the_shard(tmp_path: Path, home: int) -> None:
    key, other = key_of(0, home), key_of(0, 1 - home)

    async def act(writers: Writers) -> None:
        for given, headers, wanted in (
            (spec(key), {}, key),
            (spec(f"{key}+several", other), {}, f"{key}+several"),
            (spec(None), {"idempotency-key": f"{key}-header"}, f"{key}-header"),
            (spec(None, None), {"idempotency-key": f"{key}-two"}, f"{key}-two~0"),
            (spec(unique_keys.generate(home)), {}, None),
        ):
            wanted = wanted or given["messages"][0]["uniqKey"]
            number = shard_of(wanted, [0, 1])
            found = await send_to_all(writers, given, **headers)
            assert found == [(f"{number}-{wanted}", "pending")] * 2

    run(tmp_path, act)


def test_without_a_key_of_its_first_message_it_begins_where_it_comes(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        for given in (spec(None), spec(None, key_of(0, 0)), spec(None, key_of(0, 1))):
            found = await send_to_all(writers, given)
            assert [id_.partition("-")[0] for id_, _ in found] == ["0", "1"]

    run(tmp_path, act)


def test_a_named_shard_has_precedence_over_the_key(tmp_path: Path) -> None:
    key = key_of(0, 1)

    async def act(writers: Writers) -> None:
        found = await send_to_all(writers, spec(key, shard=0))
        assert found == [(f"0-{key}", "pending")] * 2
        forwarded = states([await send(writers, 0, spec(key, shard=0), **FROM_A_SHARD)])
        assert forwarded == [(f"0-{key}", "pending")]
        for shard, headers, kind in (
            (0, {}, (422, "body-invalid")),
            (1, FROM_A_SHARD, (421, "wrong-shard")),
        ):
            given = spec(key, shard=0 if headers else 7)
            assert kind_of(await send(writers, shard, given, **headers)) == kind

    run(tmp_path, act)


def test_a_forwarded_begin_is_stored_by_the_shard_of_its_key_only(tmp_path: Path) -> None:
    key = key_of(0, 1)

    async def act(writers: Writers) -> None:
        refused = await send(writers, 0, spec(key), **FROM_A_SHARD)
        assert kind_of(refused) == (421, "wrong-shard")
        assert refused.json()["shard"] == 1
        (found,) = states([await send(writers, 1, spec(key), **FROM_A_SHARD)])
        assert found == (f"1-{key}", "pending")

    run(tmp_path, act)


def test_a_key_waits_for_its_shard(tmp_path: Path) -> None:
    key, other = key_of(0, 1), key_of(0, 0)

    async def act(writers: Writers) -> None:
        await writers.stop(1)
        refused = await send(writers, 0, spec(key))
        assert kind_of(refused) == (503, "shard-unreachable")
        assert (refused.json()["shard"], refused.json()["sent"]) == (1, False)
        assert (await send_to_all(writers, spec(other), 0)) == [(f"0-{other}", "pending")]
        await writers.start(1)
        assert (await send_to_all(writers, spec(key))) == [(f"1-{key}", "pending")] * 2

    run(tmp_path, act)


def test_a_generated_key_of_a_removed_shard_begins_on_another_one(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        key = unique_keys.generate(7)
        number = shard_of(key, [0, 1], lambda _: False)
        assert await send_to_all(writers, spec(key)) == [(f"{number}-{key}", "pending")] * 2

    run(tmp_path, act)


def test_without_other_shards_every_key_begins_here(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        for key in (MOVED, unique_keys.generate(7)):
            assert await send_to_all(writers, spec(key), 0) == [(f"0-{key}", "pending")]

    run(tmp_path, act, count=1)


@pytest.mark.parametrize("is_restarted", few_first([True, False]))
@pytest.mark.parametrize("decision", [None, "commit"])
def test_a_repeat_finds_the_transaction_on_the_former_shard_of_its_key(
    tmp_path: Path, is_restarted: bool, decision: str | None
) -> None:
    async def act(writers: Writers) -> None:
        await keep_keys(writers)
        assert await send_to_all(writers, spec(MOVED)) == [(f"0-{MOVED}", "pending")] * 2
        if decision is not None:
            async with writers.http(1) as http:
                decided = await http.post(f"{BEGIN}/0-{MOVED}:{decision}")
                assert decided.is_success, decided.text
        if is_restarted:
            await writers.stop(0)
            await writers.start(0)
        await let_keys_move(writers)
        state = "pending" if decision is None else "committed"
        assert await send_to_all(writers, spec(MOVED)) == [(f"0-{MOVED}", state)] * 2
        (found,) = states([await send(writers, 0, spec(MOVED), **FROM_A_SHARD)])
        assert found == (f"0-{MOVED}", state)

    run(tmp_path, act)


def test_a_new_key_begins_on_its_new_shard(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        await let_keys_move(writers)
        assert await send_to_all(writers, spec(MOVED)) == [(f"1-{MOVED}", "pending")] * 2
        refused = await send(writers, 0, spec(MOVED), **FROM_A_SHARD)
        assert (kind_of(refused), refused.json()["shard"]) == ((421, "wrong-shard"), 1)

    run(tmp_path, act)


def test_while_the_former_shard_cannot_reply_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former shard may know the key, once it has read its half messages after its start."""

    async def act(writers: Writers) -> None:
        await let_keys_move(writers)
        with monkeypatch.context() as patch:
            patch.setattr(writers.service(0).transactions.engine, "knows", not_loaded)
            for shard in (0, 1):
                refused = await send(writers, shard, spec(MOVED))
                assert kind_of(refused) == (503, "coordinator-not-ready")
        await writers.stop(0)
        assert kind_of(await send(writers, 1, spec(MOVED))) == (503, "shard-unreachable")
        await writers.start(0)
        assert await send_to_all(writers, spec(MOVED)) == [(f"1-{MOVED}", "pending")] * 2

    run(tmp_path, act)


def test_outside_a_change_of_the_shards_no_look_into_the_log_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bool:
        raise AssertionError("the shard of a key needs not to know whether it was begun")

    monkeypatch.setattr(TransactionEngine, "knows", fail)

    async def act(writers: Writers) -> None:
        for key in (key_of(0, 0), key_of(0, 1)):
            await send_to_all(writers, spec(key))

    run(tmp_path, act)
