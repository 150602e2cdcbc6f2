"""YAML of what a command prints, which readers of YAML 1.1 and 1.2 understand alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

_WIDTH: Final = 1 << 20
"""Characters: no text is folded."""
_PLAIN: Final = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z_][\w-]*", re.I | re.A
)
"""Text that is no number, truth value or null in either version; all other text is quoted."""


class _Dumper(yaml.CSafeDumper):  # type: ignore[misc]  # PyYAML has no types
    def ignore_aliases(self, data: Any) -> bool:  # a value that occurs twice is written twice
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    written = text.encode("utf-8", "replace").decode()
    return dumper.represent_scalar("tag:yaml.org,2002:str", written, style)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # as the names of an enumeration


def yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a document; of text, what UTF-8 cannot encode is replaced."""
    text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH)
    yield from text.removesuffix("\n").removesuffix("\n...").split("\n")


def yaml_item(value: Any) -> Iterator[str]:
    """Yield the lines of one item of a sequence."""
    yield from yaml_lines([value])
