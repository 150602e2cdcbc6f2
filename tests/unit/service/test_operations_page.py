"""The documents have every setting with its default, every problem, every field of a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from mqstore.service import problems
from mqstore.service.settings import Settings
from mqstore.storage.config import StoreConfig
from mqstore.storage.recovery.report import Action, RecoveryPlan, RecoveryReport

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines()]
SETTINGS = {
    name: row[1]
    for row in ROWS
    if len(row) == 3
    for name in re.findall(r"`([A-Za-z0-9]+)`", row[0])
}


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {
        to_camel(name): field.default
        for name, field in model.model_fields.items()
        if name != "store_config"
    }


@pytest.mark.parametrize("model", [Settings, StoreConfig])
def test_every_setting_is_there_with_its_default(model: type[BaseModel]) -> None:
    for name, default in _defaults(model).items():
        assert name in SETTINGS, name
        assert SETTINGS[name] == ("none" if default is None else f"`{default}`"), name


def test_no_setting_is_there_that_does_not_exist() -> None:
    assert set(SETTINGS) <= set(_defaults(Settings)) | set(_defaults(StoreConfig))


def test_every_problem_is_there_with_its_status_and_a_remedy() -> None:
    told = {row[0].strip("`"): row for row in ROWS if len(row) >= 4 and row[1].isdigit()}
    assert set(told) == set(problems.REGISTRY)
    for name, kind in problems.REGISTRY.items():
        assert told[name][1] == str(kind.status)
        assert all(told[name][2:])


def test_every_field_and_action_of_the_recovery_report_is_there() -> None:
    page = (DOCS / "concepts" / "recovery.md").read_text(encoding="utf-8")
    unnamed = {"magic", "version", "plan", "last_store_timestamp_ms", "finished_at_ms"}
    for name in {*RecoveryPlan.model_fields, *RecoveryReport.model_fields} - unnamed:
        assert re.search(rf"`(plan\.)?{to_camel(name)}`", page), name
    for action in get_args(get_args(Action)[0]):
        assert f"`{action.model_fields['kind'].default}`" in page
