"""Files of messages: JSON lines, and Parquet with the extra ``parquet`` of this distribution.

Both are read and written in bounded memory. A file is written under another name until it is
complete.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from mqstore.cli.extras import require_parquet
from mqstore.cli.json_text import parse_json
from mqstore.cli.message_documents import Document
from mqstore.cli.output import json_line

LINE_MAX: Final = 64 << 20
"""Maximum bytes of a line: a message of 4 MiB as JSON with escapes."""
_GROUP_MESSAGES: Final = 1_000
_GROUP_BYTES: Final = 8 << 20
"""Bytes of bodies in one row group of Parquet, at which it is written."""
_PART: Final = ".part"
Write = Callable[[Document], None]


class FileForm(StrEnum):
    """Forms of a file of messages."""

    JSONL = "jsonl"
    PARQUET = "parquet"


def form_of(path: Path | None, form: str | None) -> FileForm:
    """The given form, else that of the file's name; JSON lines without one. Raises ValueError."""
    if form is not None:
        if form not in set(FileForm):
            raise ValueError(f"--format {form}: choose {' or '.join(FileForm)}")
        return FileForm(form)
    is_parquet = path is not None and path.suffix == ".parquet"
    return FileForm.PARQUET if is_parquet else FileForm.JSONL


# writing


@contextmanager
def written(path: Path | None, form: FileForm) -> Iterator[Write]:
    """Open a file for messages, which gets its name once all are written and synced; None: stdout.

    After an error there is no file.

    Raises ValueError where the file exists already, or for Parquet on stdout, OSError.
    """
    if path is None:
        if form is FileForm.PARQUET:
            raise ValueError("Parquet is written to a file: name it with --to")
        with _jsonl_writer(sys.stdout.buffer) as write:
            yield write
        return
    if path.exists():
        raise ValueError(f"{path} exists already: remove it, or name another file")
    part = path.with_name(path.name + _PART)
    writer = _parquet_writer if form is FileForm.PARQUET else _jsonl_writer
    file = _open(part)
    try:
        with file:
            with writer(file) as write:
                yield write
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror}): name a file in a directory that exists"
        ) from None


@contextmanager
def _jsonl_writer(file: BinaryIO) -> Iterator[Write]:
    def write(document: Document) -> None:
        file.write(json_line(document).encode() + b"\n")

    yield write
    file.flush()


@contextmanager
def _parquet_writer(file: BinaryIO) -> Iterator[Write]:
    require_parquet()
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = _schema(pyarrow)
    rows: list[Document] = []
    size = 0

    def write(document: Document) -> None:
        nonlocal size
        row = _row(document)
        rows.append(row)
        size += len(row["body"])
        if len(rows) == _GROUP_MESSAGES or size >= _GROUP_BYTES:
            flush()

    def flush() -> None:
        nonlocal size
        writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
        rows.clear()
        size = 0

    with ParquetWriter(file, schema) as writer:
        yield write
        if rows:
            flush()


def _schema(pyarrow: Any) -> Any:
    text, int32, int64 = pyarrow.string(), pyarrow.int32(), pyarrow.int64()
    return pyarrow.schema(
        {
            "topic": text,
            "queueId": int32,
            "queueOffset": int64,
            "physicalOffset": int64,
            "offsetMsgId": text,
            "uniqKey": text,
            "tags": text,
            "keys": pyarrow.list_(text),
            "properties": pyarrow.map_(text, text),
            "flag": int32,
            "sysFlag": int32,
            "bornTimestamp": int64,
            "bornHost": text,
            "storeTimestamp": int64,
            "storeHost": text,
            "reconsumeTimes": int32,
            "body": pyarrow.binary(),
        }
    )


def _row(document: Document) -> Document:
    body = document.get("body")
    raw = base64.b64decode(document["bodyBase64"]) if body is None else body.encode()
    row = {name: value for name, value in document.items() if name != "bodyBase64"}
    return row | {"body": raw, "properties": list(document["properties"].items())}


# reading


def require_regular(path: Path) -> None:
    """Raise ValueError for a path that is no file, which may be read repeatedly."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: name the file of an export")
    if not path.is_file():
        raise ValueError(f"{path} is no regular file: name the file of an export")


def read(path: Path, form: FileForm) -> Iterator[tuple[int, object]]:
    """Yield the documents of a file with the numbers of their lines or rows, from 1 on; a
    ValueError in place of one that cannot be read.

    Raises OSError, and ValueError for a file that is no Parquet.
    """
    yield from _parquet_rows(path) if form is FileForm.PARQUET else _json_lines(path)


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_MAX + 1):
            number += 1
            if len(line) > LINE_MAX and not line.endswith(b"\n"):
                while rest := file.readline(LINE_MAX):
                    if rest.endswith(b"\n"):
                        break
                yield number, ValueError(f"it has more than {LINE_MAX} bytes")
            elif line.strip():
                yield number, _decoded(line)


def _decoded(line: bytes) -> object:
    try:
        return parse_json(line)
    except ValueError as error:
        return ValueError(f"it is no JSON: {error}")


def _parquet_rows(path: Path) -> Iterator[tuple[int, object]]:
    require_parquet()
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet: {error}") from None
    number = 0
    with file:
        for batch in file.iter_batches(batch_size=_GROUP_MESSAGES):
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                number += 1
                yield number, row
