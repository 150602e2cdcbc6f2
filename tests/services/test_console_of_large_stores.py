"""The console over a store with 10,000 topics and 10,000 groups: few requests, few rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from mqstore.client import NewMessage
from tests.services.console_browser import ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COUNT: Final = 10_000
ROWS_MAX: Final = 100
"""Rows of a table in the document: those in sight, and some beside them."""
PAGES: Final = COUNT // 1_000
MIB: Final = 1 << 20


def _add(path: Path, table: str, entries: dict[str, Any]) -> None:
    found = json.loads(path.read_text())
    found[table] |= entries
    path.write_text(json.dumps(found))


def _fill(config: Path) -> None:
    """Add topics, groups and offsets, as a broker's files have them."""
    topics = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    names = [f"{i:05}" for i in range(COUNT)]
    made = {f"t-{each}": topics["orders"] | {"topicName": f"t-{each}"} for each in names}
    _add(config / "topics.json", "topicConfigTable", made)
    made = {f"g-{each}": groups["first"] | {"groupName": f"g-{each}"} for each in names}
    _add(config / "subscriptionGroup.json", "subscriptionGroupTable", made)
    offsets = ",".join(f'"orders@g-{each}":{{0:{int(each) % 9}}}' for each in names)
    (config / "consumerOffset.json").write_text(f'{{"offsetTable":{{{offsets}}}}}')


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    store = tmp_path_factory.mktemp("large") / "store"
    with service_pair(store) as made:
        with made.client() as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=f"order {i}") for i in range(10)])
            client.put_group("first")
        made.stop()
    for path in (store / "config").glob("*.bak"):
        path.unlink()
    _fill(store / "config")
    with service_pair(store) as found:
        yield found


class Traffic:
    """The requests of a tab to the services, and the bytes of their replies as they were sent."""

    def __init__(self, page: Page) -> None:
        self.responses: list[Response] = []
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        if "/v1/" in response.url:
            self.responses.append(response)

    def of(self, path: str) -> list[Response]:
        """Those whose address has a text."""
        return [each for each in self.responses if path in each.url]

    @property
    def bytes(self) -> int:
        """All replies."""
        return sum(each.request.sizes()["responseBodySize"] for each in self.responses)


@pytest.fixture
def tab(browser: Browser, pair: ServicePair) -> Iterator[tuple[ConsolePage, Traffic]]:
    with opened(browser, pair.query_url, viewport={"width": 1440, "height": 900}) as console:
        yield console, Traffic(console.page)


def _rows(page: Page) -> int:
    return page.locator("main tbody tr").count()


def test_topics_are_pages_of_a_thousand_and_the_counts_of_those_in_sight(
    tab: tuple[ConsolePage, Traffic],
) -> None:
    console, traffic = tab
    page = console.page
    console.open("topics")
    expect(page.get_by_role("status").filter(has_text="of 10,0")).to_be_visible()
    expect(page.get_by_role("row", name="orders").get_by_text("10", exact=True)).to_be_visible()
    assert _rows(page) < ROWS_MAX
    assert len(traffic.of("/ui/writer/v1/topics")) == PAGES + 1
    assert len(traffic.of("/queues")) < ROWS_MAX
    assert traffic.bytes < 2 * MIB
    table = page.get_by_role("region", name="Topics", exact=True)
    table.evaluate("(element) => { element.scrollTop = element.scrollHeight }")
    expect(page.get_by_role("row", name="t-09999")).to_be_visible()
    assert _rows(page) < ROWS_MAX
    assert len(traffic.of("/queues")) < 2 * ROWS_MAX


def test_groups_are_pages_of_a_thousand_and_the_rows_in_sight(
    tab: tuple[ConsolePage, Traffic],
) -> None:
    console, traffic = tab
    page = console.page
    console.open("groups")
    expect(page.get_by_role("status").filter(has_text="10,001")).to_be_visible()
    assert _rows(page) < ROWS_MAX
    assert len(traffic.of("/v1/lag")) == PAGES
    assert len(traffic.of("/ui/writer/v1/groups")) == PAGES + 1
    assert traffic.bytes < 6 * MIB
    page.get_by_label("Name contains").fill("g-09999")
    expect(page.get_by_role("row", name="g-09999")).to_be_visible()
    expect(page.locator("main tbody tr")).to_have_count(1)


def test_the_overview_has_the_groups_that_are_most_behind(
    tab: tuple[ConsolePage, Traffic],
) -> None:
    console, traffic = tab
    page = console.page
    console.open("overview")
    lags = page.get_by_role("region", name="Greatest lags")
    expect(lags.get_by_role("row")).to_have_count(7)  # with that of the headings
    assert len(traffic.of("/v1/lag")) == PAGES
    assert traffic.bytes < 3 * MIB
    assert page.locator("*").count() < 1_000
