"""The console's page of groups: lags, reset, and dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import Client, NewMessage
from tests.services.console_browser import MARKUP, TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster, cluster

pytestmark = pytest.mark.browser

DEAD = 3


def _make_dead_letters(client: Client) -> None:
    """Reject messages of the group shipping: one has markup in its reason, key and body."""
    client.create_topic("parcels", queues=1)
    client.produce(
        "parcels", [NewMessage(body=f"{MARKUP} {i}", keys=[MARKUP]) for i in range(DEAD)]
    )
    received = client.receive("shipping", "parcels", max_messages=DEAD).messages
    assert len(received) == DEAD
    receipts = [each.receipt for each in received]
    client.give_back("shipping", receipts, delay_level=-1, reason=f"no stock {MARKUP}")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("groups") / "store", **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("orders", queues=2)
            client.produce("orders", [NewMessage(body=f"order {i}", queue_id=0) for i in range(7)])
            client.put_group("idle")
            client.commit("billing", "orders", {0: 2, 1: 0})
            client.commit("ahead", "orders", {0: 7, 1: 0})
            _make_dead_letters(client)
        yield found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("shards")) as found:
        with found.client() as client:
            client.create_topic("orders", queues=1)
            for shard in (0, 1):
                client.produce("orders", NewMessage(body="order"), shard=shard)
                client.commit("billing", "orders", {0: 0}, shard=shard)
        yield found


# all groups ---------------------------------------------------------------------------------


def test_all_groups_are_listed_with_their_lags(console: ConsolePage) -> None:
    console.enter("groups")
    page = console.page
    row = page.get_by_role("row", name="billing")
    expect(row.get_by_role("cell").nth(1)).to_have_text("5")
    expect(page.get_by_role("row", name="idle")).to_contain_text("no offset yet")
    expect(page.get_by_role("row", name="shipping").get_by_role("cell").nth(7)).to_have_text("3")
    page.get_by_label("Show", exact=True).select_option("behind")
    expect(page.get_by_role("row", name="ahead")).to_have_count(0)
    assert "only=behind" in page.url
    assert console.serious_findings() == []
    page.get_by_label("Name contains").fill("nothing has this name")
    expect(page.get_by_text("No group is like this")).to_be_visible()


# one group ----------------------------------------------------------------------------------


def test_a_group_shows_its_lag_by_state_and_by_queue(console: ConsolePage) -> None:
    console.enter("groups", "consume")
    page = console.page
    page.get_by_role("link", name="billing").click()
    console.heading("billing")
    states = page.get_by_role("region", name="The lag by state")
    expect(states.get_by_role("img")).to_have_accessible_name(
        "Messages of the lag: Waiting 5, Leased 0, Retrying 0, Acknowledged 0"
    )
    queue = page.get_by_role("row", name="orders 0")
    expect(queue.get_by_role("cell").nth(1)).to_have_text("5")
    expect(page.get_by_role("button", name="Reset offsets")).to_have_count(0)
    assert console.serious_findings() == []
    page.get_by_role("button", name="Members").click()
    expect(page.get_by_text("This group has no members")).to_be_visible()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_text("retryTimesMax")).to_be_visible()
    assert console.serious_findings() == []


def test_a_group_that_the_store_does_not_know_says_so(console: ConsolePage) -> None:
    console.enter("groups", group="unknown")
    expect(console.page.get_by_text("This group has not committed an offset")).to_be_visible()


def test_a_reset_is_previewed_and_then_done(console: ConsolePage, pair: ServicePair) -> None:
    with pair.client(token=TOKENS["token_admin"]) as client:
        client.commit("replayed", "orders", {0: 6, 1: 0})
        console.enter("groups", group="replayed")
        page = console.page
        page.get_by_role("button", name="Reset offsets").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Continue from").select_option("timestamp")
        dialog.get_by_label("Time", exact=True).fill("yesterday")
        expect(dialog.get_by_text("This is no time")).to_be_visible()
        expect(dialog.get_by_role("button", name="Preview")).to_be_disabled()
        dialog.get_by_label("Continue from").select_option("earliest")
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.get_by_text("6 messages will be delivered again")).to_be_visible()
        assert console.serious_findings() == []
        assert client.lag("replayed").lag == 1
        dialog.get_by_role("button", name="Reset offsets").click()
        expect(dialog).to_have_count(0)
        assert client.lag("replayed").lag == 7


# settings -----------------------------------------------------------------------------------


def test_a_group_is_created_after_a_preview(console: ConsolePage, pair: ServicePair) -> None:
    console.enter("groups")
    page = console.page
    page.get_by_role("button", name="Create group").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("no such/name")
    dialog.get_by_label("Retries", exact=True).fill("-1")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("Only letters, digits")).to_be_visible()
    expect(dialog.get_by_text("This is no whole number")).to_be_visible()
    assert console.serious_findings() == []
    dialog.get_by_label("Name", exact=True).fill("made-here")
    dialog.get_by_label("Retries", exact=True).fill("3")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("row", name="Retries 16 3")).to_be_visible()
    assert console.serious_findings() == []
    with pair.client(token=TOKENS["token_admin"]) as client:
        assert "made-here" not in {each.group for each in client.groups().groups}
        dialog.get_by_role("button", name="Create group").click()
        console.heading("made-here")
        found = client.group("made-here")
    assert (found.configured, found.config.retry_times_max) == (True, 3)


def test_settings_of_a_group_are_changed_after_a_preview(
    console: ConsolePage, pair: ServicePair
) -> None:
    with pair.client(token=TOKENS["token_admin"]) as client:
        client.put_group("changed", retry_times_max=5)
        console.enter("groups", group="changed", tab="settings")
        page = console.page
        page.get_by_role("button", name="Change settings").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.get_by_role("button", name="Change group")).to_be_disabled()
        dialog.get_by_role("button", name="Back").click()
        dialog.get_by_role("checkbox", name="Consume", exact=True).uncheck()
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.get_by_text("The group gets no messages from then on")).to_be_visible()
        dialog.get_by_role("button", name="Change group").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_text("Consumers get nothing.")).to_be_visible()
        found = client.group("changed").config
    assert (found.consume_enable, found.retry_times_max) == (False, 5)


def test_a_group_that_cannot_be_saved_says_why_and_a_reader_is_offered_no_change(
    browser: Browser, pair: ServicePair
) -> None:
    with opened(browser, pair.query_url) as console:
        console.enter("groups")
        page = console.page
        page.get_by_role("button", name="Create group").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill("unsaved")
        dialog.get_by_role("button", name="Preview").click()
        page.route("**/v1/groups/unsaved", lambda route: route.abort())
        dialog.get_by_role("button", name="Create group").click()
        expect(dialog.get_by_role("alert")).to_contain_text("query cannot be reached")
    with opened(browser, pair.query_url) as console:
        console.enter("groups", "consume", group="billing", tab="settings")
        expect(console.page.get_by_text("retryTimesMax")).to_be_visible()
        expect(console.page.get_by_role("button", name="Change settings")).to_have_count(0)
        console.page.get_by_role("link", name="All groups").click()
        console.heading("Groups")
        expect(console.page.get_by_role("button", name="Create group")).to_have_count(0)


# dead letters -------------------------------------------------------------------------------


def test_a_dead_letter_is_inspected_and_its_text_is_no_markup(console: ConsolePage) -> None:
    console.enter("groups", "consume", group="shipping", tab="dead")
    page = console.page
    expect(page.get_by_text("3 shown; that is all")).to_be_visible()
    page.get_by_role("region", name="Dead letters of shipping").get_by_role("button").first.click()
    letter = page.get_by_role("region", name="Dead letter", exact=True)
    expect(letter.locator("pre")).to_contain_text(MARKUP)
    expect(letter.get_by_text(f"no stock {MARKUP}").first).to_be_visible()
    expect(page.locator("main img")).to_have_count(0)
    expect(page.get_by_role("button", name="Resend all")).to_have_count(0)
    assert "letter=" in page.url
    assert console.serious_findings() == []


def test_dead_letters_are_resent_and_purged_after_a_preview(console: ConsolePage) -> None:
    console.enter("groups", group="shipping", tab="dead")
    page = console.page
    page.get_by_role("checkbox", name="Pick").first.check()
    page.get_by_role("button", name="Resend 1 picked").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 dead letter would be resent")).to_be_visible()
    assert console.serious_findings() == []
    dialog.get_by_role("button", name="Resend 1").click()
    expect(page.get_by_text("2 shown; that is all")).to_be_visible()
    page.get_by_role("button", name="Purge all").click()
    expect(dialog.get_by_text("2 dead letters would be purged")).to_be_visible()
    dialog.get_by_role("button", name="Purge 2").click()
    expect(page.get_by_text("This group has no dead letters")).to_be_visible()


def test_a_lost_message_is_found_by_its_key_and_leads_to_the_group_that_has_not_read_it(
    console: ConsolePage, pair: ServicePair
) -> None:
    with pair.client(token=TOKENS["token_admin"]) as client:
        client.produce("orders", NewMessage(body="lost", keys=["lost-1"], queue_id=0))
        while not client.traces("orders", "lost-1").traces[0].copies[0].groups:
            pass  # until the offsets are saved
    console.enter("messages", "consume", by="key")
    page = console.page
    page.get_by_label("Topic", exact=True).fill("orders")
    page.get_by_label("Key or unique key").fill("lost-1")
    page.keyboard.press("Enter")
    page.get_by_role("row", name="lost-1").get_by_role("button").click()
    page.get_by_role("main").get_by_role("link", name="Trace").click()
    groups = page.get_by_role("main").get_by_role("region", name="Groups")
    expect(groups.get_by_text("billing: has not come to it")).to_be_visible()
    assert console.serious_findings() == []
    groups.get_by_role("link", name="billing").click()
    console.heading("billing")
    expect(page.get_by_role("row", name="orders 0")).to_be_visible()


# errors, shards, sizes ----------------------------------------------------------------------


def test_a_refused_reset_says_why_and_a_failed_load_can_be_tried_again(
    console: ConsolePage,
) -> None:
    console.enter("groups", group="billing")
    page = console.page
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic", exact=True).fill("no-such-topic")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no-such-topic")
    page.keyboard.press("Escape")
    page.route("**/v1/lag*", lambda route: route.abort())
    page.get_by_role("link", name="All groups").click()
    expect(page.get_by_role("alert")).to_contain_text("query cannot be reached")
    page.unroute("**/v1/lag*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("row", name="billing")).to_be_visible()


def test_a_shard_that_is_down_is_named(browser: Browser, shards: Cluster) -> None:
    with opened(browser, shards.shards[0].query.url) as console:
        console.open("groups", group="billing")
        expect(console.page.get_by_role("row", name="orders 0 shard 1")).to_be_visible()
        shards.shards[1].query.kill()
        alert = console.page.get_by_role("alert").filter(has_text="Shard 1 is missing here")
        expect(alert).to_be_visible()
        expect(console.page.get_by_role("row", name="orders 0 shard 0")).to_be_visible()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_narrow_window_has_room_for_a_group(
    browser: Browser, pair: ServicePair, scheme: str
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    with opened(browser, pair.query_url, **options) as console:
        console.enter("groups", group="billing")
        expect(console.page.get_by_role("row", name="orders 0")).to_be_visible()
        assert not console.overflows()
        assert console.serious_findings() == []
