"""The reference has every setting, metric, problem and command, and says what each is."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from pydantic.alias_generators import to_camel

from docs.generate.commands import APPS, all_commands, commands
from docs.generate.hook import DOCS
from docs.generate.metrics import (
    COMMON,
    PUT_TIMES,
    exported_name,
    labels,
    metric_names,
    metrics,
    metrics_of,
)
from docs.generate.problems import PAGES, problems
from docs.generate.services import NAMES
from docs.generate.settings import MODELS, descriptions, names, settings
from docs.generate.settings import PAGES as SETTING_PAGES
from mqstore.storage.recovery.report import Action, RecoveryPlan, RecoveryReport
from mqstore.wire.problems import REGISTRY


@pytest.mark.parametrize("of", MODELS)
def test_every_setting_has_its_default_and_a_description(of: str) -> None:
    rows = {row[0]: row for row in _rows(settings(of))}
    texts = descriptions(MODELS[of])
    for name in names(MODELS[of]):
        head = f'<span id="{to_camel(name).lower()}"></span>`{to_camel(name)}`'
        _, default, _, meaning = rows[f"{head}<br>`MQSTORE_{name.upper()}`"]
        assert default
        assert meaning.startswith(re.sub(r"\s+", " ", texts[name])), name
        assert texts[name].endswith("."), name


def test_pages_that_explain_a_setting_or_a_problem_are_given_for_known_names() -> None:
    assert set(SETTING_PAGES) <= {name for model in MODELS.values() for name in model.model_fields}
    assert set(PAGES) <= set(REGISTRY)


def test_every_problem_has_its_status_and_a_remedy() -> None:
    page = problems()
    for name, kind in REGISTRY.items():
        assert f"## {name}\n\n**{kind.status} {kind.title}.** {kind.when}" in page
        assert f"- **What to do:** {kind.remedy}" in page


@pytest.mark.parametrize("service", NAMES)
def test_the_help_of_a_metric_is_a_sentence_that_names_its_labels(service: str) -> None:
    for metric in metrics_of(service):
        help_text = metric.documentation
        assert re.fullmatch(r"[A-Z0-9].*\.", help_text), metric.name
        assert [label for label in labels(metric) if label not in help_text] == [], metric.name


def test_every_metric_of_a_service_has_one_row() -> None:
    rows: list[str] = []
    for of in (COMMON, *NAMES):
        found = [row[0] for row in _rows(metrics(of))]
        assert len(found) == len(set(found))
        rows += found
    for name in {exported_name(each) for service in NAMES for each in metrics_of(service)}:
        assert f"`{name}`" in rows or name.startswith(PUT_TIMES), name
    assert len(metric_names()) > 100


@pytest.mark.parametrize("of", APPS)
def test_every_command_and_option_is_described(of: str) -> None:
    page = commands(of)
    for name, command in all_commands(of):
        assert f"### {name}\n" in page
        assert command.help, name
        assert [each.name for each in command.params if not each.help] == [], name


def test_the_page_of_recovery_has_every_field_and_action_of_its_report() -> None:
    page = (DOCS / "concepts" / "recovery.md").read_text(encoding="utf-8")
    unnamed = {"magic", "version", "plan", "last_store_timestamp_ms", "finished_at_ms"}
    for name in {*RecoveryPlan.model_fields, *RecoveryReport.model_fields} - unnamed:
        assert re.search(rf"`(plan\.)?{to_camel(name)}`", page), name
    for action in get_args(get_args(Action)[0]):
        assert f"`{action.model_fields['kind'].default}`" in page


def _rows(table: str) -> list[list[str]]:
    """The cells of a table's lines below its head."""
    lines: list[Any] = table.splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
