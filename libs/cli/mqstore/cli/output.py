"""The output of commands: one layer for tables, JSON, YAML and CSV.

A table is drawn by rich on a terminal, and is plain aligned text in a pipe. JSON has one object a
line, with the field names of the API. CSV has the columns of the table, with unrounded values.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from math import isfinite
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.table import Table


class Format(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


GAP: Final = "  "
_CSV_SPECIAL: Final = re.compile('[",\r\n]')
"""Cells with one of these get quotes."""
_FORMULA: Final = re.compile(r"\s*[=+\-@\t\r].", re.DOTALL)
"""The begin of a text that spreadsheets run; a lone sign is none."""

_UNICODE_LINE_END: Final = re.compile("[\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and its value in an item."""

    heading: str
    value: Callable[[Any], object]
    show: Callable[[Any], str] = str
    """The value for readers; not used for None, which is ``-``."""
    right: bool = False
    width: int = 0
    """Width where rows are printed as they arrive."""

    def within(self, name: str) -> Column:
        """The same column of items that have its items in their attribute ``name``."""
        return replace(self, value=lambda item: self.value(getattr(item, name)))

    def cell(self, item: Any) -> str:
        """The text of an item's value, without characters that control a terminal."""
        value = self.value(item)
        return printable("-" if value is None else self.show(value))


def field_column(
    heading: str,
    name: str,
    show: Callable[[Any], str] = str,
    *,
    right: bool = False,
    width: int = 0,
) -> Column:
    """A column of the attribute ``name`` of items."""
    return Column(heading, attrgetter(name), show, right, width)


def columns_of(item: Mapping[str, Any]) -> list[Column]:
    """A column for each key of an item."""
    return [Column(name, itemgetter(name)) for name in item]


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results in one form. Not thread-safe."""

    form: Format
    stream: TextIO | None = None
    """None: what stdout is at each call."""

    @property
    def is_table(self) -> bool:
        """Whether results are printed for readers."""
        return self.form is Format.TABLE

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return (self.stream or sys.stdout).isatty()

    @property
    def is_document(self) -> bool:
        """Whether results are printed as the API has them, with all fields: JSON and YAML."""
        return self.form in (Format.JSON, Format.YAML)

    def items(self, items: Iterable[Any], columns: Sequence[Column]) -> None:
        """Print all items. A table is laid out at the end; other forms are printed item by item."""
        if self.is_table:
            self._table(list(items), columns)
        else:
            for line in self._lines(items, columns):
                self.line(line)

    def rows(self, items: Iterable[Any], columns: Sequence[Column]) -> None:
        """Print items as they arrive. A table has fixed widths, and no head without an item."""
        lines = self._lines(items, columns) if not self.is_table else _rows(items, columns)
        for line in lines:
            self.line(line, flush=True)

    def item(self, item: Any, columns: Sequence[Column]) -> None:
        """Print one item: in a table a line for each column."""
        if self.form is Format.YAML:
            from mqstore.cli.yaml_text import yaml_lines

            for line in yaml_lines(document(item)):
                self.line(line)
        elif self.is_table:
            width = max(len(each.heading) for each in columns) + 1
            for column in columns:
                self.line(f"{column.heading + ':':<{width}} {column.cell(item)}")
        else:
            self.items([item], columns)

    def done(self, text: str, item: Any = None, columns: Sequence[Column] = ()) -> None:
        """Report a change: ``text`` for readers, in other forms ``item`` if there is one.

        ``columns`` are those of CSV; without them it has the text.
        """
        if self.is_table:
            self.line(text)
        elif item is not None:
            self.item(item, columns or [Column("result", lambda _: text)])

    def line(self, text: str, *, flush: bool = False) -> None:
        """Print a line; characters that UTF-8 cannot encode are replaced."""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode("utf-8")
        print(text, file=self.stream, flush=flush)

    def _lines(self, items: Iterable[Any], columns: Sequence[Column]) -> Iterator[str]:
        if self.form is Format.JSON:
            yield from (json_line(document(item)) for item in items)
        elif self.form is Format.CSV:
            yield from _csv_lines(items, columns)
        else:
            from mqstore.cli.yaml_text import yaml_item

            for item in items:
                yield from yaml_item(document(item))

    def _table(self, items: list[Any], columns: Sequence[Column]) -> None:
        cells = [[column.cell(item) for column in columns] for item in items]
        if self.is_terminal:
            self._draw(cells, columns)
            return
        for line in _aligned(cells, columns):
            self.line(line)

    def _draw(self, cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> None:
        from rich.console import Console  # slow to import, and needed on a terminal only

        Console(file=self.stream).print(rich_table(cells, columns))


def rich_table(cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> Table:
    """A table for a terminal, of cells by row."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            column.heading.upper(),
            justify="right" if column.right else "left",
            overflow="fold",
        )
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def document(item: Any) -> Any:
    """The plain value of an item: a model's with the field names of the API."""
    if hasattr(item, "model_dump"):
        return item.model_dump(mode="json", by_alias=True)
    return dict(item) if isinstance(item, Mapping) else item


def camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields with names as the API has them: ``writer_url`` becomes ``writerUrl``."""
    return {_camel(name): value for name, value in fields.items()}


def json_line(value: Any) -> str:
    """JSON in one line, also for programs that end lines at the separators of Unicode. Numbers that
    JSON does not have, as NaN, are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json_line(_finite(value))
    return text if text.isascii() else _UNICODE_LINE_END.sub(_escape, text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def printable(text: str) -> str:
    """Text with escapes in place of characters that control a terminal or end a line."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def size(count: float) -> str:
    """A number of bytes as text with a binary unit, as ``12.3 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def yes_no(value: object) -> str:
    """A truth value for readers."""
    return "yes" if value else "no"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _aligned(cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> Iterator[str]:
    head = [column.heading.upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for row in chain([head], cells):
        yield _padded(row, widths, columns)


def _rows(items: Iterable[Any], columns: Sequence[Column]) -> Iterator[str]:
    widths = [max(column.width, len(column.heading)) for column in columns]
    head: list[str] | None = [column.heading.upper() for column in columns]
    for item in items:
        if head is not None:
            yield _padded(head, widths, columns)
            head = None
        yield _padded([column.cell(item) for column in columns], widths, columns)


def _padded(row: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    return GAP.join(
        f"{cell:>{width}}" if column.right else f"{cell:<{width}}"
        for cell, width, column in zip(row, widths, columns, strict=True)
    ).rstrip()


def _csv_lines(items: Iterable[Any], columns: Sequence[Column]) -> Iterator[str]:
    yield ",".join(_csv_cell(column.heading) for column in columns)
    for item in items:
        yield ",".join(_csv_cell(column.value(item)) for column in columns)


def _csv_cell(value: object) -> str:
    """The text of a cell: nothing for None, and an empty text in quotes. A text that a spreadsheet
    would take for a formula gets an apostrophe before it, as in the console's exports; JSON has the
    exact text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json_line(value)
    text = str(value)
    if _FORMULA.match(text):
        text = f"'{text}"
    if text and not _CSV_SPECIAL.search(text):
        return text
    quoted = text.replace('"', '""')
    return f'"{quoted}"'
