"""Pages of the console in a real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
MISSING: Final = "needs Chromium: `make browser` installs it, or set MQSTORE_CHROMIUM to its path"
ROLES: Final = ("admin", "produce", "consume", "system")
TOKENS: Final = {f"token_{role}": f"{role}-token-of-tests" for role in ROLES}
"""Settings of services with a token for each role."""
MARKUP: Final = "<img/src=x/onerror=alert(1)>"
"""Text that may never become an element."""
SERIOUS: Final = frozenset({"serious", "critical"})
TIMEOUT_MS: Final = 60_000
"""A busy machine is no failure."""
expect.set_options(timeout=TIMEOUT_MS)


def find_chromium() -> str | None:
    """Return the path of a browser on this machine; None if there is none."""
    given = os.environ.get("MQSTORE_CHROMIUM")
    return given or next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser without a window. Skips the test where there is none.

    While it runs, the thread has a running event loop: only tests of its module may run.
    """
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@dataclass
class ConsolePage:
    """A tab with the console, and what went wrong in it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    """Errors of scripts, violations of the policy, and requests to other hosts."""

    def open(self, path: str = "", **state: str) -> None:
        """Open a page of the console by its address."""
        query = "&".join(f"{name}={value}" for name, value in state.items())
        self.page.goto(f"{self.url}/ui/{path}{'?' if query else ''}{query}")

    def log_in(self, token: str) -> None:
        """Enter a token in the log-in view."""
        self.page.get_by_label("Token", exact=True).fill(token)
        self.page.get_by_role("button", name="Log in").click()

    def enter(self, path: str = "", role: str = "admin", **state: str) -> None:
        """Open a page of services that have TOKENS, and log in as a role."""
        self.open(path, **state)
        self.log_in(TOKENS[f"token_{role}"])

    def heading(self, name: str) -> None:
        """Wait for the heading of a page."""
        self.page.get_by_role("heading", level=1, name=name, exact=True).wait_for()

    def serious_findings(self) -> list[str]:
        """Return what axe finds that keeps people from using the page."""
        response = Axe().run(self.page).response
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in response["violations"]
            if each["impact"] in SERIOUS
        ]

    def overflows(self) -> bool:
        """Return whether the page is wider than the window."""
        script = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(script))


@contextlib.contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[ConsolePage]:
    """A tab of its own. At the end there may be no error in it."""
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(TIMEOUT_MS)
    found = ConsolePage(context.new_page(), url)

    def note_message(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            found.errors.append(message.text)

    def note_request(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != urlsplit(url).netloc:
            found.errors.append(f"request to another host: {request.url}")

    found.page.on("console", note_message)
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    found.page.on("request", note_request)
    try:
        yield found
    finally:
        context.close()
    assert found.errors == []
