"""Results as tables, JSON, YAML and CSV."""

from __future__ import annotations

import csv
import io
import json
from operator import itemgetter
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from mqstore.cli.output import Column, Format, Output, columns_of, json_line, printable, size
from mqstore.cli.yaml_text import yaml_item, yaml_lines

NAME = Column("name", lambda item: item["name"], width=6)
COUNT = Column("count", lambda item: item["count"], lambda n: f"{n:,}", right=True)
ITEMS: list[dict[str, Any]] = [{"name": "a", "count": 1234}, {"name": "bb", "count": None}]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=8,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(form: Format, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    Output(form, stream).items(ITEMS, [NAME, COUNT])
    return stream.getvalue()


def test_a_table_in_a_pipe_is_aligned_text() -> None:
    assert printed(Format.TABLE) == "NAME  COUNT\na     1,234\nbb        -\n"


def test_a_table_on_a_terminal_has_colours_unless_they_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[" in printed(Format.TABLE, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(Format.TABLE, Terminal())


def test_json_has_one_object_a_line() -> None:
    assert [json.loads(line) for line in printed(Format.JSON).splitlines()] == ITEMS


def test_yaml_is_one_list() -> None:
    assert yaml.safe_load(printed(Format.YAML)) == ITEMS


def test_csv_has_the_columns_and_unrounded_values() -> None:
    rows = list(csv.reader(io.StringIO(printed(Format.CSV))))
    assert rows == [["name", "count"], ["a", "1234"], ["bb", ""]]


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@SUM(A1)", " =1", "\t=1", "\r=1", "\n@x"])
def test_csv_has_no_formula_and_json_the_exact_text(text: str) -> None:
    items = [{"name": text, "count": -1}]
    for form, expected in ((Format.CSV, f"'{text}"), (Format.JSON, text)):
        stream = io.StringIO()
        Output(form, stream).items(items, [NAME, COUNT])
        found = stream.getvalue()
        if form is Format.CSV:
            assert list(csv.reader(io.StringIO(found, newline="")))[1] == [expected, "-1"]
        else:
            assert json.loads(found) == items[0]


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_csv_is_read_back_by_another_program(texts: list[str]) -> None:
    assume(not any(map(_is_formula, texts)))
    stream = io.StringIO(newline="")
    columns = [Column(f"c{at}", itemgetter(at)) for at in range(len(texts))]
    Output(Format.CSV, stream).items([texts, texts], columns)
    exact = [each.encode("utf-8", "replace").decode() for each in texts]
    assert list(csv.reader(io.StringIO(stream.getvalue(), newline="")))[1:] == [exact, exact]


def _is_formula(text: str) -> bool:
    return text.strip()[:1] in set("=+-@") or text[:1].isspace()


def test_csv_distinguishes_an_empty_text_from_none_and_has_truth_values_of_json() -> None:
    stream = io.StringIO()
    columns = [Column(str(at), itemgetter(at)) for at in range(5)]
    Output(Format.CSV, stream).items([(None, "", True, 2**53 + 1, 0.1)], columns)
    assert stream.getvalue() == '0,1,2,3,4\n,"",true,9007199254740993,0.1\n'


def test_a_line_of_json_has_no_character_that_ends_a_line_in_other_programs() -> None:
    value = {"a": "x\u2028y\u2029z\x85\n", "b": [float("nan"), float("inf"), 1.5]}
    line = json_line(value)
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"a": value["a"], "b": [None, None, 1.5]}


def test_one_item_is_a_line_for_each_column() -> None:
    stream = io.StringIO()
    Output(Format.TABLE, stream).item(ITEMS[0], [NAME, COUNT])
    assert stream.getvalue() == "name:  a\ncount: 1,234\n"
    for form in (Format.JSON, Format.YAML):
        stream = io.StringIO()
        Output(form, stream).item(ITEMS[0], columns_of(ITEMS[0]))
        assert yaml.safe_load(stream.getvalue()) == ITEMS[0]


def test_rows_are_printed_as_they_arrive() -> None:
    stream = io.StringIO()

    def arriving() -> Any:
        yield ITEMS[0]
        assert stream.getvalue() == "NAME    COUNT\na       1,234\n"
        yield ITEMS[1]

    Output(Format.TABLE, stream).rows(arriving(), [NAME, COUNT])
    assert stream.getvalue().endswith("\nbb          -\n")


def test_no_value_controls_the_terminal() -> None:
    assert printable("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert printable("añ 漢") == "añ 漢"


@given(VALUES)
def test_yaml_of_any_value_is_read_back(value: Any) -> None:
    assert yaml.safe_load("\n".join(yaml_lines(value))) == value
    assert yaml.safe_load("\n".join(yaml_item(value))) == [value]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB")])
def test_a_size_is_printed_in_binary_units(count: int, text: str) -> None:
    assert size(count) == text
