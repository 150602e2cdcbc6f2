"""No signature and no text of a value shows a secret: ``help``, logs and tracebacks print them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pydoc
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

import pytest
from pydantic import BaseModel, SecretStr

from mqstore.client import Client
from tests.locks import ROOT

SECRET: Final = "secret-of-the-environment"
SECRETS: Final = frozenset({"secret", "token", "password", "authorization", "authkey"})
"""Names of fields that hold a secret."""
NO_SECRETS: Final = frozenset({"file", "env", "dir", "needed"})
"""Last words of names of where a secret is, or whether there is one."""
OPTIONAL: Final = ("pyspark", "pyarrow", "pandas", "numpy", "opentelemetry", "winreg")
"""Packages that may be missing."""


@functools.cache
def modules() -> Sequence[ModuleType]:
    """Import every module of every distribution."""
    found = []
    for folder in (*ROOT.glob("libs/*"), *ROOT.glob("services/*"), ROOT / "spark-jobs"):
        for path in sorted(folder.glob("mqstore/**/*.py")):
            if path.stem == "__main__":
                continue
            names = path.relative_to(folder).with_suffix("").parts
            try:
                found.append(importlib.import_module(".".join(names).removesuffix(".__init__")))
            except ImportError as error:
                assert any(each in str(error).lower() for each in OPTIONAL), error
    return found


def functions(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Yield the functions and methods that a module defines."""
    for each in list(vars(module).values()):
        if getattr(each, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(each):
            yield each
        elif inspect.isclass(each):
            for member in list(vars(each).values()):
                member = getattr(member, "__func__", member)
                if inspect.isfunction(member):
                    yield member


def classes() -> list[type]:
    """Return the classes that the modules define."""
    return [
        each
        for module in modules()
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module.__name__
    ]


def test_no_default_value_of_a_parameter_shows_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MQSTORE_TOKEN", SECRET)
    found = [each for module in modules() for each in functions(module)]
    assert len(found) > 1_000
    shown = [
        f"{each.__module__}.{each.__qualname__}"
        for each in found
        if SECRET in repr((each.__defaults__, each.__kwdefaults__))
    ]
    assert shown == []


def test_no_value_of_a_module_or_a_class_shows_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MQSTORE_TOKEN", SECRET)
    owners: list[ModuleType | type] = [*modules(), *classes()]
    shown = [
        f"{owner.__name__}.{name}"
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("__") and not inspect.ismodule(value) and SECRET in repr(value)
    ]
    assert shown == []


def test_help_of_the_client_shows_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_TOKEN", SECRET)
    assert SECRET not in pydoc.render_doc(Client)


def test_no_text_of_a_value_has_a_field_with_a_secret() -> None:
    shown = []
    for each in classes():
        if dataclasses.is_dataclass(each):
            fields = {field.name: (field.type, field.repr) for field in dataclasses.fields(each)}
        elif issubclass(each, BaseModel):
            fields = {
                name: (field.annotation, field.repr) for name, field in each.model_fields.items()
            }
        else:
            continue
        for name, (kind, is_shown) in fields.items():
            words = name.lower().split("_")
            is_secret = not SECRETS.isdisjoint(words) and words[-1] not in NO_SECRETS
            if is_secret and is_shown and SecretStr.__name__ not in str(kind):
                shown.append(f"{each.__module__}.{each.__qualname__}.{name}")
    assert shown == []
