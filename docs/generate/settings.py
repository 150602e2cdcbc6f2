"""Settings: names, variables, defaults, units and meanings of the settings' models."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from docs.generate.markdown import code, see, table
from mqstore.service.settings_routes import NOT_OF_USERS
from mqstore.storage import StoreConfig
from mqstore.storage.settings import ServiceSettings

MODELS: Final[dict[str, type[BaseModel]]] = {"services": ServiceSettings, "store": StoreConfig}
UNITS: Final = {
    "Bytes": "bytes",
    "Hours": "h",
    "Milliseconds": "ms",
    "Pages": "pages",
    "Percent": "%",
    "Seconds": "s",
}
"""The first word of a description, where it is a unit."""

PAGES: Final = {
    "enable_calc_filter_bit_map": "concepts/consumers.md#filters",
    "enable_consume_queue_ext": "concepts/consumers.md#filters",
    "file_reserved_time": "concepts/retention.md",
    "filter_support_retry": "concepts/consumers.md#filters",
    "flush_disk_type": "concepts/durability.md",
    "ha_allowed_slaves": "concepts/replication.md",
    "index_catch_up_size": "how-to/rebuild-the-index.md",
    "max_client_share": "concepts/limits.md",
    "message_delay_level": "concepts/delayed-messages.md",
    "replica_secret_file": "concepts/replication.md",
    "scrub_bytes_per_second": "concepts/integrity.md",
    "shards_file": "concepts/shards.md",
    "store_path_commit_log": "concepts/store.md#a-log-on-another-volume",
    "store_umask": "concepts/store.md#permissions",
    "tokens_dir": "how-to/rotate-tokens.md",
    "transaction_check_max": "concepts/transactions.md",
    "unique_key_window": "concepts/deduplication.md",
}
"""The page of ``docs`` that explains a setting further."""


def settings(of: str) -> str:
    """The settings of ``services`` or of the ``store``, as a table."""
    model = MODELS[of]
    texts = descriptions(model)
    return table(
        ("setting, variable", "default", "unit", "meaning"),
        (
            (
                f'<span id="{to_camel(name).lower()}"></span>`{to_camel(name)}`'
                f"<br>{code(f'MQSTORE_{name.upper()}')}",
                _default(model.model_fields[name].default),
                UNITS.get(texts[name].split()[0].rstrip(";"), ""),
                texts[name] + see(PAGES.get(name)),
            )
            for name in names(model)
        ),
    )


def names(model: type[BaseModel]) -> list[str]:
    """The fields that users set."""
    return [name for name in model.model_fields if name not in NOT_OF_USERS]


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field. Raises KeyError for a field without one, when it is used."""
    return dict(_attribute_docstrings(model))


def _attribute_docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text).replace("``", "`")


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    return code(value.value if isinstance(value, Enum) else value)
