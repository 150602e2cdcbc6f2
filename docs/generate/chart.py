"""Chart values: path, type, default and meaning of each, from values.schema.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from docs.generate.markdown import code, table

CHART: Final = Path(__file__).parents[2] / "charts" / "mqstore"
Schema = Mapping[str, Any]


def chart_values() -> str:
    """A section with a table for each value at the top that has further ones below it."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    top = schema["properties"]
    single = [(name, each) for name, each in top.items() if "properties" not in each]
    sections = [f"## Single values\n\n{_table(single, defaults)}"]
    for name, each in top.items():
        if "properties" in each:
            rows = list(_below(name, each))
            text = each.get("description", "")
            sections.append(f"## {name}\n\n{text}\n\n{_table(rows, defaults)}")
    return "\n\n".join(sections)


def _below(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, each in schema.get("properties", {}).items():
        below = list(_below(f"{path}.{name}", each))
        if not below or each.get("description"):
            yield f"{path}.{name}", each
        yield from below


def _table(rows: list[tuple[str, Schema]], defaults: Mapping[str, Any]) -> str:
    return table(
        ("value", "type", "default", "meaning"),
        (
            (code(path), _type(each), _default(path, each, defaults), each.get("description", ""))
            for path, each in rows
        ),
    )


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(code(json.dumps(each)) for each in schema["enum"])
    found = schema.get("type", "any")
    return " or ".join(found) if isinstance(found, list) else str(found)


def _default(path: str, schema: Schema, defaults: Any) -> str:
    if "properties" in schema:
        return ""
    for name in path.split("."):
        if not isinstance(defaults, Mapping) or name not in defaults:
            return ""
        defaults = defaults[name]
    text = json.dumps(defaults)
    return code(text) if len(text) <= 60 else "see values.yaml"
