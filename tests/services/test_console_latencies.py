"""The console's page of latencies, and its samples of the last hour, which a browser keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import NewMessage
from tests.services.console_browser import TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

pytestmark = pytest.mark.browser
SAVED = """async () => {
  const names = (await indexedDB.databases()).map((each) => each.name);
  const database = await new Promise((resolve, reject) => {
    const opening = indexedDB.open(names.find((each) => each.startsWith("mqstore")));
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  if (!database.objectStoreNames.contains("points")) return [];
  const found = database.transaction("points").objectStore("points").getAll();
  await new Promise((resolve) => (found.onsuccess = resolve));
  database.close();
  const plain = (_, value) => (value instanceof Map ? [...value] : value);
  return found.result.map((each) => JSON.stringify(each, plain));
}"""
SAVE_AN_OLDER_POINT = """async () => {
  const { clearSaved, save } = await import("/ui/lib/saved.js");
  const { points } = await import("/ui/lib/history.js");
  const { storeId } = await import("/ui/lib/shards.js");
  const newest = points.value.at(-1);
  const moved = { ...newest, fromMs: newest.fromMs - 600000, atMs: newest.atMs - 600000 };
  await clearSaved();
  await save(storeId.value, { ...moved, messagesIn: 12345 }, 0);
}"""
IS_READ = "import('/ui/lib/history.js').then((history) => history.points.value.length > 0)"
SECRET = "a-topic-of-a-customer"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("latencies") / "store", **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic(SECRET, queues=1)
        yield found


def _load(pair: ServicePair) -> None:
    with pair.client(token=TOKENS["token_admin"]) as client:
        for i in range(20):
            client.produce(SECRET, NewMessage(body=f"message {i}", keys=["k"]))
            client.messages_by_key(SECRET, "k")


def test_puts_and_searches_are_plotted_with_their_quantiles(
    console: ConsolePage, pair: ServicePair
) -> None:
    console.enter("latencies", "consume")
    page = console.page
    console.heading("Latencies")
    put = page.get_by_role("region", name="Put")
    expect(put.get_by_text("None yet")).to_be_visible()
    assert console.serious_findings() == []
    page.wait_for_function(IS_READ)
    _load(pair)
    heat = put.get_by_role("img", name="Put: operations by time and latency")
    expect(heat).to_be_visible()
    expect(put.get_by_role("img", name="Put: latency, last hour")).to_be_visible()
    expect(put.get_by_text("20 in the plotted time")).to_be_visible()
    search = page.get_by_role("region", name="Search")
    expect(search.get_by_text("20 in the plotted time")).to_be_visible()
    expect(put.get_by_text("p99.9")).to_be_visible()
    heat.hover(position={"x": 1, "y": 1})
    expect(put.get_by_text("0 operations")).to_be_visible()
    assert console.serious_findings() == []


def test_the_last_hour_is_plotted_at_once_after_a_reload_and_in_another_tab(
    browser: Browser, pair: ServicePair
) -> None:
    with opened(browser, pair.query_url) as console:
        console.enter("overview", "consume")
        page = console.page
        messages = page.get_by_role("region", name="Messages")
        expect(messages.get_by_text("0/s").first).to_be_visible()
        saved = page.evaluate(SAVED)
        assert saved
        for each in saved:
            assert SECRET not in each
            assert TOKENS["token_consume"] not in each
        page.evaluate(SAVE_AN_OLDER_POINT)
        page.route("**/ui/metrics/**", lambda route: route.abort())
        page.reload()
        expect(messages.get_by_text("12.3K/s").first).to_be_visible()
        other = ConsolePage(page.context.new_page(), console.url)
        other.page.route("**/ui/metrics/**", lambda route: route.abort())
        other.enter("overview", "consume")
        expect(
            other.page.get_by_role("region", name="Messages").get_by_text("12.3K/s").first
        ).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token", exact=True).wait_for()
        page.wait_for_function(f"({SAVED})().then((found) => found.length === 0)")


def test_a_console_without_a_database_keeps_its_plots_in_the_page(
    browser: Browser, pair: ServicePair
) -> None:
    with opened(browser, pair.query_url) as console:
        console.page.add_init_script("delete Window.prototype.indexedDB; delete window.indexedDB")
        console.enter("overview", "consume")
        messages = console.page.get_by_role("region", name="Messages")
        expect(messages.get_by_text("0/s").first).to_be_visible()


def test_latencies_are_those_of_a_shard_and_an_unknown_one_is_named(
    browser: Browser, shards: Cluster
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, shards.shards[0].query.url, **options) as console:
        page = console.page
        console.open("latencies", shard="1")
        page.wait_for_function(IS_READ)
        with shards.client() as client:
            client.create_topic("t")
            client.produce("t", NewMessage(body="x"), shard=1)
        put = page.get_by_role("region", name="Put")
        expect(put.get_by_text("1 in the plotted time")).to_be_visible()
        page.get_by_label("Shard", exact=True).select_option("0")
        expect(put.get_by_text("None yet")).to_be_visible()
        assert "shard=0" in page.url
        assert not console.overflows()
        assert console.serious_findings() == []
        shards.shards[1].writer.kill()
        try:
            expect(page.get_by_role("alert")).to_contain_text("Shard 1 is missing here")
        finally:
            shards.restart_writer(1)
        console.open("latencies", shard="7")
        expect(page.get_by_text("There is no shard 7")).to_be_visible()
