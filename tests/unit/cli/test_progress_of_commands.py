"""Progress of long work: a bar on a terminal, lines in a log, nothing for short work."""

from __future__ import annotations

import io
from itertools import count

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from mqstore.cli.progress import LINE_INTERVAL_S, bar_updater, line_printer, show_progress


def test_a_log_gets_a_line_from_time_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = count(0.0, LINE_INTERVAL_S / 2)
    show = line_printer(lambda: next(seconds))
    for done in range(6):
        show("log", done, 5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"mqstore: log: {percent} %" for percent in (20, 60, 100)]


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as show:
        show("log", 1, 0)
    assert capsys.readouterr().err == ""


def test_a_bar_moves_with_the_work_and_begins_again_with_each_stage() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=60)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, console=console, auto_refresh=False)
    show = bar_updater(bar)
    (task,) = bar.tasks
    show("recovery", 5, 10)
    assert (task.description, task.percentage) == ("recovery", 50.0)
    show("log", 0, 10)
    assert (task.description, task.percentage) == ("log", 0.0)
    show("log", 10, 10)
    with bar:
        bar.refresh()
    assert "log" in text.getvalue()
    assert "100%" in text.getvalue()
