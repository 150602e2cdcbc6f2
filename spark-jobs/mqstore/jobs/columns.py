"""The columns of the data source, by name, with Spark's types; docs/jobs.md says what each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mqstore.jobs.errors import WrongUsage

SEGMENT: Final = "segment"

MESSAGES: Final[Mapping[str, str]] = {
    "physical_offset": "bigint",
    "size": "int",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "store_time": "timestamp",
    "born_time": "timestamp",
    "store_host": "string",
    "born_host": "string",
    "flag": "int",
    "sys_flag": "int",
    "tags": "string",
    "keys": "string",
    "uniq_key": "string",
    "real_topic": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
    "body_crc": "int",
    "version": "int",
    SEGMENT: "string",
    "properties": "map<string,string>",
    "body": "binary",
}
"""Columns of the table ``messages``, which has a row for each whole record."""

ON_DEMAND: Final = frozenset({"properties", "body"})
"""Columns that are decoded only if a query names them."""

CORRUPT: Final[Mapping[str, str]] = {
    "physical_offset": "bigint",
    "size": "bigint",
    SEGMENT: "string",
    "defect": "string",
    "detail": "string",
}
"""Columns of the table ``corrupt``, which has a row for each stretch without a whole record."""

TABLES: Final[Mapping[str, Mapping[str, str]]] = {"messages": MESSAGES, "corrupt": CORRUPT}


def chosen(table: str, names: Sequence[str] | None) -> dict[str, str]:
    """The named columns of a table with their types; without names all but ``ON_DEMAND``.

    Raises WrongUsage for unknown names and for an empty list.
    """
    known = TABLES[table]
    if names is None:
        return {name: of for name, of in known.items() if name not in ON_DEMAND}
    if not names:
        raise WrongUsage(f"no column is named; there are {', '.join(known)}")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUsage(
            f"the table {table} has no column {unknown[0]!r}; there are {', '.join(known)}"
        )
    return {name: known[name] for name in dict.fromkeys(names)}


def ddl(columns: Mapping[str, str]) -> str:
    """The columns as a schema in Spark's DDL."""
    return ", ".join(f"{name} {of}" for name, of in columns.items())
