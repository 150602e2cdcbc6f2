from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import document, machine
from tests.bench.harness import Row
from tests.locks import ROOT


def test_a_run_replaces_what_stands_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Before\n{document.BEGIN}\nan older run\n{document.END}\nAfter\n")
    document.write(page, "an old run")
    document.write(page, "two cores\n\n| row |\n| append |")
    assert page.read_text() == (
        f"# Before\n{document.BEGIN}\n\ntwo cores\n\n| row |\n| append |\n\n{document.END}\nAfter\n"
    )


def test_a_page_without_markers_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "other.md"
    page.write_text(f"# Other\n{document.BEGIN}\n")
    with pytest.raises(ValueError, match="has no lines"):
        document.write(page, "facts")
    assert page.read_text() == f"# Other\n{document.BEGIN}\n"


def test_the_page_of_benchmarks_has_the_markers() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert text.count(document.BEGIN) == text.count(document.END) == 1
    assert text.index(document.BEGIN) < text.index(document.END)


def test_the_table_of_the_page_has_cost_and_latency_on_the_line_of_their_rate() -> None:
    name = document.SHOWN[0]
    rows = [
        Row(name, "messages/s", 200.0, 100.0, 2.0, (1.5, 2.5)),
        Row(f"{name}, server's cost", "µs a message", 50.0, 75.0),
        Row(f"{name}, p99", "ms", 0.5, 1.25),
        Row("a row that the page leaves out", "ms", 1.0),
    ]
    assert document.summary(rows).split("\n")[2:] == [
        f"| {name} | messages/s | 200 | 100 | 2.00 | 1.50 … 2.50 | 50 · 75 | 0.5 · 1.25 |"
    ]


def test_a_whole_run_names_the_rows_of_the_page_that_it_lacks() -> None:
    rows = [Row(name, "ms", 1.0) for name in document.SHOWN[1:]]
    assert document.missing(rows) == [document.SHOWN[0]]


def test_the_load_at_the_start_stands_with_the_figures() -> None:
    found = machine.facts() | {"load": "4.3 2.1 1.0"}
    assert "load at the start (1, 5, 15 minutes): 4.3 2.1 1.0." in machine.sentence(found)
