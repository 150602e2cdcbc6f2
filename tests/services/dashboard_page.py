"""A picture of the dashboard's data: a small page with uPlot, for a look at all panels at once.

This is not Grafana, and shows neither its panels' options nor its colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

from tests.services.prometheus_server import Series
from tests.services.service_processes import REPOSITORY

PAGE: Final = Path(__file__).with_suffix(".html")
VENDOR: Final = REPOSITORY / "services/query/mqstore/query/console/static/vendor"


def draw(
    browser: Browser,
    panels: Sequence[dict[str, Any]],
    series_of: Callable[[dict[str, Any]], list[Series]],
    picture: Path,
) -> list[str]:
    """Draw panels into a picture; returns the titles of those that were drawn.

    ``series_of`` returns the series of a query. Raises AssertionError for an error of the page.
    """
    errors: list[str] = []
    with browser.new_page(viewport={"width": 1440, "height": 900}) as page:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content(PAGE.read_text("utf-8"))
        page.add_style_tag(path=VENDOR / "uplot.css")
        module = (VENDOR / "uplot.js").read_text("utf-8")
        page.add_script_tag(content=module.replace("export default uPlot;", ""))
        page.evaluate("draw", [_drawn(each, series_of) for each in panels])
        drawn = page.locator("section:has(.value, canvas) > h2").all_inner_texts()
        page.screenshot(path=picture, full_page=True)
    assert not errors, errors
    return drawn


def _drawn(
    panel: dict[str, Any], series_of: Callable[[dict[str, Any]], list[Series]]
) -> dict[str, Any]:
    """A panel as the page reads it."""
    found = {name: panel[name] for name in ("type", "title", "gridPos")}
    if panel["type"] == "row":
        return found
    defaults = panel["fieldConfig"]["defaults"]
    mappings = defaults.get("mappings", [])
    return found | {
        "unit": defaults.get("unit"),
        "thresholds": defaults.get("thresholds", {}).get("steps", []),
        "words": {value: word for each in mappings for value, word in each["options"].items()},
        "series": [
            {"name": _legend(target["legendFormat"], each), "points": each.points}
            for target in panel["targets"]
            for each in series_of(target)
        ],
    }


def _legend(form: str, series: Series) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: series.labels.get(name[1], ""), form)
