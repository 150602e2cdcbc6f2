"""Contexts: the addresses and credentials of clusters, by name, in a file of the user.

The file is ``$XDG_CONFIG_HOME/mqstore/contexts.json`` (default ``~/.config``), mode 0600. It names
the file or the variable that holds a token; it never has the token itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from mqstore.cli.json_text import parse_json
from mqstore.cli.output import camel_case

FILE_NAME: Final = "contexts.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NAME_RULE: Final = "letters, digits, '.', '_' and '-', at most 63, the first a letter or digit"


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster. None is the default of the commands."""

    writer_url: str | None = None
    query_url: str | None = None
    coordinator_url: str | None = None
    token_file: str | None = None
    """File that holds the token; read for each command."""
    token_env: str | None = None
    """Environment variable that holds the token."""
    ca: str | None = None
    """CA bundle for https addresses (PEM)."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and the name of the one in use; None if none is."""

    current: str | None = None
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """The context of that name. Raises ValueError, with the names that there are."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(self.by_name) or "none"
            raise ValueError(
                f"no context {name!r}; there are: {known} (`mqstore context add {name}` adds it)"
            )
        return found

    def with_context(self, name: str, context: Context) -> Contexts:
        """Add or replace a context; the first one comes into use. Raises ValueError for a name."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a context; use {_NAME_RULE}")
        return Contexts(self.current or name, {**self.by_name, name: context})

    def without(self, name: str) -> Contexts:
        """Remove a context. Raises ValueError for an unknown one."""
        self.get(name)
        left = {each: context for each, context in self.by_name.items() if each != name}
        return Contexts(None if self.current == name else self.current, left)

    def using(self, name: str) -> Contexts:
        """Make a context the current one. Raises ValueError for an unknown one."""
        self.get(name)
        return replace(self, current=name)


def contexts_path(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the file of contexts. ``environment`` is by default that of the process."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "mqstore" / FILE_NAME


def load(path: Path) -> Contexts:
    """Read the contexts; none if there is no file. Raises ValueError for a file that is unusable,
    and OSError."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); correct or remove it") from None
    return _contexts_of(document, path)


def save(path: Path, contexts: Contexts) -> None:
    """Replace the file of contexts, with mode 0600. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    document = {
        "current": contexts.current,
        "contexts": {name: _set_fields(each) for name, each in contexts.by_name.items()},
    }
    new = path.with_name(f".{FILE_NAME}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def shown(name: str, context: Context, *, is_current: bool) -> dict[str, Any]:
    """A context as commands print it."""
    return {"name": name, "current": is_current, **camel_case(asdict(context))}


def _set_fields(context: Context) -> dict[str, str]:
    return {name: value for name, value in asdict(context).items() if value is not None}


def _contexts_of(document: Any, path: Path) -> Contexts:
    known = {each.name for each in fields(Context)}
    try:
        by_name = {
            str(name): Context(**{key: str(value) for key, value in each.items() if key in known})
            for name, each in document["contexts"].items()
        }
        current = document["current"]
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{path} has no contexts as we write them; remove it") from None
    return Contexts(current if current in by_name else None, by_name)
