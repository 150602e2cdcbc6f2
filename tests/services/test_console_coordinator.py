"""The console reaches the transaction coordinator through query, where query knows its address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.services.console_browser import TOKENS, opened
from tests.services.service_processes import Run, running, service_pair

pytestmark = pytest.mark.browser
SETTINGS = "/ui/coordinator/v1/settings"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    store = tmp_path_factory.mktemp("coordinator") / "store"
    settings: dict[str, Any] = {"transaction_check_max": 7, **TOKENS}
    with running(store, coordinator=True, **settings) as found:
        yield found


def _headers(role: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[f'token_{role}']}", **more}


def test_an_operation_of_the_coordinator_is_forwarded_with_the_token(run: Run) -> None:
    url = run.query_url + SETTINGS
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=_headers("consume")).status_code == 403
    found = httpx.get(url, headers=_headers("admin")).json()
    values = {each["name"]: (each["value"], each["source"]) for each in found["settings"]}
    assert values["transactionCheckMax"] == (7, "environment")
    crossed = _headers("admin") | {"sec-fetch-site": "cross-site"}
    assert httpx.get(url, headers=crossed).status_code == 403
    for path in ("/metrics", "/v1/topics", "/v1/store"):
        unknown = httpx.get(f"{run.query_url}/ui/coordinator{path}", headers=_headers("admin"))
        assert unknown.status_code == 404, path


def test_settings_of_the_coordinator_are_shown_and_its_absence_is_named(
    browser: Browser, run: Run
) -> None:
    with opened(browser, run.query_url) as console:
        console.enter("settings", of="coordinator", only="changed")
        page = console.page
        row = page.get_by_role("row", name="transactionCheckMax")
        expect(row).to_contain_text("7")
        expect(row).to_contain_text("environment")
        assert console.serious_findings() == []
        page.get_by_role("button", name="transactionCheckMax").click()
        page.get_by_label("Check another value").fill("0")
        page.get_by_role("button", name="Check", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("greater than or equal to 1")
        page.route("**/ui/coordinator/**", lambda route: route.abort())
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("query cannot be reached")
        page.unroute("**/ui/coordinator/**")
        page.get_by_role("button", name="Try again").click()
        expect(row).to_be_visible()


def test_without_an_address_the_page_says_why_there_are_no_settings(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("without") / "store"
    with service_pair(store) as pair, opened(browser, pair.query_url) as console:
        console.open("settings", of="coordinator")
        alert = console.page.get_by_role("alert")
        expect(alert).to_contain_text("set coordinatorUrl of query to its address")
        console.page.get_by_role("button", name="query", exact=True).click()
        expect(console.page.get_by_role("row", name="coordinatorUrl")).to_be_visible()


def test_a_coordinator_that_does_not_reply_is_named(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nowhere = "http://127.0.0.1:9"
    store = tmp_path_factory.mktemp("nowhere") / "store"
    with service_pair(store, coordinator_url=nowhere) as pair:
        found = httpx.get(pair.query_url + SETTINGS)
        assert (found.status_code, found.json()["type"]) == (
            503,
            "urn:mqstore:problem:coordinator-not-ready",
        )
        with opened(browser, pair.query_url) as console:
            console.open("settings", of="coordinator")
            alert = console.page.get_by_role("alert")
            expect(alert).to_contain_text(f"the transaction coordinator at {nowhere}")
