"""msgspec structs of hot routes, derived from the models of the contract (``mqstore.wire``).

A struct has the fields, aliases and constraints of its model, but no rules between fields.
tests/unit/service/test_structs.py checks that both decode the same documents alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from inspect import getmembers, isclass
from types import ModuleType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

import annotated_types
import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mqstore.wire.base import Request

Model = TypeVar("Model", bound=BaseModel)

_CONSTRAINTS: Final = {
    annotated_types.Ge: "ge",
    annotated_types.Le: "le",
    annotated_types.Gt: "gt",
    annotated_types.Lt: "lt",
    annotated_types.MinLen: "min_length",
    annotated_types.MaxLen: "max_length",
}
"""msgspec's names of constraints; each class has one attribute, of the same name."""


def structs_of(*modules: ModuleType) -> dict[str, type[msgspec.Struct]]:
    """Derive a struct of each model that the modules define; returns them by the model's name."""
    return {
        name: _struct_of(each)
        for module in modules
        for name, each in getmembers(module, isclass)
        if issubclass(each, BaseModel) and each.__module__ == module.__name__
    }


def struct_of(model: type[Model]) -> type[Model]:
    """Derive a struct of a model, with keyword-only fields.

    For the type checker it has the type of the model, and so the model's fields; it has none of the
    model's methods. A field of a reply has a default only if the reply may leave it out.
    """
    return cast(type[Model], _struct_of(model))


@cache
def _struct_of(model: type[BaseModel]) -> type[msgspec.Struct]:
    is_request = issubclass(model, Request)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, field in model.model_fields.items():
        if field.is_required() or not (is_request or field.exclude_if is not None):
            fields.append((name, Any))
        elif field.default_factory is not None:
            made = msgspec.field(default_factory=field.default_factory)  # type: ignore[arg-type]
            fields.append((name, Any, made))
        else:
            fields.append((name, Any, field.default))
    struct = msgspec.defstruct(
        model.__name__,
        fields,
        module=model.__module__,
        kw_only=True,
        rename={name: each.alias for name, each in model.model_fields.items() if each.alias},
        omit_defaults=not is_request,
        forbid_unknown_fields=model.model_config.get("extra") == "forbid",
        gc=False,
    )
    for name, field in model.model_fields.items():  # here the model may refer to itself
        found = Any if field.annotation is None else _converted(field.annotation, {model: struct})
        struct.__annotations__[name] = _constrained(found, field.metadata)
    return struct


def part_of(
    struct: type[Model], wanted: Callable[[msgspec.structs.FieldInfo], bool]
) -> type[Model]:
    """Derive a struct with some fields of another one, which ``struct_of`` returned. Its instances
    have no other fields, whatever the type checker believes."""
    of_all = msgspec.structs.fields(cast(type[msgspec.Struct], struct))
    fields = [each for each in of_all if wanted(each)]
    return cast(
        type[Model],
        msgspec.defstruct(
            struct.__name__,
            [(f.name, f.type) if f.required else (f.name, f.type, f.default) for f in fields],
            kw_only=True,
            rename={each.name: each.encode_name for each in fields},
            omit_defaults=True,
            gc=False,
        ),
    )


def _converted(annotation: Any, known: dict[type[BaseModel], type[msgspec.Struct]]) -> Any:
    """Return a type with each model replaced by its struct."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        return known.get(annotation) or _struct_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _constrained(_converted(arguments[0], known), arguments[1:])
    if origin in (Union, UnionType):
        return Union[tuple(_converted(each, known) for each in arguments)]  # noqa: UP007
    if origin in (list, dict, tuple):
        return origin[tuple(_converted(each, known) for each in arguments)]
    return annotation


def _constrained(annotation: Any, metadata: Iterable[Any]) -> Any:
    constraints = dict(_constraints(metadata))
    return Annotated[annotation, msgspec.Meta(**constraints)] if constraints else annotation


def _constraints(metadata: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from _constraints(each.metadata)
        elif (name := _CONSTRAINTS.get(type(each))) is not None:
            yield name, getattr(each, name)
        elif (pattern := getattr(each, "pattern", None)) is not None:
            yield "pattern", pattern
