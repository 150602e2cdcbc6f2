"""Producers register with every shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from mqstore.service import problems
from mqstore.service.problems import ProblemType
from mqstore.storage.formats import decode_name_cursor, encode_name_cursor
from mqstore.wire.checks import SECRET_HEADER, producer_key, producers_scope
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

ONE = "/v1/producers/billing/one"
REGISTRY = "/v1/internal/producers"
CALLBACK = {"url": "https://10.1.2.3/checks", "secret": "s" * 32, "leaseSeconds": 60}


def shown(failures: int = 0, expires_in: float = 60.0, name: str = "one") -> dict[str, Any]:
    return {
        "producerGroup": "billing",
        "name": name,
        "url": CALLBACK["url"],
        "address": "10.1.2.3",
        "expiresIn": expires_in,
        "failures": failures,
        "detail": "refused" if failures else None,
    }


def keeping(*names: str, failures: int = 0) -> Replying:
    """A shard's registry."""
    known = set(names)

    def reply(received: Received) -> Answer:
        name = received.target.rpartition("/")[2]
        if received.method == "PUT":
            known.add(name)
            return Answer(200, shown(failures, name=name))
        if received.method == "DELETE":
            if name not in known:
                return problem(problems.PRODUCER_UNKNOWN)
            known.remove(name)
            return Answer(204, b"")
        return Answer(200, {"producers": [shown(failures, name=each) for each in sorted(known)]})

    return reply


def refusing(kind: ProblemType) -> Replying:
    return lambda _: problem(kind)


def owned(secret: str, *names: str) -> Replying:
    """A shard's registry with these names, which belong to the application with the secret."""
    known: dict[str, str | None] = dict.fromkeys(names, secret)

    def reply(received: Received) -> Answer:
        name = received.target.rpartition("/")[2]
        header = received.headers.get(SECRET_HEADER)
        given = received.json["secret"] if received.method == "PUT" else header
        if given is not None and known.get(name, given) != given:
            return problem(problems.PRODUCER_TAKEN)
        if received.method == "DELETE":
            return Answer(204, b"") if known.pop(name, None) else problem(problems.PRODUCER_UNKNOWN)
        is_new = name not in known
        known[name] = given
        return Answer(201 if is_new else 200, shown(name=name))

    return reply


def send(
    shards: list[FakeShard], tmp_path: Path, *requests: tuple[str, str, Any]
) -> list[httpx.Response]:
    async def act(bench: Bench) -> list[httpx.Response]:
        return [
            await bench.http.request(method, path, json=body) for method, path, body in requests
        ]

    return run(shards, tmp_path, act, callback_hosts="10.1.0.0/16")


def test_every_shard_keeps_the_registration(tmp_path: Path) -> None:
    with fakes(keeping(), keeping(failures=2)) as shards:
        (made,) = send(shards, tmp_path, ("PUT", ONE, CALLBACK))
        for each in shards:
            (kept,) = each.seen
            assert (kept.method, kept.target) == ("PUT", f"{REGISTRY}/billing/one")
            sender = {"address": "10.1.2.3", "host": "10.1.2.3", "client": "127.0.0.1"}
            assert kept.json == CALLBACK | sender
    assert made.status_code == 200
    assert (made.json()["address"], made.json()["failures"]) == ("10.1.2.3", 2)
    assert "secret" not in made.text


def test_a_shard_that_answers_is_enough(tmp_path: Path) -> None:
    with fakes(None, keeping(), refusing(problems.NOT_FOUND)) as shards:
        answers = send(
            shards,
            tmp_path,
            ("PUT", ONE, CALLBACK),
            ("GET", "/v1/producers", None),
            ("DELETE", ONE, None),
            ("DELETE", ONE, None),
        )
    assert [each.status_code for each in answers] == [200, 200, 204, 404]
    assert [each["name"] for each in answers[1].json()["producers"]] == ["one"]


@pytest.mark.parametrize("request_", [("PUT", ONE, CALLBACK), ("GET", "/v1/producers", None)])
def test_without_any_shard_it_is_503(request_: tuple[str, str, Any], tmp_path: Path) -> None:
    with fakes(None, None) as shards:
        (answer,) = send(shards, tmp_path, request_)
    assert answer.status_code == 503
    assert answer.json()["type"].endswith(":coordinator-not-ready")
    with fakes(refusing(problems.OVERLOADED), refusing(problems.OVERLOADED)) as shards:
        (answer,) = send(shards, tmp_path, request_)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "overloaded")


@pytest.mark.parametrize("kind", [problems.UNAUTHENTICATED, problems.FORBIDDEN])
def test_a_shard_that_rejects_the_system_token_is_no_fault_of_the_client(
    kind: ProblemType, tmp_path: Path
) -> None:
    with fakes(refusing(kind)) as shards:
        (answer,) = send(shards, tmp_path, ("GET", "/v1/producers", None))
    assert answer.status_code == 503
    assert "rejects the system token" in answer.json()["detail"]


def test_a_producer_is_shown_once_and_as_the_shard_knows_it_that_cannot_call_it(
    tmp_path: Path,
) -> None:
    with fakes(keeping("one", "two"), keeping("one", failures=3)) as shards:
        every, other = send(
            shards,
            tmp_path,
            ("GET", "/v1/producers?group=billing", None),
            ("GET", "/v1/producers?group=other", None),
        )
    found = {each["name"]: each["failures"] for each in every.json()["producers"]}
    assert found == {"one": 3, "two": 0}
    assert other.json()["producers"] == []


@pytest.mark.parametrize(
    ("path", "change", "status", "kind"),
    [
        (ONE, {"url": "https://10.2.0.1/"}, 403, "callback-refused"),
        (ONE, {"url": "http://10.1.2.3/"}, 403, "callback-refused"),
        (ONE, {"secret": "short"}, 422, "body-invalid"),
        ("/v1/producers/bil.ling/one", {}, 422, "group-invalid"),
        ("/v1/producers/billing/a%20b", {}, 400, "bad-parameter"),
    ],
)
def test_a_registration_that_is_not_allowed_reaches_no_shard(
    path: str, change: dict[str, Any], status: int, kind: str, tmp_path: Path
) -> None:
    with fakes(keeping()) as shards:
        (answer,) = send(shards, tmp_path, ("PUT", path, CALLBACK | change))
        assert not shards[0].seen
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (status, kind)


def test_a_name_of_another_application_is_refused_and_no_shard_keeps_it(tmp_path: Path) -> None:
    other, own = "t" * 32, str(CALLBACK["secret"])
    with fakes(owned(other, "one"), owned(other)) as shards:  # the second was restarted
        (answer,) = send(shards, tmp_path, ("PUT", ONE, CALLBACK))
        assert [each.method for each in shards[0].seen] == ["PUT"]
        assert [each.method for each in shards[1].seen] == ["PUT", "DELETE"]
        assert shards[1].seen[1].headers[SECRET_HEADER] == own
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "producer-taken")
    assert own not in answer.text


def test_a_renewal_reaches_a_shard_that_was_restarted(tmp_path: Path) -> None:
    with fakes(owned(str(CALLBACK["secret"]), "one"), owned("")) as shards:
        (answer,) = send(shards, tmp_path, ("PUT", ONE, CALLBACK))
        assert [each.method for each in shards[1].seen] == ["PUT"]
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("token", "secret", "status"),
    [
        ("p", None, 403),
        ("p", "u" * 32, 409),
        ("p", "t" * 32, 204),
        ("a", None, 204),
    ],
)
def test_a_removal_needs_the_secret_or_the_role_admin(
    token: str, secret: str | None, status: int, tmp_path: Path
) -> None:
    headers = {"authorization": f"Bearer {token * 20}"}
    headers |= {} if secret is None else {SECRET_HEADER: secret}

    async def act(bench: Bench) -> httpx.Response:
        return await bench.http.delete(ONE, headers=headers)

    with fakes(owned("t" * 32, "one"), owned("t" * 32, "one")) as shards:
        tokens = {f"token_{role}": role[0] * 20 for role in ("admin", "produce", "system")}
        answer = run(shards, tmp_path, act, **tokens)
    assert answer.status_code == status


def listing(*names: str) -> Replying:
    """A shard that lists these producers in pages."""

    def reply(received: Received) -> Answer:
        query = parse_qs(received.target.partition("?")[2])
        scope = producers_scope(None)
        after = decode_name_cursor(query["cursor"][0], scope) if "cursor" in query else ""
        left = [each for each in sorted(names) if producer_key("billing", each) > after]
        limit = int(query["limit"][0])
        last = producer_key("billing", left[limit - 1]) if len(left) > limit else None
        following = None if last is None else encode_name_cursor(last, scope)
        found = [shown(name=each) for each in left[:limit]]
        return Answer(200, {"producers": found, "next": following})

    return reply


def test_producers_of_all_shards_are_listed_in_pages(tmp_path: Path) -> None:
    async def act(bench: Bench) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: str | None = ""
        while cursor is not None:
            params = {"limit": "2", "cursor": cursor} if cursor else {"limit": "2"}
            reply = (await bench.http.get("/v1/producers", params=params)).raise_for_status().json()
            pages.append([each["name"] for each in reply["producers"]])
            cursor = reply["next"]
        return pages

    with fakes(listing("a", "b", "d", "f"), listing("b", "c", "e")) as shards:
        pages = run(shards, tmp_path, act)
        assert {len(each.seen) for each in shards} == {3}
    assert pages == [["a", "b"], ["c", "d"], ["e", "f"]]
