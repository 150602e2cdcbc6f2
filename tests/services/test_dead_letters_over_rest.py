"""Dead letters over REST: listed, resent and purged, over shards and over kills too."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.client import (
    Client,
    ClientError,
    DeadLetter,
    DeadLetterFilter,
    LetterStatus,
    NewMessage,
    ProblemError,
    ResentLetters,
)
from tests.forked_processes import run_mqstore
from tests.services.service_processes import ServicePair, service_pair, writer
from tests.services.shard_processes import Cluster, cluster

DONE, SETTLED = LetterStatus.DONE, LetterStatus.SETTLED


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def bury(client: Client, group: str, topic: str, count: int, *, reason: str = "no stock") -> None:
    """Make dead letters of ``count`` new messages of a topic."""
    client.create_topic(topic, queues=1)
    sent = [
        NewMessage(body=f"{topic} {n}", keys=(f"{topic}-{n}",), tags="odd" if n % 2 else "even")
        for n in range(count)
    ]
    client.produce(topic, sent)
    found = client.receive(group, topic, max_messages=count).messages
    client.give_back(group, found, delay_level=-1, reason=reason)


def listed(client: Client, group: str, wanted: DeadLetterFilter | None = None) -> list[DeadLetter]:
    return list(client.dead_letters(group, wanted, order="oldest").messages)


def bodies_in(client: Client, topic: str) -> list[str]:
    return [each.body or "" for each in client.pull(topic, 0, max_messages=1000).messages]


def resend_all(client: Client, group: str, batch: int) -> list[ResentLetters]:
    """Resend all dead letters in batches, as a client does that follows the cursor."""
    batches = [client.resend_dead_letters(group, max_messages=batch)]
    while batches[-1].next is not None:
        again = client.resend_dead_letters(group, max_messages=batch, cursor=batches[-1].next)
        batches.append(again)
    return batches


def test_a_dead_letter_is_listed_with_its_history(client: Client) -> None:
    bury(client, "snapshot", "tale", 1)
    (letter,) = listed(client, "snapshot")
    (first,) = client.pull("tale", 0).messages
    assert (letter.source_topic, letter.origin_message_id) == ("tale", first.offset_msg_id)
    assert (letter.reason, letter.delivery_attempts, letter.body) == ("no stock", 1, "tale 0")
    assert letter.dead_since == letter.store_timestamp
    assert client.lag("snapshot").dead_letters == 1


def test_dead_letters_are_paged_and_filtered(client: Client) -> None:
    bury(client, "many", "first", 6)
    bury(client, "many", "second", 5, reason="broken")
    page = client.dead_letters("many", limit=4)
    found = [each.body for each in page.messages]
    while page.next is not None:
        page = client.dead_letters("many", limit=4, cursor=page.next)
        found += [each.body for each in page.messages]
    every = [f"first {n}" for n in range(6)] + [f"second {n}" for n in range(5)]
    assert found == every[::-1]
    last = listed(client, "many")[-1]
    for wanted, expected in (
        (DeadLetterFilter(topic="first", tag="odd"), ["first 1", "first 3", "first 5"]),
        (DeadLetterFilter(reason="rok"), every[6:]),
        (DeadLetterFilter(key="second-3"), ["second 3"]),
        (DeadLetterFilter(key=last.uniq_key), ["second 4"]),
        (DeadLetterFilter(key=last.origin_message_id), ["second 4"]),
        (DeadLetterFilter.model_validate({"to": "2001-01-01T00:00:00Z"}), []),
        (DeadLetterFilter.model_validate({"from": last.dead_since + 1}), []),
    ):
        assert [each.body for each in listed(client, "many", wanted)] == expected


def test_resent_messages_reach_the_group_again(client: Client) -> None:
    bury(client, "again", "returning", 3)
    letters = listed(client, "again")
    done = client.resend_dead_letters("again", letters[:1]).results
    assert [(each.id, each.status, each.topic) for each in done] == [
        (letters[0].offset_msg_id, DONE, "returning")
    ]
    done += client.resend_dead_letters(
        "again", DeadLetterFilter(key="returning-1"), to="group"
    ).results
    assert done[1].topic == "%RETRY%again"

    found = client.receive("again", "returning").messages
    assert sorted(each.body or "" for each in found) == ["returning 0", "returning 1"]
    assert {(each.reconsume_times, each.delivery_attempt) for each in found} == {(0, 1)}
    assert {each.properties["ORIGIN_MESSAGE_ID"] for each in found} == {
        each.origin_message_id for each in letters[:2]
    }
    assert {each.offset_msg_id for each in found} == {each.copy_id for each in done}
    assert listed(client, "again") == letters[2:]
    assert client.lag("again").dead_letters == 1


def test_all_are_resent_in_batches_and_once(client: Client) -> None:
    bury(client, "batches", "heap", 7)
    ids = [each.offset_msg_id for each in listed(client, "batches")]
    dry = client.resend_dead_letters("batches", dry_run=True)
    assert [each.id for each in dry.results] == ids
    batches = resend_all(client, "batches", 3)
    assert [len(each.results) for each in batches] == [3, 3, 1]
    again = client.resend_dead_letters("batches", ids)
    assert {each.status for each in again.results} == {SETTLED}
    assert bodies_in(client, "heap") == [f"heap {n}" for n in range(7)] * 2


def test_a_purge_shows_first_what_it_ends(client: Client) -> None:
    bury(client, "purged", "waste", 5)
    letters = listed(client, "purged")
    assert client.purge_dead_letters("purged", letters[3:4]).purged == 1
    for dry_run in (True, False):
        found = client.purge_dead_letters("purged", offset=2, dry_run=dry_run)
        assert (found.purged, found.dry_run) == (2, dry_run)
    assert [each.body for each in listed(client, "purged")] == ["waste 2", "waste 4"]
    assert client.purge_dead_letters("purged", before_ms=letters[0].dead_since).purged == 0
    assert client.purge_dead_letters("purged").purged == 2
    assert listed(client, "purged") == []
    assert client.lag("purged").dead_letters == 0
    assert len(bodies_in(client, "%DLQ%purged")) == 5


def test_a_purge_takes_the_filters_of_a_resend(client: Client) -> None:
    bury(client, "sieved", "sieve", 6)
    odd = DeadLetterFilter(tag="odd")
    assert client.purge_dead_letters("sieved", odd, dry_run=True).purged == 3
    first = client.purge_dead_letters("sieved", odd, max_messages=2)
    rest = client.purge_dead_letters("sieved", odd, cursor=first.next)
    assert [(each.purged, len(each.results)) for each in (first, rest)] == [(2, 2), (1, 1)]
    assert (rest.next, rest.queues) == (None, ())
    assert [each.body for each in listed(client, "sieved")] == ["sieve 0", "sieve 2", "sieve 4"]


def test_requests_about_dead_letters_of_no_use_are_refused(client: Client) -> None:
    bury(client, "used", "usage", 1)
    for build, problem in (
        (lambda: client.dead_letters("never-used"), "group-unknown"),
        (lambda: client.resend_dead_letters("never-used"), "group-unknown"),
        (lambda: client.purge_dead_letters("never-used"), "group-unknown"),
        (lambda: client.dead_letters("used", cursor="bad"), "bad-cursor"),
        (lambda: client.resend_dead_letters("used", cursor="bad"), "bad-cursor"),
        (lambda: client.resend_dead_letters("used", ["no id"]), "bad-message-id"),
    ):
        with pytest.raises(ProblemError) as refused:
            build()
        assert refused.value.problem["type"].endswith(problem)
    with pytest.raises(ValueError, match="'' is no group name"):
        client.purge_dead_letters("", before_ms=0)
    with pytest.raises(ValueError, match="swap them"):
        DeadLetterFilter.model_validate({"from": "2026-01-01T00:00:00Z", "to": 0})


def test_the_command_lists_resends_exports_and_purges(
    pair: ServicePair, client: Client, tmp_path: Path
) -> None:
    bury(client, "typed", "typing", 4)
    ids = [each.offset_msg_id for each in listed(client, "typed")]
    query, write = ("--query-url", pair.query.url), ("--writer-url", pair.writer.url)

    table = run_mqstore("dlq", "ls", "typed", "-o", "table", *query)
    assert [line.split()[1] for line in table.stdout.splitlines()[1:]] == ids[::-1]
    assert "typing-3" in table.stdout
    odd = run_mqstore(
        "dlq",
        "ls",
        "typed",
        "--tag",
        "odd",
        "--since",
        "2020-01-01T00:00:00Z",
        "-o",
        "json",
        *query,
    )
    assert [json.loads(line)["body"] for line in odd.stdout.splitlines()] == [
        "typing 3",
        "typing 1",
    ]

    resent = run_mqstore(
        "dlq", "resend", "typed", "--id", ids[0], "--to", "group", "-o", "json", *write
    )
    assert [json.loads(line)["status"] for line in resent.stdout.splitlines()] == ["done"]
    dry = run_mqstore("dlq", "resend", "typed", "--tag", "odd", "--dry-run", "-o", "table", *write)
    assert [line.split()[:3] for line in dry.stdout.splitlines()[1:]] == [
        [ids[1], "done", "typing"],
        [ids[3], "done", "typing"],
    ]
    file = tmp_path / "letters.jsonl"
    exported = run_mqstore("dlq", "export", "typed", str(file), *query)
    assert exported.stdout == f"wrote 3 dead letters to {file}\n"
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["offsetMsgId"] for each in written] == ids[1:]
    assert [each["body"] for each in written] == ["typing 1", "typing 2", "typing 3"]
    again = run_mqstore("dlq", "export", "typed", str(file), *query)
    assert (again.returncode, f"{file} exists" in again.stderr) == (2, True)
    printed = run_mqstore("dlq", "export", "typed", "-", "--tag", "odd", *query)
    assert len(printed.stdout.splitlines()) == 2
    some = run_mqstore("dlq", "purge", "typed", "--key", "typing-3", "--yes", "-o", "table", *write)
    assert some.stdout.splitlines()[1:] == [f"{ids[3]}  done         -", "purged: 1"]
    purged = run_mqstore("dlq", "purge", "typed", "--all", "--yes", "-o", "table", *write)
    assert (purged.returncode, purged.stdout) == (0, "purged: 2\n")
    for wrong in (("resend", "typed"), ("purge", "typed", "--all", "--offset", "1")):
        refused = run_mqstore("dlq", *wrong, *write)
        assert (refused.returncode, "give " in refused.stderr) == (2, True)
    year = run_mqstore("dlq", "ls", "typed", "--since", "2026", *query)
    assert (year.returncode, "2026 as a time is 1970-01-01T00:00:02Z" in year.stderr) == (2, True)
    wrong_time = run_mqstore("dlq", "ls", "typed", "--since", "yesterday", *query)
    assert (wrong_time.returncode, "is no time" in wrong_time.stderr) == (2, True)


def test_a_kill_in_the_middle_of_a_resend_loses_and_repeats_nothing(tmp_path: Path) -> None:
    root, count = tmp_path / "store", 120
    with writer(root) as process, Client(process.url) as client:
        bury(client, "g", "cut", count)
        resent: list[ResentLetters] = []
        has_begun = threading.Event()

        def resend_until_the_end() -> None:
            cursor: str | None = None
            try:
                while cursor is not None or not resent:
                    done = client.resend_dead_letters("g", max_messages=2, cursor=cursor)
                    resent.append(done)
                    cursor = done.next
                    has_begun.set()
            except ClientError:
                has_begun.set()

        thread = threading.Thread(target=resend_until_the_end)
        thread.start()
        assert has_begun.wait(60)
        process.kill()
        thread.join(60)
    before = {each.id for batch in resent for each in batch.results}
    with service_pair(root) as pair, pair.client() as client:
        open_ids = {each.offset_msg_id for each in client.dead_letters("g", limit=1000).messages}
        assert before.isdisjoint(open_ids)
        resend_all(client, "g", 50)
        assert Counter(bodies_in(client, "cut")) == {f"cut {n}": 2 for n in range(count)}
        assert listed(client, "g") == []


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dead-shards"), 2) as found:
        yield found


def bury_on_both(shards: Cluster, group: str, topic: str, count: int) -> None:
    """Make dead letters on each shard."""
    with shards.client(0) as client:
        client.create_topic(topic, queues=1)
    for number in (0, 1):
        with shards.client(number, shard=number) as client:
            sent = [NewMessage(body=f"{topic} {number}.{n}") for n in range(count)]
            client.produce(topic, sent)
            found = client.receive(group, topic, max_messages=count).messages
            client.give_back(group, found, delay_level=-1)


def test_any_shard_lists_resends_and_purges_those_of_all(shards: Cluster) -> None:
    bury_on_both(shards, "g", "both", 3)
    with shards.client(0) as first, shards.client(1) as second:
        letters = listed(first, "g")
        assert listed(second, "g") == letters
        assert [each.shard for each in letters] == [0, 0, 0, 1, 1, 1]

        chosen = [letters[0], letters[5]]
        done = second.resend_dead_letters("g", [*chosen, chosen[0]]).results
        assert {each.id: each.status for each in done} == {
            each.offset_msg_id: DONE for each in chosen
        }
        again = first.resend_dead_letters("g", chosen).results
        assert [each.status for each in again] == [SETTLED, SETTLED]

        batches = resend_all(first, "g", 1)
        assert [len(each.results) for each in batches][:2] == [2, 2]
        found = [each for n in (0, 1) for each in first.pull("both", 0, shard=n).messages]
        assert Counter(each.body for each in found) == {
            f"both {shard}.{n}": 2 for shard in (0, 1) for n in range(3)
        }
        assert listed(second, "g") == []


def test_a_purge_covers_all_shards_or_the_named_one(shards: Cluster) -> None:
    bury_on_both(shards, "wiped", "wiping", 2)
    with shards.client(1) as client:
        with pytest.raises(ProblemError, match="shard="):
            client.purge_dead_letters("wiped", offset=1)
        assert client.purge_dead_letters("wiped", offset=1, shard=0).purged == 1
        assert client.purge_dead_letters("wiped", dry_run=True).purged == 3
        batch = client.purge_dead_letters("wiped", DeadLetterFilter(), max_messages=1)
        assert (batch.purged, len(batch.results)) == (2, 2)
        for act in (client.purge_dead_letters, client.resend_dead_letters):
            with pytest.raises(ProblemError, match="no dead letters"):
                act("none")
        found = client.purge_dead_letters("wiped")
        assert {each.shard: each.purged for each in found.queues} == {0: 0, 1: 1}
        assert listed(client, "wiped") == []


def test_a_shard_that_is_down_is_named(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as shards:
        bury_on_both(shards, "g", "half", 1)
        with shards.client(0) as client:
            letters = listed(client, "g")
            shards.shards[1].writer.kill()
            done = client.resend_dead_letters("g", letters)
            assert {each.id: each.status for each in done.results} == {
                letters[0].offset_msg_id: DONE,
                letters[1].offset_msg_id: LetterStatus.UNREACHABLE,
            }
            assert done.shards is not None
            assert done.shards.missing == (1,)
            assert client.resend_dead_letters("g").next is None
            assert listed(client, "g") == letters[1:]
