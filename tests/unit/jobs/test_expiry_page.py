"""The page says what is at risk first, and needs nothing but itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from mqstore.jobs.expiry import page, words
from mqstore.jobs.expiry.report import ExpiryReport, Level
from mqstore.storage.retention import NO_DELETION
from tests.unit.jobs.expiry_examples import HOUR_MS, NOW_MS, report, risk

VOID = {"meta", "br", "line", "polyline", "polygon"}


class Balanced(HTMLParser):
    """Fails for an element that is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def with_levels(made: ExpiryReport, levels: tuple[Level, ...]) -> ExpiryReport:
    assert made.disk is not None
    return made.model_copy(update={"disk": made.disk.model_copy(update={"levels": levels})})


def shown(made: ExpiryReport) -> str:
    html = page.html(made)
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return html


def test_who_loses_messages_is_said_before_all_else() -> None:
    html = shown(report([risk(), risk("audit", topic="payments", messages=1234)]))
    verdict = "1,241 messages not consumed by 2 groups will be deleted, the first in 2 h."
    assert verdict in html
    assert html.index(verdict) < html.index("audit") < html.index("The log, from old to new")


def test_a_report_without_losses_states_it() -> None:
    html = shown(report())
    assert "Retention deletes no message that a reader still needs within 1 d." in html
    assert "Not consumed" not in html


def test_half_messages_and_delayed_ones_are_named_as_such() -> None:
    risks = [risk(kind="half", name="", messages=3), risk(kind="delay", name="5", messages=4)]
    (text,) = page.verdict(risks, report(risks)).sentences
    assert text.startswith("3 undecided half messages and 4 undelivered messages will be deleted")
    (text,) = page.verdict([risk(), *risks], report(risks)).sentences
    assert text.startswith("7 messages not consumed by billing, 3 undecided half messages and 4 un")


def test_labels_of_near_levels_do_not_cover_each_other() -> None:
    levels = tuple(
        Level(setting=f"at {percent}", percent=percent, reached_in_hours=None)
        for percent in (75, 85, 87, 90)
    )
    disk = with_levels(report(), levels).disk
    assert disk is not None
    found = page.curve(disk)
    assert found.levels == [25, 15, 13, 10]
    places = sorted(at for at, _ in found.labels)
    assert all(below - above >= page.LABEL_HEIGHT for above, below in pairwise(places))
    assert [label for _, label in sorted(found.labels)] == ["90 %", "87 %", "85 %", "75 %"]


def test_a_rule_has_units() -> None:
    html = shown(report())
    for name, value in {
        "fileReservedTime": "3 d",
        "diskMaxUsedSpaceRatio": "75 %",
        "cleanFileForciblyEnable": "yes",
        "cleanFileForciblyMinAge": "1 h",
    }.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in html


def test_an_empty_log_says_so() -> None:
    nothing = {"topics": (), "topics_expiring": (), "ages": (), "segments": (), "expiring": ()}
    html = shown(report().model_copy(update=nothing))
    assert "The log has no segment." in html
    assert html.count("Nothing.") == 2


def test_a_disk_that_fills_is_part_of_the_verdict() -> None:
    levels = (
        Level(setting="diskMaxUsedSpaceRatio", percent=75, reached_in_hours=0.0),
        Level(setting="diskSpaceCleanForciblyRatio", percent=85, reached_in_hours=30.0),
        Level(setting="diskSpaceWarningLevelRatio", percent=90, reached_in_hours=48.0),
    )
    found = page.verdict((), with_levels(report(), levels))
    assert (found.tag, found.is_good) == ("disk fills", False)
    assert found.sentences == [
        "The disk passes 85 % in 1 d 6 h: retention then deletes the oldest messages, consumed or"
        " not.",
        "The disk passes 90 % in 2 d: store-writer then refuses messages.",
        "Retention deletes no message that a reader still needs within 1 d.",
    ]
    html = shown(with_levels(report(), levels))
    assert "<title>Disk fills: expiry of" in html
    assert '<div class="verdict bad"><span class="tag">disk fills</span>' in html


def test_losses_come_before_the_disk_in_the_verdict() -> None:
    levels = (Level(setting="diskSpaceWarningLevelRatio", percent=90, reached_in_hours=0.0),)
    found = page.verdict([risk()], with_levels(report([risk()]), levels))
    assert found.tag == "at risk"
    assert found.sentences == [
        "7 messages not consumed by billing will be deleted, the first in 2 h.",
        "The disk is above 90 %: store-writer then refuses messages.",
    ]


def test_the_page_is_fine_where_the_job_is() -> None:
    levels = (Level(setting="diskSpaceWarningLevelRatio", percent=90, reached_in_hours=0.0),)
    full = with_levels(report(), levels).model_copy(update={"disk_fills": True})
    for made in (report(), report([risk()]), full):
        assert page.verdict(made.risks_in_force, made).is_good == made.is_fine


def test_a_disk_above_the_level_of_normal_deletion_is_fine() -> None:
    made = report()  # it passes 75 %
    assert page.verdict((), made).tag == "fine"
    assert page.verdict((), made.model_copy(update={"disk": None})).tag == "fine"
    assert "<title>Fine: expiry of" in shown(made)


def test_nothing_is_fetched_from_anywhere() -> None:
    html = shown(report([risk()], topics=[f"topic-{n}" for n in range(90)]))
    assert not re.search(r"https?:|//|src=|@import|url\(|<script|<link", html)
    assert "and 40 more" in html


def test_names_are_text_and_no_markup() -> None:
    html = shown(report([risk("<b>&g", topic='"><script>alert(1)</script>')]))
    assert "<script" not in html
    assert "&lt;b&gt;&amp;g" in html


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1 << 30, "1 GiB"), (5 << 60, "5120 PiB")],
)
def test_sizes_have_three_digits(number: int, shown: str) -> None:
    assert words.size(number) == shown


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(0.5, "30 min"), (1, "1 h"), (24, "1 d"), (76, "3 d 4 h"), (241, "10 d")],
)
def test_many_hours_are_shown_in_days(hours: float, shown: str) -> None:
    assert words.hours(hours) == shown


def test_times_of_wrong_clocks_are_shown() -> None:
    assert words.moment(1 << 62) == f"{1 << 62} ms"
    assert words.span(1 << 62) == "a long time"
    assert words.span(-5 * HOUR_MS) == "0 min"
    assert words.moment(NOW_MS) == "2027-01-16 12:00"


def test_a_store_that_deletes_nothing_is_not_said_to_have_a_rule_in_hours() -> None:
    made = report()
    kept = made.model_copy(update={"rule": made.rule.model_copy(update=NO_DELETION)})
    html = page.html(kept)
    assert "Nothing: the store was last opened with retention=false" in html
    assert "876" not in html
    assert "With fileReservedTime" in page.html(made)
