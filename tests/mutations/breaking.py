"""A module with one change in its text, for this process alone: no file is touched."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change, and who is to notice it: the crash states, or else a test."""

    what: str
    module: str
    old: str
    """Stands in the module's text exactly once."""
    new: str
    shown_by: str | None = None
    """A test that fails then; None where crash states do."""

    def apply(self, text: str) -> str:
        """The broken text. ValueError where the code is not what it was."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.what}: {self.module} has the old text {count} times")
        return text.replace(self.old, self.new)

    def path(self) -> Path:
        """Path of the module's source."""
        spec = find_spec(self.module)
        assert spec is not None and spec.origin is not None
        return Path(spec.origin)


class _BrokenLoader(SourceFileLoader):
    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        """From the text, never from what was compiled before."""
        text = self._mutation.apply(self.get_data(self.path).decode())
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _BrokenLoader(self._mutation, spec.origin)
        return spec


def break_this_process(mutation: Mutation) -> None:
    """Import the module broken from now on; it must not have been imported yet."""
    if mutation.module in sys.modules:
        raise RuntimeError(f"{mutation.module} is imported already; break it before")
    sys.meta_path.insert(0, _Finder(mutation))
