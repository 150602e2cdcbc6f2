"""The console's page of jobs: progress, last results, and leases of the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from mqstore.client import NewMessage
from mqstore.wire.backup_reports import BackupResult
from mqstore.wire.examples import reports
from tests.services.console_browser import MARKUP, TOKENS, ConsolePage, opened
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("jobs") / "store", **TOKENS) as found:
        with found.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=f"order {i}") for i in range(20)])
        yield found


def test_jobs_show_their_progress_and_last_results(console: ConsolePage, pair: ServicePair) -> None:
    with pair.client(token=TOKENS["token_system"]) as client:
        report = reports.EXPIRY | {"out": MARKUP}
        client.put_expiry_report(report)
        client.flush()
        client.put_archive(client.store().max_offset // 2, MARKUP)
        client.put_pin("backup-1", 0, lease_s=3_600, why=MARKUP)
        rebuild = client.begin_index_rebuild("a job of the test", ttl_s=3_600)
        console.enter("jobs")
        page = console.page
        expiry = page.get_by_role("region", name="Expiry report")
        expect(expiry.get_by_text("at risk")).to_be_visible()
        expect(expiry.get_by_role("link", name="billing")).to_be_visible()
        archive = page.get_by_role("region", name="Archive")
        expect(archive.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")
        running = page.get_by_role("region", name="Index rebuild")
        expect(running.get_by_text("a job of the test").first).to_be_visible()
        expect(page.locator("main img")).to_have_count(0)
        assert console.serious_findings() == []
        client.end_index_rebuild(rebuild.id)
        expect(running.get_by_text("given-up")).to_be_visible()
        leases = page.get_by_role("region", name="Leases of the log")
        leases.get_by_role("button", name="End").click()
        page.get_by_role("dialog").get_by_role("button", name="End the lease").click()
        expect(leases.get_by_text("Nothing is leased")).to_be_visible()
        client.end_archive()


def test_results_of_backups_are_shown_with_the_errors_of_failed_ones(
    console: ConsolePage, pair: ServicePair
) -> None:
    console.enter("jobs", "consume")
    backups = console.page.get_by_role("region", name="Backups")
    expect(backups.get_by_text("No backup was reported yet")).to_be_visible()
    whole = BackupResult.model_validate(reports.BACKUP | {"place": MARKUP})
    failed = whole.model_copy(update={"is_whole": False, "error": f"no room {MARKUP}"})
    with pair.client(token=TOKENS["token_system"]) as client:
        client.put_backup_result(whole)
        expect(backups.get_by_text("up to offset 19,641,878")).to_be_visible()
        expect(backups.get_by_text("not verified")).to_be_visible()
        client.put_backup_result(failed)
        expect(backups.get_by_text(f"no room {MARKUP}")).to_be_visible()
        expect(backups.get_by_text("up to offset 19,641,878")).to_be_visible()
        client.put_backup_result(whole.model_copy(update={"action": "verify"}))
        expect(backups.get_by_text("verified", exact=True)).to_be_visible()
    expect(console.page.locator("main img")).to_have_count(0)
    assert console.serious_findings() == []


def test_jobs_that_cannot_be_loaded_can_be_tried_again(console: ConsolePage) -> None:
    console.enter("jobs", "consume")
    page = console.page
    console.heading("Jobs")
    page.route("**/ui/writer/**", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("query cannot be reached")
    page.unroute("**/ui/writer/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("region", name="Archive")).to_be_visible()


def test_a_shard_that_is_down_is_named_and_nothing_overflows(
    browser: Browser, shards: Cluster
) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, shards.shards[0].query.url, **options) as console:
        shards.shards[1].writer.kill()
        try:
            console.open("jobs")
            alert = console.page.get_by_role("alert")
            expect(alert).to_contain_text("Shard 1 is missing here")
            assert not console.overflows()
            assert console.serious_findings() == []
        finally:
            shards.restart_writer(1)
