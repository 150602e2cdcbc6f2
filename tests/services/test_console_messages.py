"""The pages Topics, Messages, Trace and Send of the console, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, expect

from mqstore.client import Client, NewMessage
from tests.services.console_browser import ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster, cluster

pytestmark = pytest.mark.browser

CONSUME, ADMIN = "consume-token-of-tests", "admin-token-of-tests"
HOSTILE = "<img/src=x/onerror=alert(1)>"
"""Text that would run a script if it became markup; without spaces, so that it can be a key."""
MANY = 2_500
"""Messages of a topic: more than RocketMQ's console shows."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """Services without tokens, with the topics that the tests look at."""
    with service_pair(tmp_path_factory.mktemp("console") / "store") as found:
        with found.client() as client:
            _fill(client)
        yield found


def _fill(client: Client) -> None:
    client.create_topic("many", queues=2)
    for first in range(0, MANY, 500):
        numbers = range(first, first + 500)
        client.produce("many", [NewMessage(body=f"{i}", keys=(f"key-{i}",)) for i in numbers])
    client.create_topic("orders", queues=2)
    for i in range(20):
        body = json.dumps({"id": i, "text": HOSTILE})
        tags, region = ("paid" if i % 2 else "new"), ("eu" if i < 5 else "us")
        message = NewMessage(body=body, tags=tags, keys=(f"o-{i}",), properties={"region": region})
        client.produce("orders", [message])
    client.produce("orders", [NewMessage(body=b"\x00\xff", keys=("binary",))])
    hostile = {HOSTILE: HOSTILE}
    client.create_topic("hostile", queues=1)
    client.produce(
        "hostile", [NewMessage(body=HOSTILE, tags=HOSTILE, keys=(HOSTILE,), properties=hostile)]
    )


def _rows(console: ConsolePage) -> Locator:
    return console.page.get_by_role("table").first.locator("tbody tr:not(.spacer)")


def _status(console: ConsolePage) -> Locator:
    return console.page.locator(".table-foot").first


# topics -------------------------------------------------------------------------------------


def test_a_topic_is_created_changed_and_deleted_after_its_plan(
    console: ConsolePage, pair: ServicePair
) -> None:
    page = console.page
    console.open("topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("fresh")
    assert console.serious_findings() == []
    dialog.get_by_label("Write queues").fill("2")
    dialog.get_by_role("button", name="Create topic").click()
    panel = page.get_by_role("region", name="fresh")
    expect(panel.get_by_text("2 for writing, 4 for reading")).to_be_visible()
    with pair.client() as client:
        for number in range(3):
            client.produce("fresh", [NewMessage(body="x", queue_id=number % 2)])
    panel.get_by_role("button", name="Change").click()
    dialog.get_by_label("Read queues").fill("2")
    dialog.get_by_role("button", name="Change topic").click()
    expect(panel.get_by_text("2 for writing")).to_have_count(0)
    panel.get_by_role("button", name="Change").click()
    dialog.get_by_label("Write queues").fill("1")
    dialog.get_by_label("Read queues").fill("1")
    dialog.get_by_role("button", name="Change topic").click()
    expect(dialog.get_by_text("could be received no more")).to_be_visible()
    expect(dialog.get_by_text("No group consumes the topic")).to_be_visible()
    assert console.serious_findings() == []
    dialog.get_by_label("Read queues").fill("2")
    expect(dialog.get_by_text("could be received no more")).to_have_count(0)
    dialog.get_by_role("button", name="Change topic").click()
    expect(panel.get_by_text("1 for writing, 2 for reading")).to_be_visible()
    panel.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_text("3 messages can no longer be consumed")).to_be_visible()
    remove = dialog.get_by_role("button", name="Delete topic")
    expect(remove).to_be_disabled()
    assert console.serious_findings() == []
    dialog.get_by_label("Type the name").fill("fresh")
    remove.click()
    expect(panel).to_have_count(0)
    expect(page.get_by_role("button", name="fresh")).to_have_count(0)


def test_a_refused_topic_says_why(console: ConsolePage) -> None:
    page = console.page
    console.open("topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("TBW102")
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_be_visible()


def test_ten_thousand_topics_are_one_list_of_few_rows(console: ConsolePage) -> None:
    page = console.page
    topic = {"queues": 4, "readQueues": 4, "writeQueues": 4, "perm": 6, "order": False}
    more = {"filterType": "SINGLE_TAG", "attributes": {}}
    topics = [{"topic": f"t-{i:05}", **topic, **more} for i in range(10_000)]
    page.route("**/ui/writer/v1/topics?*", lambda route: route.fulfill(json={"topics": topics}))
    console.open("topics")
    expect(_status(console)).to_have_text("10,000 of 10,000 topics")
    assert _rows(console).count() < 100
    page.get_by_label("Name contains").fill("t-09999")
    expect(_rows(console)).to_have_count(1)
    assert "search=t-09999" in page.url
    page.get_by_label("Name contains").fill("")
    page.get_by_role("button", name=re.compile("^Topic")).click()
    expect(_rows(console).first).to_contain_text("t-09999")


# messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"by": "queue", "queue": "0", "offset": "abc"}, "Enter a number of 0 or more"),
        ({"by": "queue", "queue": "-1"}, "Enter the number of a queue"),
        ({"by": "queue", "queue": "0", "shard": "seven"}, "There is no such shard"),
        ({"by": "queue", "queue": "99"}, "many has no queue 99"),
        ({"from": "now", "to": "now-1h"}, "The end is before the beginning"),
        ({"from": "yesterday"}, "As now-15m"),
    ],
)
def test_an_address_that_cannot_be_searched_says_what_is_wrong(
    console: ConsolePage, state: dict[str, str], why: str
) -> None:
    console.open("messages", topic="many", **state)
    expect(console.page.get_by_role("main").get_by_text(why).first).to_be_visible()


def test_all_messages_of_a_range_are_there_without_a_cut(console: ConsolePage) -> None:
    console.open("messages", topic="many")
    expect(_status(console)).to_contain_text("so far")
    assert _rows(console).count() < 100
    seen = 0
    while "Complete" not in _status(console).inner_text():
        seen += 1
        assert seen < 200
        console.page.locator(".table-box").first.evaluate("box => box.scrollTo(0, 1e9)")
        console.page.wait_for_timeout(30)
    expect(_status(console)).to_contain_text("2,500 messages")
    console.page.locator(".table-box").first.evaluate("box => box.scrollTo(0, 1e9)")
    assert _rows(console).count() < 100
    expect(_rows(console).last).to_contain_text("key-0")


def test_a_key_an_id_a_queue_and_filters_find_their_messages(
    console: ConsolePage, pair: ServicePair
) -> None:
    page = console.page
    console.open("messages")
    expect(page.get_by_text("Which messages?")).to_be_visible()
    page.get_by_role("button", name="Key", exact=True).click()
    page.get_by_label("Topic", exact=True).fill("orders")
    page.get_by_label("Key or unique key").fill("o-7")
    page.get_by_role("button", name="Search").click()
    expect(_status(console)).to_have_text(re.compile("Complete.*1 message"))
    for state, count in (
        ({"tags": "paid"}, 10),
        ({"sql": quote("region = 'eu'")}, 5),
        ({"queue": "0", "offset": "1"}, None),
        ({"key": "none"}, 0),
    ):
        console.open("messages", topic="orders", **state)
        expect(_status(console)).to_contain_text("Complete")
        if count is not None:
            expect(_status(console)).to_contain_text(f"{count} message")
    expect(page.get_by_text("No message was found")).to_be_visible()
    with pair.client() as client:
        message = client.messages_by_key("orders", "o-3").messages[0]
    console.open("messages", id=message.offset_msg_id)
    expect(_rows(console)).to_have_count(1)
    assert console.serious_findings() == []


def test_a_wrong_filter_and_an_unknown_topic_say_what_to_do(console: ConsolePage) -> None:
    console.open("messages", topic="orders", sql="region+%3D")
    expect(console.page.get_by_role("alert")).to_contain_text("filter")
    console.open("messages", topic="nothing-there")
    expect(console.page.get_by_role("alert")).to_contain_text("nothing-there")
    expect(console.page.get_by_role("button", name="Try again")).to_be_visible()
    console.open("messages", topic="orders")
    console.page.get_by_label("Stored").select_option("custom")
    console.page.get_by_label("From", exact=True).fill("soon")
    console.page.get_by_role("button", name="Search").click()
    expect(console.page.get_by_label("From", exact=True)).to_have_attribute("aria-invalid", "true")


def test_a_message_is_shown_as_json_text_and_hex_with_each_field(console: ConsolePage) -> None:
    page = console.page
    console.open("messages", topic="orders", key="o-7")
    _rows(console).first.get_by_role("button").click()
    panel = page.get_by_role("region", name="Message", exact=True)
    expect(panel.locator("pre")).to_contain_text('"id": 7')
    panel.get_by_role("button", name="Hex").click()
    expect(panel.locator("pre")).to_contain_text("00000000  7b 22 69 64")
    expect(panel.get_by_text("Keys by which the index finds it")).to_be_visible()
    expect(panel.get_by_text("None is set.")).to_be_visible()
    assert "message=" in page.url
    assert console.serious_findings() == []
    page.reload()
    expect(panel.locator("pre")).to_be_visible()
    with page.expect_download() as saving:
        panel.get_by_role("button", name="Save").click()
    assert json.loads(Path(saving.value.path()).read_text())["id"] == 7
    console.open("messages", topic="orders", key="binary")
    _rows(console).first.get_by_role("button").click()
    expect(panel.locator("pre")).to_contain_text("00 ff")
    expect(panel.get_by_role("button", name="JSON", exact=True)).to_have_count(0)


def test_text_of_a_message_never_becomes_markup(console: ConsolePage) -> None:
    page = console.page
    console.open("messages", topic="hostile")
    expect(_rows(console)).to_have_count(1)
    _rows(console).first.get_by_role("button").click()
    panel = page.get_by_role("region", name="Message", exact=True)
    expect(panel.get_by_text(HOSTILE).first).to_be_visible()
    panel.get_by_role("link", name="Trace").click()
    console.heading("Trace")
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    for path, state in (("topics", "topic"), ("messages", "topic"), ("trace", "id"), ("x", "y")):
        console.open(path, **{state: quote(HOSTILE)})
        page.get_by_role("heading", level=1).wait_for()
        page.get_by_role("alert").or_(page.get_by_text("no page")).first.wait_for()
    assert page.locator("main img").count() == 0


def test_a_result_is_exported_whole_as_lines_and_as_csv(console: ConsolePage) -> None:
    page = console.page
    console.open("messages", topic="many")
    expect(_status(console)).to_contain_text("so far")
    for form, lines in (("jsonl", MANY), ("csv", MANY + 1)):
        page.get_by_role("button", name="Export").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Format").select_option(form)
        with page.expect_download() as saving:
            dialog.get_by_role("button", name="Export").click()
        text = Path(saving.value.path()).read_text()
        assert text.count("\n") == lines
        assert saving.value.suggested_filename == f"many.{form}"
    expect(page.get_by_role("status").filter(has_text="were saved")).to_have_text(
        "2,500 messages were saved"
    )


def test_messages_are_followed_and_a_pause_loses_none(
    console: ConsolePage, pair: ServicePair
) -> None:
    with pair.client() as client:
        client.create_topic("live", queues=2)
        console.open("messages", topic="live", live="1")
        expect(console.page.get_by_text("Waiting for messages")).to_be_visible()
        client.produce("live", [NewMessage(body="first", keys=("l-1",))])
        expect(_rows(console)).to_have_count(1)
        console.page.get_by_role("button", name="Pause").click()
        client.produce("live", [NewMessage(body="second", keys=("l-2",))])
        client.produce("live", [NewMessage(body="third", keys=("l-3",))])
        expect(console.page.get_by_text("It goes on where it paused")).to_be_visible()
        expect(_rows(console)).to_have_count(1)
        console.page.get_by_role("button", name="Go on").click()
        expect(_rows(console)).to_have_count(3)
        expect(_rows(console).first).to_contain_text("l-3")
        assert console.serious_findings() == []


# trace --------------------------------------------------------------------------------------


def test_a_trace_shows_the_way_of_a_message_and_its_groups(
    console: ConsolePage, pair: ServicePair
) -> None:
    page = console.page
    with pair.client() as client:
        client.create_topic("traced", queues=1)
        client.produce("traced", [NewMessage(body="x", keys=("way",))])
        client.put_group("readers")
        client.commit("readers", "traced", {0: 1})
        while not client.traces("traced", "way").traces[0].copies[0].groups:
            pass  # until the offset is saved
    console.open("trace")
    expect(page.get_by_text("Which message?")).to_be_visible()
    page.get_by_role("button", name="Key", exact=True).click()
    page.get_by_label("Key or unique key").fill("way")
    page.get_by_label("Topic", exact=True).fill("traced")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Stored in traced")).to_be_visible()
    expect(page.get_by_text("readers: has passed it")).to_be_visible()
    page.get_by_text("traced, shard 0, queue 0, offset 0").click()
    assert console.serious_findings() == []
    console.open("trace", id="0" * 32)
    expect(page.get_by_role("alert")).to_be_visible()
    console.open("trace", topic="traced", key="none")
    expect(
        page.get_by_text("No message has this key").or_(page.get_by_role("alert"))
    ).to_be_visible()


# send ---------------------------------------------------------------------------------------


def test_a_test_message_is_stored_and_can_be_opened(
    console: ConsolePage, pair: ServicePair
) -> None:
    page = console.page
    console.open("send", topic="orders")
    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Body", exact=True).fill("{")
    page.get_by_role("button", name="Send message").click()
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    page.get_by_label("Body", exact=True).fill('{"sent": "ë"}')
    page.get_by_label("Keys").fill("sent-1 sent-2")
    page.get_by_label("Properties").fill("region=eu")
    assert console.serious_findings() == []
    page.get_by_role("button", name="Send message").click()
    page.get_by_role("link", name=re.compile("orders, queue")).click()
    panel = page.get_by_role("region", name="Message", exact=True)
    expect(panel.locator("pre")).to_contain_text('"sent": "ë"')
    with pair.client() as client:
        (found,) = client.messages_by_key("orders", "sent-2").messages
    assert found.properties["region"] == "eu"


def test_a_delayed_message_has_its_due_time_and_no_place_in_the_topic(
    console: ConsolePage, pair: ServicePair
) -> None:
    page = console.page
    console.open("send", topic="orders")
    page.get_by_label("Body", exact=True).fill("later")
    page.get_by_label("Delay in seconds").fill("3600")
    page.get_by_role("button", name="Send message").click()
    sent = page.get_by_role("region", name="Sent from here").get_by_role("listitem")
    expect(sent).to_contain_text("orders, delayed, due ")
    expect(sent).to_contain_text("until then in rmq_sys_wheel_timer")
    expect(sent).not_to_contain_text("offset")
    page.get_by_role("link", name="orders, delayed").click()
    expect(page.get_by_text("no copy of it was put into its topic")).to_be_visible()
    assert console.serious_findings() == []


def test_a_refused_message_says_why(console: ConsolePage) -> None:
    page = console.page
    console.open("send", topic="orders")
    page.get_by_label("Properties").fill("KEYS=mine")
    page.get_by_role("button", name="Send message").click()
    expect(page.get_by_role("alert")).to_contain_text("KEYS")


# roles and shards ---------------------------------------------------------------------------


def test_what_a_role_may_not_do_is_not_offered(browser: Browser, tmp_path: Path) -> None:
    tokens = {"token_consume": CONSUME, "token_admin": ADMIN}
    with service_pair(tmp_path / "store", **tokens) as pair:
        with pair.client(token=ADMIN) as client:
            client.create_topic("orders")
        with opened(browser, pair.query_url) as console:
            console.open("topics", topic="orders")
            console.log_in(CONSUME)
            panel = console.page.get_by_role("region", name="orders")
            expect(panel.get_by_text("messages in all queues")).to_be_visible()
            for name in ("Create topic", "Change", "Delete"):
                expect(console.page.get_by_role("button", name=name, exact=True)).to_have_count(0)
            expect(console.page.get_by_role("link", name="Send")).to_have_count(0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("shards")) as found:
        with found.client() as client:
            client.create_topic("spread", queues=1)
            for shard in (0, 1):
                client.produce("spread", [NewMessage(body=f"of {shard}")], shard=shard)
        yield found


def test_messages_of_all_shards_are_found_and_a_missing_shard_is_named(
    browser: Browser, shards: Cluster
) -> None:
    with opened(browser, shards.shards[0].query.url) as console:
        page = console.page
        for state in ({}, {"tags": "*"}):
            console.open("messages", topic="spread", **state)
            expect(_status(console)).to_have_text(re.compile("Complete.*2 messages"))
        console.open("topics", topic="spread")
        queues = page.get_by_role("region", name="Queues").first
        expect(queues.get_by_text("shard 1")).to_be_visible()
        shards.shards[1].query.kill()
        console.open("messages", topic="spread")
        expect(page.get_by_role("alert")).to_contain_text("Shard 1 is missing here")
        expect(_status(console)).to_have_text(re.compile("Not complete.*1 message"))
        console.open("topics", topic="spread")
        expect(page.get_by_role("alert").first).to_contain_text("Shard 1 is missing here")


def test_no_page_is_wider_than_a_narrow_window(browser: Browser, pair: ServicePair) -> None:
    narrow = {"viewport": {"width": 360, "height": 740}}
    with opened(browser, pair.query_url, color_scheme="dark", **narrow) as console:
        for path, state in (
            ("topics", {"topic": "orders"}),
            ("messages", {"topic": "orders"}),
            ("trace", {}),
            ("send", {}),
        ):
            console.open(path, **state)
            console.page.get_by_role("heading", level=1).wait_for()
            console.page.wait_for_load_state("networkidle")
            assert not console.overflows(), path
            assert console.serious_findings() == [], path
