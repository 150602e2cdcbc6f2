"""Operations of the three services: who serves them, and the parameters that they document."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqstore.coordinator.service import CoordinatorService
from mqstore.query.__main__ import build as build_query
from mqstore.service.settings import Settings
from mqstore.wire.operation import all_operations
from mqstore.writer.__main__ import build as build_writer

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "architecture.md"
SERVICES: Final[dict[str, Callable[[Settings], Any]]] = {
    "store-writer": build_writer,
    "query": build_query,
    "transaction-coordinator": CoordinatorService,
}


def test_the_document_names_what_fastapi_does_not_serve(tmp_path: Path) -> None:
    async def look() -> dict[str, set[str]]:
        found = {}
        for name, build in SERVICES.items():
            front = build(Settings(store=tmp_path / "store")).front
            operations = (route.operation for route in front._hot)
            found[name] = {each["operationId"] for each in operations if each is not None}
        return found

    hot = asyncio.run(look())
    text = DOCUMENT.read_text()
    rows = {name: re.search(rf"^\| {name} \| (`.+`) \|$", text, re.MULTILINE) for name in hot}
    named = {name: {*re.findall(r"`(\w+)`", row[1])} for name, row in rows.items() if row}
    assert named == hot
    assert f"all operations but these {sum(map(len, hot.values()))} hot routes" in text


def test_the_documented_query_of_an_operation_is_its_model(tmp_path: Path) -> None:
    """Produce has two, by the type of its body."""

    async def look() -> dict[str, dict[str, Any]]:
        services = {
            name: build(Settings(store=tmp_path / "store")) for name, build in SERVICES.items()
        }
        return {name: each.api.app.openapi()["paths"] for name, each in services.items()}

    paths = asyncio.run(look())
    for each in all_operations():
        if each.name == "produce":
            continue
        model = {} if each.query is None else each.query.model_fields
        expected = {field.alias or name for name, field in model.items()}
        for target in each.targets:
            (service,) = (name for name in SERVICES if name.endswith(target.value))
            operation = paths[service][each.path.replace(":path}", "}")][each.method.lower()]
            found = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            assert found - {"shard"} == expected - {"shard"}, each.name
