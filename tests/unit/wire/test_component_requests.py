"""Requests and replies between components of two releases, as in an upgrade or a rollback."""

from __future__ import annotations

from inspect import isclass
from typing import Any, get_args

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from mqstore.service.structs import struct_of
from mqstore.wire.examples.rebuilds import PLAN
from mqstore.wire.examples.reports import EXPIRY
from mqstore.wire.operation import Nothing, Operation, Role, all_operations
from mqstore.wire.rebuilds import RebuildPlan
from mqstore.wire.reports import ExpirySummary
from mqstore.wire.retention import PinSpec

NEWER = {"ofANewerRelease": True}


def models_in(annotation: Any, found: set[type[BaseModel]] | None = None) -> set[type[BaseModel]]:
    """The models of a type, and those of their fields."""
    found = set() if found is None else found
    if isclass(annotation) and issubclass(annotation, BaseModel) and annotation not in found:
        found.add(annotation)
        for field in annotation.model_fields.values():
            models_in(field.annotation, found)
    for each in get_args(annotation):
        models_in(each, found)
    return found


def requests(*, of_components: bool) -> list[Operation[Any]]:
    return [
        each
        for each in all_operations()
        if each.request is not None and (each.role is Role.SYSTEM) == of_components
    ]


@pytest.mark.parametrize("operation", requests(of_components=True), ids=lambda each: each.name)
def test_a_request_of_a_component_may_have_fields_of_a_newer_release(
    operation: Operation[Any],
) -> None:
    for model in models_in(operation.request):
        assert model.model_config.get("extra") == "ignore", model


@pytest.mark.parametrize("operation", requests(of_components=False), ids=lambda each: each.name)
def test_a_request_of_a_client_has_known_fields_only(operation: Operation[Any]) -> None:
    for model in models_in(operation.request):
        assert model.model_config.get("extra") == "forbid", model


def test_a_reply_may_have_fields_of_a_newer_release() -> None:
    replies = {model for each in all_operations() for model in models_in(each.reply)}
    assert len(replies) > 50
    strict = [each for each in replies if each.model_config.get("extra") == "forbid"]
    assert strict == []
    assert Nothing.model_validate(NEWER) == Nothing()


def test_an_expiry_report_of_a_newer_job_is_taken() -> None:
    expiring = [each | NEWER for each in EXPIRY["expiring"]]
    sent = EXPIRY | NEWER | {"expiring": expiring}
    assert ExpirySummary.model_validate(sent) == ExpirySummary.model_validate(EXPIRY)


def test_an_expiry_report_of_an_older_job_is_taken() -> None:
    sent = {name: value for name, value in EXPIRY.items() if name != "diskFills"}
    assert ExpirySummary.model_validate(sent).disk_fills is False


def test_a_plan_of_a_newer_job_is_decoded_on_the_hot_route() -> None:
    files = [each | NEWER for each in PLAN["files"]]
    sent = msgspec.json.encode(PLAN | NEWER | {"files": files})
    decoder = msgspec.json.Decoder(struct_of(RebuildPlan))
    assert decoder.decode(sent) == decoder.decode(msgspec.json.encode(PLAN))


def test_a_misspelt_field_of_a_client_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        PinSpec.model_validate({"fromOffset": 0, "leaseSecond": 300})


def test_internal_routes_are_for_services_only() -> None:
    internal = [each for each in all_operations() if each.path.startswith("/v1/internal/")]
    assert len(internal) > 5
    open_ones = [each.path for each in internal if each.role is not Role.SYSTEM]
    assert open_ones == []
