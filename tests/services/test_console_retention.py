"""The console's page of retention: the plan, who has not read what goes, and a run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import NewMessage
from tests.services.console_browser import TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

pytestmark = pytest.mark.browser

HOUR_S = 3_600
SEGMENT = 1 << 20
SEGMENTS = 4
KEPT_H = 72


def _age_segments(store: Path) -> None:
    """Make each segment but the newest look written long ago, the first two before the limit."""
    paths = sorted((store / "commitlog").iterdir())
    now = time.time()
    for path, hours in zip(paths, (KEPT_H + 20, KEPT_H + 10, KEPT_H - 40), strict=False):
        os.utime(path, (now - hours * HOUR_S, now - hours * HOUR_S))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """Four segments, two of them expired; deleteWhen is an hour that is not now."""
    store = tmp_path_factory.mktemp("retention") / "store"
    other_hour = (time.localtime().tm_hour + 12) % 24
    settings = {"mapped_file_size_commit_log": SEGMENT, "delete_when": f"{other_hour:02}"}
    with service_pair(store, file_reserved_time=KEPT_H, **settings, **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("orders", queues=1)
            for _ in range(SEGMENTS - 1):
                body = "x" * 100_000
                client.produce("orders", [NewMessage(body=body) for _ in range(10)])
            client.produce("orders", NewMessage(body="the newest"))
            client.commit("billing", "orders", {0: 0})
            client.commit("ahead", "orders", {0: 10 * (SEGMENTS - 1) + 1})
            _age_segments(store)
        yield found


def test_the_plan_shows_what_goes_when_and_who_has_not_read_it(console: ConsolePage) -> None:
    console.enter("retention", "consume")
    page = console.page
    strip = page.get_by_role("region", name="What goes when").get_by_role("img")
    expect(strip).to_have_accessible_name(re.compile("0 go now; 1 group behind"))
    segments = page.get_by_role("region", name="Segments, oldest first")
    first = segments.get_by_role("row").nth(1)
    expect(first).to_contain_text("expired: waits for deleteWhen")
    readers = page.get_by_role("region", name="Who has not read it")
    expect(readers.get_by_role("row", name="billing")).to_contain_text("31")
    expect(readers.get_by_role("row", name="ahead")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete expired now")).to_have_count(0)
    assert console.serious_findings() == []


def test_a_run_is_previewed_and_deletes_what_has_expired(
    console: ConsolePage, pair: ServicePair
) -> None:
    console.enter("retention")
    page = console.page
    segments = page.get_by_role("region", name="Segments, oldest first")
    oldest = "0" * 20
    expect(segments.get_by_text(oldest, exact=True)).to_be_visible()
    page.get_by_role("button", name="Delete expired now").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("2 segments")).to_be_visible()
    assert console.serious_findings() == []
    dialog.get_by_role("button", name="Delete now").click()
    expect(dialog).to_have_count(0)
    expect(segments.get_by_text(oldest, exact=True)).to_have_count(0)
    expect(segments.get_by_text(f"{SEGMENT:020}", exact=True)).to_have_count(0)
    with pair.client(token=TOKENS["token_admin"]) as client:
        assert client.store().min_offset == 2 * SEGMENT


def test_a_store_that_keeps_everything_is_said_to_do_so(browser: Browser, tmp_path: Path) -> None:
    with service_pair(tmp_path / "store", retention=False) as pair:
        with pair.client() as client:
            client.create_topic("orders", queues=4)
            stored = client.produce("orders", NewMessage(body="x")).messages[0]
            assert client.retention().oldest_ms == stored.store_timestamp
        with opened(browser, pair.query_url) as console:
            console.open("retention")
            page = console.page
            expect(page.get_by_text("kept for good")).to_be_visible()
            expect(page.get_by_text("This store-writer deletes nothing.")).to_be_visible()
            expect(page.get_by_text("876")).to_have_count(0)
            oldest = page.get_by_text("Oldest message", exact=True).locator("..")
            expect(oldest).to_contain_text(re.compile(r"\d+(\.\d)? m?s\b"))  # not an hour
            expect(page.get_by_role("button", name="Delete expired now")).to_have_count(0)
            console.open("")
            expect(page.get_by_text("1 queue in use")).to_be_visible()


def test_a_plan_that_cannot_be_loaded_can_be_tried_again(console: ConsolePage) -> None:
    console.enter("retention")
    page = console.page
    page.route("**/v1/store/retention*", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("query cannot be reached")
    page.unroute("**/v1/store/retention*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("region", name="What goes when")).to_be_visible()


def test_no_group_is_said_to_have_read_everything_while_lags_are_not_known(
    console: ConsolePage,
) -> None:
    page = console.page
    page.route("**/v1/lag*", lambda route: route.abort())
    console.enter("retention")
    readers = page.get_by_role("region", name="Who has not read it")
    expect(readers).to_contain_text("The lags of all groups are not known")
    expect(readers).not_to_contain_text("Every group has read everything")
    page.unroute("**/v1/lag*")


def test_a_shard_that_is_down_is_named_and_nothing_overflows(
    browser: Browser, shards: Cluster
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, shards.shards[0].query.url, **options) as console:
        shards.shards[1].writer.kill()
        try:
            console.open("retention", shard="1")
            alert = console.page.get_by_role("alert").filter(has_text="Shard 1")
            expect(alert.first).to_contain_text("Shard 1 is missing here")
            expect(console.page.get_by_label("Shard", exact=True)).to_have_value("0")
            assert not console.overflows()
            assert console.serious_findings() == []
        finally:
            shards.restart_writer(1)
