"""The console's page of transactions: lists, the history of one, and an operator's decision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import Client, NewMessage
from tests.services.console_browser import MARKUP, TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster, cluster

pytestmark = pytest.mark.browser


def _client(url: str, query_url: str, token: str | None = None) -> Client:
    """A client that sends transactions to store-writer: no coordinator runs here."""
    return Client(url, query_url, coordinator_url=url, token=token)


def _begin(client: Client, group: str, key: str) -> str:
    """Begin a transaction on shard 0, and return its id."""
    message = NewMessage(body="an order", uniq_key=key)
    return client.begin(group, "orders", message, shard=0).transaction_id


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("halves") / "store", **TOKENS) as found:
        token = TOKENS["token_admin"]
        with _client(found.writer_url, found.query_url, token=token) as client:
            client.create_topic("orders", queues=1)
            _begin(client, "billing", "KEY-OF-BILLING")
            _begin(client, "shipping", "KEY-OF-SHIPPING")
            decided = _begin(client, "billing", "KEY-THAT-IS-DECIDED")
            client.commit_transaction(decided, reason=f"paid {MARKUP}")
        yield found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("shards")) as found:
        first = found.shards[0]
        with _client(first.writer.url, first.query.url) as client:
            client.create_topic("orders", queues=1)
            _begin(client, "billing", "KEY-OF-BILLING")
        yield found


def test_undecided_transactions_are_listed_and_counted_by_group_and_age(
    console: ConsolePage,
) -> None:
    console.enter("transactions")
    page = console.page
    ages = page.get_by_role("region", name="By group and age")
    row = ages.get_by_role("row", name="billing")
    expect(row.get_by_role("cell").first).to_have_text("1")
    expect(page.get_by_text("2 transactions, oldest first")).to_be_visible()
    assert console.serious_findings() == []
    ages.get_by_role("button", name="shipping").click()
    expect(page.get_by_text("1 transaction, oldest first")).to_be_visible()
    assert "group=shipping" in page.url
    page.get_by_label("Age", exact=True).select_option("Over 1 day")
    expect(page.get_by_text("No transaction matches")).to_be_visible()


def test_a_transaction_shows_its_history_and_its_text_is_no_markup(console: ConsolePage) -> None:
    console.enter("transactions", "consume", of="committed")
    page = console.page
    list_ = page.get_by_role("region", name="Transactions", exact=True).last
    list_.get_by_role("button").first.click()
    snapshot = page.get_by_role("region", name="Transaction", exact=True)
    expect(snapshot.get_by_text(f"paid {MARKUP}")).to_be_visible()
    expect(snapshot.get_by_text("Begun by billing")).to_be_visible()
    expect(snapshot.get_by_role("link", name="KEY-THAT-IS-DECIDED")).to_be_visible()
    expect(snapshot.get_by_role("button", name="Resolve")).to_have_count(0)
    expect(page.locator("main img")).to_have_count(0)
    assert console.serious_findings() == []


def test_a_reader_may_not_resolve_and_an_administrator_gives_a_reason(
    console: ConsolePage, pair: ServicePair
) -> None:
    id_ = "0-KEY-OF-SHIPPING"
    console.enter("transactions", "consume", id=id_)
    snapshot = console.page.get_by_role("region", name="Transaction", exact=True)
    expect(snapshot.get_by_text("Begun by shipping")).to_be_visible()
    expect(snapshot.get_by_role("button", name="Resolve")).to_have_count(0)
    console.page.get_by_role("button", name="Log out").click()
    console.log_in(TOKENS["token_admin"])
    snapshot.get_by_role("button", name="Resolve").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Roll back").first.click()
    expect(dialog.get_by_text("No consumer gets the 1 message")).to_be_visible()
    decide = dialog.locator("footer").get_by_role("button", name="Roll back")
    expect(decide).to_be_disabled()
    assert console.serious_findings() == []
    dialog.get_by_label("Reason").fill("the producer is gone")
    decide.click()
    expect(snapshot.get_by_text("Rolled back")).to_be_visible()
    expect(snapshot.get_by_text("the producer is gone")).to_be_visible()
    with _client(pair.writer_url, pair.query_url, token=TOKENS["token_admin"]) as client:
        found = client.transactions(state="rolled-back").transactions
    assert [each.transaction_id for each in found] == [id_]


def test_an_unknown_transaction_says_so(console: ConsolePage) -> None:
    console.enter("transactions", id="0-NO-SUCH-KEY")
    snapshot = console.page.get_by_role("region", name="Transaction", exact=True)
    expect(snapshot.get_by_role("alert")).to_contain_text("NO-SUCH-KEY")


def test_a_shard_that_is_down_is_named_and_nothing_overflows(
    browser: Browser, shards: Cluster
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, shards.shards[0].query.url, **options) as console:
        shards.shards[1].writer.kill()
        try:
            console.open("transactions")
            alert = console.page.get_by_role("alert")
            expect(alert).to_contain_text("Shard 1 is missing here")
            expect(console.page.get_by_role("button", name="billing")).to_be_visible()
            assert not console.overflows()
            assert console.serious_findings() == []
        finally:
            shards.restart_writer(1)
