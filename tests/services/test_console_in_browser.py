"""The console in a browser: log in, roles, the frame of all pages, and the overview."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import NewMessage
from tests.services.console_browser import TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """Services with tokens, and a group that has not read a message."""
    with service_pair(tmp_path_factory.mktemp("console") / "store", **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("orders", queues=2)
            client.produce("orders", [NewMessage(body=f"order {i}") for i in range(7)])
            client.put_group("billing")
            client.commit("billing", "orders", {0: 0, 1: 0})
        yield found


# log in -------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_and_a_right_one_is_kept_for_the_tab(
    console: ConsolePage,
) -> None:
    console.open("overview")
    assert console.serious_findings() == []
    console.log_in("no-token-of-this-store")
    expect(console.page.get_by_role("alert")).to_contain_text("not valid")
    console.log_in(TOKENS["token_admin"])
    console.heading("Overview")
    console.page.reload()
    console.heading("Overview")
    assert "token" not in console.page.url
    kept = console.page.evaluate("[Object.values(sessionStorage), Object.values(localStorage)]")
    assert TOKENS["token_admin"] in kept[0]
    assert TOKENS["token_admin"] not in kept[1]
    console.page.get_by_role("button", name="Log out").click()
    console.page.get_by_label("Token", exact=True).wait_for()
    assert console.page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_token_is_kept_in_the_browser_only_if_the_user_chooses_so(console: ConsolePage) -> None:
    console.open()
    console.page.get_by_label("Keep it in this browser").check()
    console.log_in(TOKENS["token_admin"])
    console.heading("Overview")
    assert TOKENS["token_admin"] in console.page.evaluate("Object.values(localStorage)")


def test_pages_that_a_role_may_not_use_are_not_offered(console: ConsolePage) -> None:
    console.open("overview")
    console.log_in(TOKENS["token_produce"])
    expect(console.page.get_by_text("This page needs the role consume")).to_be_visible()
    expect(console.page.get_by_role("link", name="Overview")).to_have_count(0)


# the frame ----------------------------------------------------------------------------------


def test_the_calls_behind_a_view_are_shown_as_commands_without_the_token(
    console: ConsolePage,
) -> None:
    console.enter()
    expect(console.page.get_by_text("All is well")).to_be_visible()
    console.page.get_by_role("button", name="curl").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_text("GET /v1/lag")).to_be_visible()
    text = dialog.inner_text()
    assert re.search(r"curl \\\n  -H \"Authorization: Bearer \$MQSTORE_TOKEN\"", text)
    assert "/ui/writer/v1/store?shard=0'" in text
    assert TOKENS["token_admin"] not in text
    assert console.serious_findings() == []
    console.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(console.page.get_by_role("button", name="curl")).to_be_focused()


def test_the_slash_key_moves_to_the_search_and_a_page_that_is_not_there_says_so(
    console: ConsolePage,
) -> None:
    console.enter("nothing")
    expect(console.page.get_by_text("The console has no page")).to_be_visible()
    console.page.keyboard.press("/")
    expect(console.page.get_by_role("searchbox")).to_be_focused()


def test_times_colours_and_a_narrow_window(browser: Browser, pair: ServicePair) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "timezone_id": "Asia/Tokyo"}
    with opened(browser, pair.query_url, color_scheme="dark", **options) as console:
        console.enter()
        expect(console.page.get_by_text("All is well")).to_be_visible()
        assert not console.overflows()
        assert console.serious_findings() == []
        time = console.page.locator("time").first
        local = time.inner_text()
        console.page.get_by_role("button", name="Times in local time").click()
        assert time.inner_text() != local
        assert local in (time.get_attribute("title") or "")
        root = console.page.locator("html")
        expect(root).to_have_attribute("data-theme", "dark")
        console.page.get_by_role("button", name="Light colours").click()
        expect(root).to_have_attribute("data-theme", "light")
        assert console.serious_findings() == []
        expect(console.page.get_by_role("link", name="Overview")).to_be_hidden()
        console.page.get_by_role("button", name="Navigation", exact=True).click()
        expect(console.page.get_by_role("link", name="Overview")).to_be_visible()


# overview -----------------------------------------------------------------------------------


def test_the_overview_shows_health_lags_disk_recovery_and_events(console: ConsolePage) -> None:
    console.enter()
    page = console.page
    expect(page.get_by_text("All is well")).to_be_visible()
    lags = page.get_by_role("region", name="Greatest lags")
    expect(lags.get_by_role("row", name="billing")).to_contain_text("7")
    expect(page.get_by_role("region", name="Disk").get_by_role("meter")).to_be_visible()
    expect(page.get_by_role("region", name="Last recovery")).to_contain_text("new store")
    events = page.get_by_role("region", name="Events")
    expect(events.get_by_text("Topic orders was created or changed")).to_be_visible()
    assert console.serious_findings() == []


def test_the_page_of_the_api_works_under_its_policy(browser: Browser, pair: ServicePair) -> None:
    with opened(browser, pair.query_url) as console:
        console.page.goto(f"{pair.query_url}/docs")
        expect(console.page.get_by_text("/v1/lag", exact=True).first).to_be_visible()


def test_paused_writes_are_reported_without_a_reload(
    console: ConsolePage, pair: ServicePair
) -> None:
    console.enter()
    expect(console.page.get_by_text("All is well")).to_be_visible()
    with pair.client(token=TOKENS["token_admin"]) as client:
        client.put_writes(paused=True, reason="<b>moving</b> to another volume")
        try:
            expect(console.page.get_by_text("<b>moving</b> to another volume").first).to_be_visible(
                timeout=60_000
            )
        finally:
            client.put_writes(paused=False)


def test_a_shard_that_is_down_is_named_and_the_others_are_shown(
    browser: Browser, shards: Cluster
) -> None:
    with opened(browser, shards.shards[0].query.url) as console:
        shards.shards[1].writer.kill()
        try:
            console.open()
            alert = console.page.get_by_role("alert").filter(has_text="Shard 1")
            expect(alert.first).to_contain_text("Shard 1 is missing here")
            expect(console.page.get_by_role("region", name="Disk")).to_contain_text("used")
        finally:
            shards.restart_writer(1)


def test_an_unreachable_service_is_named_and_can_be_tried_again(
    browser: Browser, pair: ServicePair
) -> None:
    with opened(browser, pair.query_url) as console:
        console.enter()
        expect(console.page.get_by_text("All is well")).to_be_visible()
        console.page.route("**/v1/lag*", lambda route: route.abort())
        console.page.reload()
        lags = console.page.get_by_role("region", name="Greatest lags")
        expect(lags.get_by_role("alert")).to_contain_text("query cannot be reached")
        console.page.unroute("**/v1/lag*")
        lags.get_by_role("button", name="Try again").click()
        expect(lags.get_by_role("row", name="billing")).to_be_visible()
