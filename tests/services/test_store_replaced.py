"""A query service whose store is replaced at its path: nothing of the old one is answered then."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from mqstore.storage.message_store import Durability
from mqstore.storage.paths import StorePaths
from tests.services.service_processes import query
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store

COUNT: Final = 5
PULL: Final = "/v1/topics/T/queues/0/messages"
WAIT_S: Final = 30.0


def _fill(root: Path, start: int) -> list[str]:
    """A closed store with messages of its own; their ids."""
    with open_store(root, CONFIG) as store:
        store.create_topic("T", queues=1)
        for number in range(start, start + COUNT):
            put_message(store, message(store, number), Durability.SYNC)
        return [each.offset_message_id for each in store.lookups.records("T", 0, 0).records]


class Two:
    """A store that a query service has open, and one that is to take its place."""

    def __init__(self, folder: Path) -> None:
        self.root, self.other = folder / "store", folder / "other"
        self.ids = _fill(self.root, 0)
        _fill(self.other, 100)

    def rename(self) -> None:
        self.root.rename(self.root.with_name("old"))
        self.other.rename(self.root)

    def remove_and_copy(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.other, self.root)

    def copy_over(self) -> None:
        """File by file, each under its name: the state page first."""
        paths = StorePaths(self.root)
        for path in (paths.state, paths.format):
            staged = path.with_name("staged")
            shutil.copy2(StorePaths(self.other).root / path.relative_to(self.root), staged)
            staged.rename(path)
        for name in ("commitlog", "consumequeue", "index"):
            shutil.rmtree(self.root / name)
            shutil.copytree(self.other / name, self.root / name)

    def open_as_another(self) -> None:
        """Its writer makes another store of the same state page."""
        paths = StorePaths(self.root)
        shutil.copy2(StorePaths(self.other).format, paths.format)
        for name in ("commitlog", "consumequeue", "index", "mqstore/blocks"):
            shutil.rmtree(self.root / name)
            shutil.copytree(self.other / name, self.root / name)
        with open_store(self.root, CONFIG):
            pass


REPLACED: Final = (Two.rename, Two.remove_and_copy, Two.copy_over, Two.open_as_another)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


@pytest.fixture
def http(two: Two) -> Iterator[httpx.Client]:
    with query(two.root) as find, httpx.Client(base_url=find.url, timeout=WAIT_S) as client:
        yield client


def _bodies(answer: httpx.Response) -> set[str]:
    return {each["body"].split(" ")[1] for each in answer.json()["messages"]}


def _until_open(http: httpx.Client, get: str) -> httpx.Response:
    """The first answer but 503."""
    while (answer := http.get(get)).status_code == 503:
        assert answer.json()["type"] == "urn:mqstore:problem:store-not-ready"
        assert answer.headers["retry-after"]
    return answer


@pytest.mark.parametrize("replace", REPLACED, ids=lambda each: each.__name__)
def test_what_is_answered_after_a_store_was_replaced_is_the_new_ones(
    two: Two, http: httpx.Client, replace: Callable[[Two], None]
) -> None:
    old = {str(each) for each in range(COUNT)}
    assert _bodies(http.get(PULL)) == old
    page = http.get("/v1/topics/T/messages?limit=2").json()
    tag = http.get("/v1/segments/00000000000000000000", headers={"range": "bytes=0-9"})
    before = http.get("/v1/store").json()["storeId"]
    replace(two)
    found = http.get(PULL)
    assert found.status_code == 503 or not _bodies(found) & old
    assert _bodies(_until_open(http, PULL)) == {str(each) for each in range(100, 100 + COUNT)}
    assert http.get("/v1/store").json()["storeId"] != before
    assert http.get("/healthz/ready").status_code == 200
    refused = http.get(f"/v1/topics/T/messages?limit=2&cursor={page['next']}")
    assert refused.status_code == 400
    assert refused.json()["type"] == "urn:mqstore:problem:bad-cursor"
    assert before[:12] in refused.json()["detail"]
    headers = {"range": "bytes=0-9", "if-match": tag.headers["etag"]}
    changed = http.get("/v1/segments/00000000000000000000", headers=headers)
    assert changed.json()["type"] == "urn:mqstore:problem:epoch-changed"
    assert "mqstore_store_replaced_total 1.0" in http.get("/metrics").text


def test_a_store_that_is_gone_is_not_answered_from_and_comes_back(
    two: Two, http: httpx.Client
) -> None:
    assert http.get(PULL).status_code == 200
    away = two.root.with_name("away")
    two.root.rename(away)
    gone = http.get(PULL)
    assert gone.status_code == 503
    assert gone.headers["retry-after"]
    ready = http.get("/healthz/ready")
    assert ready.status_code == 503
    assert str(two.root) in ready.json()["detail"]
    assert http.get("/healthz/live").status_code == 200
    away.rename(two.root)
    assert _bodies(_until_open(http, PULL)) == {str(each) for each in range(COUNT)}


def test_a_log_directory_that_was_replaced_is_another_store(two: Two, http: httpx.Client) -> None:
    assert http.get(PULL).status_code == 200
    log = StorePaths(two.root).commit_log
    log.rename(log.with_name("old"))
    shutil.copytree(log.with_name("old"), log)
    assert http.get(PULL).status_code == 503
    assert _bodies(_until_open(http, PULL)) == {str(each) for each in range(COUNT)}


def test_a_long_poll_of_a_store_that_is_replaced_ends(two: Two, http: httpx.Client) -> None:
    answers: list[httpx.Response] = []

    def poll() -> None:
        answers.append(http.get(f"{PULL}?offset={COUNT}&wait=30"))

    thread = threading.Thread(target=poll)
    thread.start()
    while "mqstore_open_polls 1.0" not in http.get("/metrics").text:
        pass
    two.rename()
    thread.join(WAIT_S)
    assert answers[0].status_code == 503
    assert answers[0].headers["retry-after"]


def test_a_stream_of_a_store_that_is_replaced_ends_and_is_not_taken_up_in_the_new_one(
    two: Two, http: httpx.Client
) -> None:
    with http.stream("GET", "/v1/topics/T/events?from=0") as stream:
        lines = stream.iter_lines()
        seen = [next(line for line in lines if line.startswith("id: ")) for _ in range(COUNT)]
        two.rename()
        rest = [line for line in lines if line.startswith("id: ")]
    assert rest == []
    again = {"last-event-id": seen[-1].removeprefix("id: ")}
    while (answer := http.get("/v1/topics/T/events", headers=again)).status_code == 503:
        pass
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:mqstore:problem:bad-cursor"


def test_a_store_that_cannot_be_opened_ends_the_service(two: Two) -> None:
    with query(two.root) as find, httpx.Client(base_url=find.url) as http:
        assert http.get(PULL).status_code == 200
        StorePaths(two.other).format.write_text("no store")
        two.rename()
        assert find.process.wait(WAIT_S) == 1
