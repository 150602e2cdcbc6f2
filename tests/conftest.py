"""Shared parts of all tests: hypothesis profiles, real RocketMQ, the list of skipped tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import forked_processes
from tests.compat.referee import VERSIONS, Referee, missing
from tests.leftover_processes import restore_interrupts, watch
from tests.long_runs import few_first
from tests.machine_disk import show_large_volumes_half_empty

# A change that others wait for is tested with the same examples as the one before it, a few of
# each property; new examples, and more, are for the night (MQSTORE_EXPLORE).
settings.register_profile(
    "default",
    max_examples=100 if "MQSTORE_EXPLORE" in os.environ else 10,
    deadline=None,
    print_blob=True,
    derandomize="MQSTORE_EXPLORE" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

restore_interrupts()
watch()
show_large_volumes_half_empty()
gc.disable()  # what is collected stays: see pytest_collection_finish


class TimedOut(BaseException):
    """A test took longer than its timeout."""


def pytest_timeout_set_timer(item: Any, settings: Any) -> bool:
    """End a test after its timeout with an exception that Hypothesis does not catch: after one
    that it catches, it would run the same example again, without a timer."""

    def end(*_: object) -> None:
        raise TimedOut(f"{item.nodeid} took longer than {settings.timeout:g} s")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Let all workers fork services from one server, which imports their modules once."""
    forked_processes.share()


@pytest.fixture(scope="session", params=few_first(VERSIONS))
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    """Real RocketMQ, one of each version for all tests of a process.

    ``make test`` runs with the first version, ``make test-ci`` with the others.
    """
    why = missing()
    if why is not None:
        pytest.skip(why)
    referee = Referee(request.param)
    yield referee
    referee.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Have one worker run all tests that share a fixture of their module, such as a service: each
    worker that runs one of them makes the fixture for itself.

    Put each test's ``xdist_group`` into its id, from which xdist takes it: xdist 3.8 sets
    ``_nodeid`` only, which pytest does not read since 9.2.
    """
    for item in items:
        if _shares_a_fixture(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    yield
    for item in items:
        grouped = getattr(item, "_nodeid", None)
        if grouped is not None and hasattr(item, "_id"):
            item._id = item.id.parse(grouped)


def _shares_a_fixture(item: pytest.Item) -> bool:
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(each.scope == "module" for definitions in found.values() for each in definitions)


def pytest_collection_finish() -> None:
    """Take the thousands of collected tests out of the garbage collector's sight: each full
    collection would walk through them."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, in plain words, what was not tested and why, and what passed only when it
    was run again."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[why.removeprefix("Skipped: ")] = reasons.get(why.removeprefix("Skipped: "), 0) + 1
    if reasons:
        terminalreporter.section("left out")
        for why, count in sorted(reasons.items()):
            terminalreporter.write_line(f"{count} test{'s' * (count > 1)}: {why}")
    again = terminalreporter.stats.get("rerun", [])
    if again:
        terminalreporter.section("failed, and run again: a race in the test or in the code")
        for report in again:
            terminalreporter.write_line(report.nodeid)
            terminalreporter.write_line(report.longreprtext)


REQUIRED: Final = {
    "MQSTORE_REQUIRE_REFEREE": "referee",
    "MQSTORE_REQUIRE_BROWSER": "browser",
}
"""Environment variables by which CI requires all tests with a marker to run."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped referee or browser test is a failure: a report of it would be missed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    for variable, marker in REQUIRED.items():
        skipped = [r for r in reporter.stats.get("skipped", []) if marker in r.keywords]
        if skipped and os.environ.get(variable) == "1":
            reporter.write_line(
                f"{len(skipped)} {marker} tests were skipped, which CI does not allow"
            )
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
