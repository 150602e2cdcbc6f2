"""Reads and writes our own JSON files, with a checksum: a flipped bit must not become another size
or offset.

The first member is ``"checksum"``, eight hexadecimal digits: the CRC-32C of the whole text with
zeros in their place. A file without it (made by hand) is accepted; to edit a file by hand, remove
that member.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, TypeVar

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import replace_file

_HEAD: Final = b'{"checksum":"'
_ZEROS: Final = b"00000000"
_SEALED: Final = re.compile(re.escape(_HEAD) + rb'([0-9a-f]{8})",')


class Value(BaseModel):
    """The content of a file of ours, or a part of it: immutable, with camelCase names in JSON."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class StrictValue(Value):
    """A value that has no other members."""

    model_config = ConfigDict(extra="forbid")


_MEMBERS: Final = TypeAdapter(dict[str, object])
Model = TypeVar("Model", bound=BaseModel)


def read(files: FileSystem, path: Path, model: type[Model]) -> Model | None:
    """Read a sealed file; None without one. Raises ValueError, OSError."""
    if files.stat(path) is None:
        return None
    return model.model_validate_json(unseal(files.read(path)))


def read_members(files: FileSystem, path: Path) -> dict[str, object] | None:
    """Read the members of a sealed file of any model; None without a file. Raises ValueError,
    OSError."""
    if files.stat(path) is None:
        return None
    return _MEMBERS.validate_json(unseal(files.read(path)))


def write(files: FileSystem, path: Path, value: BaseModel, *, in_lines: bool = False) -> None:
    """Replace a sealed file; durable at return. Raises OSError."""
    replace_file(files, path, encode(value, in_lines=in_lines))


def encode(value: BaseModel, *, in_lines: bool = False) -> bytes:
    """The bytes of a sealed file; with ``in_lines`` each member has a line, for people."""
    if in_lines:
        return seal(value.model_dump_json(by_alias=True, indent=2) + "\n")
    return seal(value.model_dump_json(by_alias=True))


def seal(text: str) -> bytes:
    """The bytes to write for a JSON object with one member or more."""
    content = _HEAD + _ZEROS + b'",' + text.encode().removeprefix(b"{")
    return content.replace(_ZEROS, b"%08x" % crc32c(content), 1)


def why_unreadable(error: OSError | ValueError) -> str:
    """The reason, in one line, why a file that is read by ``unseal`` and a model is unusable."""
    return error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)


def unseal(raw: bytes) -> bytes:
    """The JSON object without its checksum. Raises ValueError when the checksum does not match."""
    found = _SEALED.match(raw)
    if found is None:
        return raw
    start, end = found.span(1)
    view = memoryview(raw)
    if crc32c(view[end:], crc32c(_ZEROS, crc32c(view[:start]))) != int(found.group(1), 16):
        raise ValueError("its checksum does not fit; it was changed or damaged")
    return b"".join((b"{", view[found.end() :]))
