"""The shard to which begins and decisions are relayed, and the relayed reply."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest

from docs.generate.metrics import metric_names
from mqstore.coordinator.shards import BY
from mqstore.service import problems
from mqstore.service.forwarding import CLIENT, CLIENT_PROOF, FORWARDED
from mqstore.service.problems import ProblemType
from tests.unit.coordinator.fake_shards import (
    Answer,
    Bench,
    FakeShard,
    Received,
    Replying,
    fakes,
    problem,
    run,
)

BEGIN = "/v1/transactions"


def begun(shard: int) -> Replying:
    def reply(received: Received) -> Answer:
        if received.method == "GET":
            return Answer(200, {"topic": "t"})
        return Answer(201, {"transactionId": f"{shard}-k", "state": "pending"})

    return reply


def lacking(received: Received) -> Answer:
    return problem(problems.TOPIC_UNKNOWN)


def refusing(kind: ProblemType) -> Replying:
    return lambda _: problem(kind)


def spec(key: str | None = None, **more: object) -> dict[str, Any]:
    message = {"body": "a"} | ({} if key is None else {"uniqKey": key})
    return {"producerGroup": "g", "topic": "t", "messages": [message], **more}


def send(
    shards: list[FakeShard], tmp_path: Path, path: str, times: int = 1, **request: Any
) -> list[httpx.Response]:
    """The answers to so many equal POSTs."""

    async def act(bench: Bench) -> list[httpx.Response]:
        return [await bench.http.post(path, **request) for _ in range(times)]

    return run(shards, tmp_path, act)


def kind_of(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


def test_a_begin_goes_on_as_it_came_and_the_answer_comes_back_as_it_is(tmp_path: Path) -> None:
    body = json.dumps(spec(), indent=3).encode()
    headers = {
        "authorization": "Bearer of-the-client",
        "content-type": "application/json; charset=utf-8",
        "idempotency-key": "order-1",
        "x-request-id": "r-1",
        "cookie": "not-ours",
    }

    def reply(_: Received) -> Answer:
        return Answer(201, b'{"transactionId":"0-order-1"}', {"x-extra": "1", "retry-after": "7"})

    with fakes(reply) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, content=body, headers=headers)
        (sent,) = shards[0].seen
    assert (answer.status_code, answer.content) == (201, b'{"transactionId":"0-order-1"}')
    assert answer.headers["retry-after"] == "7"
    assert (sent.method, sent.target, sent.body) == ("POST", BEGIN, body)
    for name in ("authorization", "content-type", "idempotency-key", "x-request-id"):
        assert sent.headers[name] == headers[name]
    assert "cookie" not in sent.headers


def test_begins_without_a_key_go_to_the_shards_in_turn(tmp_path: Path) -> None:
    with fakes(begun(0), begun(1), begun(2)) as shards:
        send(shards, tmp_path, BEGIN, times=6, json=spec())
        assert [len(each.seen) for each in shards] == [2, 2, 2]


MARKED = [
    (spec(), {}),
    (spec(shard=0), {}),
    (spec("k", shard=0), {}),
    (spec(shard=0), {"idempotency-key": "k"}),
    (spec() | {"messages": [{"body": "a"}, {"body": "b", "uniqKey": "k"}]}, {}),
]
NOT_MARKED = [
    (spec("k"), {}),
    (spec("Ω"), {}),
    (spec(), {"idempotency-key": "k"}),
    (spec() | {"messages": [{"body": "a"}] * 2}, {"idempotency-key": "k"}),
]


@pytest.mark.parametrize(
    ("given", "headers", "is_marked"),
    [*((*each, True) for each in MARKED), *((*each, False) for each in NOT_MARKED)],
)
def test_a_shard_may_forward_a_begin_whose_key_names_another_one(
    given: dict[str, Any], headers: dict[str, str], is_marked: bool, tmp_path: Path
) -> None:
    with fakes(begun(0)) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=given, headers=headers)
        (sent,) = shards[0].seen
    assert answer.status_code == 201
    assert sent.headers.get(FORWARDED) == (BY if is_marked else None)


@pytest.mark.parametrize("given", [spec(), spec("k"), spec(shard=0)])
@pytest.mark.parametrize("tokens", [{}, {"token_system": "s" * 32, "token_produce": "p" * 32}])
def test_a_begin_goes_on_with_the_address_of_its_producer(
    given: dict[str, Any], tokens: dict[str, str], tmp_path: Path
) -> None:
    async def act(bench: Bench) -> int:
        headers = {"authorization": f"Bearer {'p' * 32}", CLIENT: "192.0.2.7:1"}
        return (await bench.http.post(BEGIN, json=given, headers=headers)).status_code

    with fakes(begun(0)) as shards:
        assert run(shards, tmp_path, act, **tokens) == 201
        (sent,) = shards[0].seen
    assert sent.headers[CLIENT] == "127.0.0.1:123"
    assert sent.headers.get(CLIENT_PROOF) == tokens.get("token_system")


def test_begins_under_one_key_go_to_any_shard_that_can_be_used(tmp_path: Path) -> None:
    with fakes(begun(0), None, begun(0)) as shards:
        answers = send(shards, tmp_path, BEGIN, times=4, json=spec("k"))
        assert [each.json()["transactionId"] for each in answers] == ["0-k"] * 4
        assert [len(each.seen) for each in shards] == [2, 0, 2]


@pytest.mark.parametrize(
    "kind",
    [
        problems.STORE_NOT_READY,
        problems.COORDINATOR_NOT_READY,
        problems.SHUTTING_DOWN,
        problems.SHARD_UNREACHABLE,
        problems.SHARD_UNKNOWN,
        problems.UNIQUE_KEY_TAKEN,
    ],
)
def test_what_the_shard_of_a_key_replies_is_the_answer(kind: ProblemType, tmp_path: Path) -> None:
    with fakes(refusing(kind), refusing(kind)) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec("k"))
        assert sum(len(each.seen) for each in shards) == 1
    assert (answer.status_code, kind_of(answer)) == (kind.status, kind.name)


def test_a_begin_under_a_key_is_sent_again_while_the_shards_do_not_agree_on_its_shard(
    tmp_path: Path,
) -> None:
    with fakes(refusing(problems.WRONG_SHARD)) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec("k"))
        (named,) = send(shards, tmp_path, BEGIN, json=spec("k", shard=0))
    assert (answer.status_code, kind_of(answer)) == (503, "coordinator-not-ready")
    assert (named.status_code, kind_of(named)) == (421, "wrong-shard")


def test_a_shard_that_is_named_is_used(tmp_path: Path) -> None:
    with fakes(begun(0), begun(1)) as shards:
        send(shards, tmp_path, BEGIN, times=2, json=spec("k1", shard=1))
        assert [len(each.seen) for each in shards] == [0, 2]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"\xff"', b'{"topic": 1}', b'{"messages": []}', b'{"messages": [1]}'],
)
def test_a_body_that_names_no_place_is_rejected_by_a_shard(body: bytes, tmp_path: Path) -> None:
    with fakes(refusing(problems.BODY_INVALID)) as shards:
        (answer,) = send(
            shards, tmp_path, BEGIN, content=body, headers={"content-type": "application/json"}
        )
        assert [each.body for each in shards[0].seen] == [body]
    assert kind_of(answer) == "body-invalid"


@pytest.mark.parametrize(
    ("path", "request_", "kind"),
    [
        (f"{BEGIN}?x=1", {"json": spec()}, "bad-parameter"),
        (BEGIN, {"json": spec(), "headers": {"idempotency-key": "a/b"}}, "bad-parameter"),
        (BEGIN, {"content": b"[" + b"1," * 30_000 + b"1]"}, "body-too-large"),
        (f"{BEGIN}/0-k:commit?x=1", {}, "bad-parameter"),
        (f"{BEGIN}/0-{'k' * 300}:commit", {}, "bad-parameter"),
        (f"{BEGIN}/7:commit", {}, "transaction-unknown"),
        (f"{BEGIN}/nothing:rollback", {}, "transaction-unknown"),
        (f"{BEGIN}/-k:resolve", {"json": {"decision": "commit", "reason": "r"}}, None),
        (f"{BEGIN}/0-k:resolve", {"json": {"decision": "maybe", "reason": "r"}}, "body-invalid"),
        ("/v1/checks", {"json": {"producerGroup": "g", "max": 0}}, "body-invalid"),
    ],
)
def test_what_is_wrong_for_every_shard_is_rejected_here(
    path: str, request_: dict[str, Any], kind: str | None, tmp_path: Path
) -> None:
    with fakes(begun(0)) as shards:
        (answer,) = send(shards, tmp_path, path, **request_)
        assert not shards[0].seen
    assert kind_of(answer) == (kind or "transaction-unknown")


@pytest.mark.parametrize(("path", "given"), [(f"{BEGIN}/7-k:commit", None), (BEGIN, spec(shard=7))])
def test_a_shard_that_is_not_in_the_list_here_is_known_to_the_others(
    path: str, given: dict[str, Any] | None, tmp_path: Path
) -> None:
    """A shard was added, and this coordinator has the list of its start."""
    with fakes(refusing(problems.STORE_NOT_READY), None, begun(7)) as shards:
        (answer,) = send(shards, tmp_path, path, json=given)
        (sent,) = shards[2].seen
    assert (answer.status_code, answer.json()["transactionId"]) == (201, "7-k")
    assert FORWARDED not in sent.headers


def test_a_shard_that_cannot_be_reached_is_passed_over_by_a_begin_of_any_shard(
    tmp_path: Path,
) -> None:
    with fakes(None, begun(1)) as shards:
        answers = send(shards, tmp_path, BEGIN, times=4, json=spec())
        assert [each.status_code for each in answers] == [201] * 4
        assert len(shards[1].seen) == 4


@pytest.mark.parametrize(
    "kind", [problems.STORE_NOT_READY, problems.COORDINATOR_NOT_READY, problems.SHUTTING_DOWN]
)
def test_a_shard_that_has_looked_at_nothing_is_passed_over(
    kind: ProblemType, tmp_path: Path
) -> None:
    with fakes(refusing(kind), begun(1)) as shards:
        answers = send(shards, tmp_path, BEGIN, times=2, json=spec())
        assert [each.status_code for each in answers] == [201, 201]
    with fakes(refusing(kind), lacking) as shards:
        answers = send(shards, tmp_path, BEGIN, times=2, json=spec())
        assert [kind_of(each) for each in answers] == [kind.name] * 2


@pytest.mark.parametrize("key", [None, "k"])
def test_a_begin_that_may_have_been_stored_goes_to_no_other_shard(
    key: str | None, tmp_path: Path
) -> None:
    with fakes(lambda _: None, lambda _: None) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec(key))
        assert sum(len(each.seen) for each in shards) == 1
    assert (answer.status_code, kind_of(answer)) == (503, "coordinator-not-ready")
    assert "may have been done" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    "kind", [problems.DISK_FULL, problems.OVERLOADED, problems.STORE_READ_ONLY]
)
def test_another_refusal_of_a_shard_is_the_answer(kind: ProblemType, tmp_path: Path) -> None:
    with fakes(refusing(kind), refusing(kind)) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec())
        assert sum(len(each.seen) for each in shards) == 1
    assert (answer.status_code, kind_of(answer)) == (kind.status, kind.name)


def test_a_begin_passes_over_a_new_shard_that_lacks_the_topic(tmp_path: Path) -> None:
    with fakes(lacking, begun(1), lacking) as shards:
        answers = send(shards, tmp_path, BEGIN, times=3, json=spec())
    assert [each.json()["transactionId"] for each in answers] == ["1-k"] * 3


def test_a_begin_of_a_fixed_shard_waits_for_the_topic(tmp_path: Path) -> None:
    with fakes(lacking, begun(1)) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec(shard=0, topic="a/b"))
        assert [each.target for each in shards[1].seen] == ["/v1/topics/a%2Fb"]
    assert (answer.status_code, kind_of(answer)) == (503, "coordinator-not-ready")
    assert "shard 0 does not have topic a/b yet" in answer.json()["detail"]


def test_a_begin_under_a_key_waits_for_the_topic(tmp_path: Path) -> None:
    """The shard that gets it has the topic; the one of its key, to which it is forwarded, not."""

    def reply(received: Received) -> Answer:
        return problem(problems.TOPIC_UNKNOWN) if received.method == "POST" else Answer()

    with fakes(reply) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=spec("k"))
    assert (answer.status_code, kind_of(answer)) == (503, "coordinator-not-ready")
    assert "the shard of its key does not have topic t yet" in answer.json()["detail"]


@pytest.mark.parametrize("given", [spec(), spec("k"), spec(shard=0)])
def test_a_topic_that_no_shard_has_is_unknown(given: dict[str, Any], tmp_path: Path) -> None:
    with fakes(lacking, lacking) as shards:
        (answer,) = send(shards, tmp_path, BEGIN, json=given)
    assert (answer.status_code, kind_of(answer)) == (404, "topic-unknown")


@pytest.mark.parametrize("how", ["commit", "rollback", "resolve"])
@pytest.mark.parametrize("key", ["k", "a:commit", "50%25", "a?b#c", "\u043a"])
def test_a_decision_goes_to_the_shard_that_the_id_names(how: str, key: str, tmp_path: Path) -> None:
    def reply(received: Received) -> Answer:
        return problem(problems.TRANSACTION_DECIDED, decision="rollback")

    body = {"decision": "commit", "reason": "r"} if how == "resolve" else {"reason": "r"}
    with fakes(begun(0), reply) as shards:
        (answer,) = send(shards, tmp_path, f"{BEGIN}/{quote(f'1-{key}')}:{how}", json=body)
        assert not shards[0].seen
        (sent,) = shards[1].seen
    assert (answer.status_code, answer.json()["decision"]) == (409, "rollback")
    assert sent.json == body
    assert unquote(sent.target) == f"{BEGIN}/1-{key}:{how}"


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (None, "shard 0 cannot be reached"),
        (lambda _: None, "shard 0 did not answer"),
        (refusing(problems.NOT_FOUND), "shard 0 runs an earlier release"),
        (refusing(problems.METHOD_NOT_ALLOWED), "shard 0 runs an earlier release"),
    ],
)
def test_a_shard_without_a_reply_that_can_be_used_is_503(
    reply: Replying | None, detail: str, tmp_path: Path
) -> None:
    with fakes(reply) as shards:
        for path in (f"{BEGIN}/0-k:commit", BEGIN):
            (answer,) = send(shards, tmp_path, path, json=spec("k") if path == BEGIN else {})
            assert (answer.status_code, kind_of(answer)) == (503, "coordinator-not-ready")
            assert detail in answer.json()["detail"]


def test_roles_are_checked_here_and_the_shard_gets_the_token_of_the_client(tmp_path: Path) -> None:
    tokens = {"token_system": "s" * 32, "token_consume": "c" * 32, "token_produce": "p" * 32}

    async def act(bench: Bench) -> list[int]:
        found = []
        for token in ("c" * 32, "p" * 32, None):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            answer = await bench.http.post(BEGIN, json=spec(), headers=headers)
            found.append(answer.status_code)
        return found

    with fakes(begun(0)) as shards:
        assert run(shards, tmp_path, act, **tokens) == [403, 201, 401]
        assert [each.headers["authorization"] for each in shards[0].seen] == [f"Bearer {'p' * 32}"]


def test_the_coordinator_is_ready_while_one_shard_can_be_used(tmp_path: Path) -> None:
    async def ready(bench: Bench) -> tuple[int, str]:
        answer = await bench.http.get("/healthz/ready")
        return answer.status_code, answer.json().get("detail", "")

    for replies, status, details in (
        ([begun(0), begun(1)], 200, [""]),
        ([begun(0), None], 200, ["shard 1 cannot be reached"]),
        ([None, None], 503, ["shard 0 cannot be reached"]),
    ):
        with fakes(*replies) as shards:
            found = run(shards, tmp_path, ready)
        assert found[0] == status
        assert all(each in found[1] for each in details)


def test_metrics_say_which_shards_can_be_used_and_are_explained(tmp_path: Path) -> None:
    async def metrics(bench: Bench) -> str:
        return (await bench.http.get("/metrics")).text

    with fakes(begun(0), None) as shards:
        lines = run(shards, tmp_path, metrics).splitlines()
    found = [line for line in lines if line.startswith("mqstore_coordinator")]
    assert 'mqstore_coordinator_shard_usable{shard="0"} 1.0' in found
    assert 'mqstore_coordinator_shard_usable{shard="1"} 0.0' in found
    found_names = {re.split("[{ ]", line)[0] for line in found}
    assert found_names - metric_names() == set()


def test_a_shard_that_was_upgraded_is_used_again(tmp_path: Path) -> None:
    earlier = [True]

    def reply(_: Received) -> Answer:
        return problem(problems.NOT_FOUND) if earlier[0] else Answer(201, {"transactionId": "0-k"})

    async def act(bench: Bench) -> list[int]:
        found = [(await bench.http.post(BEGIN, json=spec())).status_code]
        found.append((await bench.http.get("/healthz/ready")).status_code)
        earlier[0] = False
        found.append((await bench.http.post(BEGIN, json=spec())).status_code)
        found.append((await bench.http.get("/healthz/ready")).status_code)
        return found

    with fakes(reply) as shards:
        assert run(shards, tmp_path, act) == [503, 503, 201, 200]
