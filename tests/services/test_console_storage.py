"""The console's pages of delayed messages, scrub and settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import NewMessage
from tests.services.console_browser import TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

pytestmark = pytest.mark.browser

PAGES = ("delayed", "scrub", "settings")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage") / "store"


@pytest.fixture(scope="module")
def pair(store: Path) -> Iterator[ServicePair]:
    settings = {"damage_repair": "manual", "file_reserved_time": 71}
    with service_pair(store, **settings, **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=f"order {i}") for i in range(20)])
            client.produce("orders", [NewMessage(body="later", delay_level=18) for _ in range(3)])
        yield found


# delayed ------------------------------------------------------------------------------------


def test_delayed_messages_are_counted_by_level(console: ConsolePage) -> None:
    console.enter("delayed", "consume")
    page = console.page
    levels = page.get_by_role("region", name="Delay levels").last
    row = levels.get_by_role("row", name="2h level 18")
    expect(row.get_by_role("cell").nth(1)).to_have_text("3")
    expect(levels.get_by_role("row")).to_have_count(2)
    assert console.serious_findings() == []
    page.get_by_label("Levels without messages").check()
    expect(levels.get_by_role("row")).to_have_count(19)
    assert "all=1" in page.url


# settings -----------------------------------------------------------------------------------


def test_settings_are_shown_with_their_source_and_tokens_are_not(console: ConsolePage) -> None:
    console.enter("settings", only="changed")
    page = console.page
    row = page.get_by_role("row", name="fileReservedTime")
    expect(row).to_contain_text("environment")
    expect(row.get_by_role("cell").nth(1)).to_have_text("71")
    expect(page.get_by_role("row", name="tokenAdmin")).to_contain_text("(set)")
    assert TOKENS["token_admin"] not in page.content()
    row.get_by_role("button").click()
    setting = page.get_by_role("region", name="fileReservedTime")
    expect(setting.get_by_text("MQSTORE_FILE_RESERVED_TIME")).to_be_visible()
    assert console.serious_findings() == []
    setting.get_by_label("Check another value").fill("soon")
    setting.get_by_role("button", name="Check").click()
    expect(setting.get_by_role("alert")).to_be_visible()
    setting.get_by_label("Check another value").fill("48")
    setting.get_by_role("button", name="Check").click()
    expect(setting.get_by_text("It can be 48")).to_be_visible()
    page.get_by_label("Name contains").fill("no such setting")
    expect(page.get_by_text("No setting is like this")).to_be_visible()
    page.get_by_label("Name contains").fill("")
    page.get_by_role("button", name="query").click()
    expect(page.get_by_role("row", name="fileReservedTime")).to_have_count(0)
    assert "of=query" in page.url


def test_settings_are_for_administrators(console: ConsolePage) -> None:
    console.enter("settings", "consume")
    expect(console.page.get_by_text("This page needs the role admin")).to_be_visible()
    expect(console.page.get_by_role("link", name="Settings")).to_have_count(0)


# scrub and repair ---------------------------------------------------------------------------


def _damage(store: Path, body: bytes) -> None:
    """Change bytes of a stored body, as a failing disk does."""
    log = sorted((store / "commitlog").iterdir())[0]
    at = log.read_bytes().index(body)
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"#" * len(body))
        file.flush()
        os.fsync(file.fileno())


def test_damage_is_found_repaired_after_a_preview_and_kept(
    console: ConsolePage, pair: ServicePair, store: Path
) -> None:
    with pair.client(token=TOKENS["token_admin"]) as client:
        client.flush()
    console.enter("scrub")
    page = console.page
    expect(page.get_by_text("No damage is known")).to_be_visible()
    assert console.serious_findings() == []
    _damage(store, b"order 13")
    page.get_by_role("button", name="Repair", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("1 message cannot be restored")).to_be_visible()
    assert console.serious_findings() == []
    dialog.get_by_role("button", name="Repair").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Repairs").click()
    expect(page.get_by_role("row", name="a tombstone keeps the place")).to_be_visible()
    page.get_by_role("button", name="Quarantine").click()
    entry = page.get_by_role("region", name="Quarantine").last
    entry.get_by_role("button", name="Remove").first.click()
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("The entry was removed")).to_be_visible()
    assert console.serious_findings() == []


def test_a_reader_is_offered_no_repair(console: ConsolePage) -> None:
    console.enter("scrub", "consume")
    expect(console.page.get_by_text("Pass over the log")).to_be_visible()
    expect(console.page.get_by_role("button", name="Repair", exact=True)).to_have_count(0)
    expect(console.page.get_by_role("button", name="Check the log now")).to_have_count(0)


# all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_cannot_be_loaded_can_be_tried_again(console: ConsolePage, name: str) -> None:
    console.enter(name)
    page = console.page
    page.get_by_role("heading", level=1).wait_for()
    page.route("**/ui/writer/**", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("query cannot be reached")
    assert console.serious_findings() == []
    page.unroute("**/ui/writer/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_shard_that_is_down_is_named_and_nothing_overflows(
    browser: Browser, shards: Cluster
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, shards.shards[0].query.url, **options) as console:
        shards.shards[1].writer.kill()
        try:
            for name in PAGES:
                console.open(name)
                alert = console.page.get_by_role("alert")
                expect(alert).to_contain_text("Shard 1 is missing here")
                assert not console.overflows(), name
                assert console.serious_findings() == [], name
        finally:
            shards.restart_writer(1)
