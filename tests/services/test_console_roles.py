"""The actions on each page of the console, by role: no token is offered what it may not do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from mqstore.client import NewMessage
from mqstore.wire.examples import reports
from tests.services.console_browser import TOKENS, opened
from tests.services.service_processes import ServicePair, service_pair

pytestmark = pytest.mark.browser

WRITES: Final = {
    "topics": ["Create topic"],
    "topics?topic=orders": ["Create topic", "Change", "Delete"],
    "groups": ["Create group"],
    "groups?group=shipping": ["Reset offsets"],
    "groups?group=shipping&tab=dead": ["Reset offsets", "Resend all", "Purge all"],
    "groups?group=shipping&tab=settings": ["Reset offsets", "Change settings"],
    "retention": ["Delete expired now"],
    "jobs": ["End"],
    "scrub": ["Repair", "Check the log now"],
    "settings": [],
    "overview": [],
    "latencies": [],
    "messages?topic=orders": [],
    "trace": [],
    "transactions": [],
    "delayed": [],
}
"""Addresses, and the buttons there by which an administrator changes something."""
CHANGES: Final = re.compile(
    r"^(Create|Change|Delete|Reset|Resend|Purge|End|Repair|Check the log|Remove|Resolve|Run|Send)\b"
)
READ: Final = sorted(set(WRITES) - {"settings"})
"""Pages of the role consume."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """A store in which each page has something to act on."""
    with service_pair(tmp_path_factory.mktemp("roles") / "store", **TOKENS) as found:
        with found.client(token=TOKENS["token_system"]) as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=f"order {i}") for i in range(3)])
            rejected = client.receive("shipping", "orders", max_messages=3).messages
            receipts = [each.receipt for each in rejected]
            client.give_back("shipping", receipts, delay_level=-1, reason="no stock")
            client.put_expiry_report(reports.EXPIRY)
            client.put_pin("backup-1", 0, lease_s=3_600, why="a backup")
        yield found


@pytest.fixture(scope="module", params=["admin", "consume", "produce"])
def tab(
    browser: Browser, pair: ServicePair, request: pytest.FixtureRequest
) -> Iterator[tuple[str, Page]]:
    """A role, and a tab in which it is logged in."""
    with opened(browser, pair.query_url) as console:
        console.enter("", request.param)
        console.page.get_by_role("button", name="Log out").wait_for()
        yield request.param, console.page


def _changes(page: Page) -> list[str]:
    """Return the names of the buttons and links of the page that change something."""
    found = page.locator("main").get_by_role("button").or_(page.locator("main a.button"))
    names = [each.strip() for each in found.all_inner_texts()]
    return [each for each in names if CHANGES.match(each)]


@pytest.mark.parametrize("address", sorted(WRITES))
def test_a_page_offers_what_the_role_may_do(
    tab: tuple[str, Page], pair: ServicePair, address: str
) -> None:
    role, page = tab
    page.goto(f"{pair.query_url}/ui/{address}")
    page.get_by_role("heading", level=1).wait_for()
    expect(page.locator("main .skeleton")).to_have_count(0)
    if role == "produce" or (role == "consume" and address not in READ):
        expect(page.get_by_text("This page needs the role")).to_be_visible()
        assert _changes(page) == []
    elif role == "consume":
        assert _changes(page) == []
    else:
        for name in WRITES[address]:
            expect(
                page.locator("main").get_by_role("button", name=name, exact=True)
            ).to_be_visible()


def test_the_navigation_has_the_pages_of_the_role(tab: tuple[str, Page], pair: ServicePair) -> None:
    role, page = tab
    page.goto(f"{pair.query_url}/ui/")
    links = page.get_by_role("navigation", name="Pages").get_by_role("listitem")
    links.first.wait_for()
    found = {each.strip() for each in links.all_inner_texts()}
    readers, senders = {"Overview", "Jobs", "Groups", "Latencies"}, {"Send"}
    assert ("Settings" in found) == (role == "admin")
    assert (readers <= found) == (role != "produce")
    assert (senders <= found) == (role != "consume")
