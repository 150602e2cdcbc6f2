"""The part of values.schema.json that follows from the settings of the services.

``python -m tests.unit.chart.settings_schema`` writes it into the chart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from mqstore.service.settings import Settings
from mqstore.storage.config import StoreConfig

CHART: Final = Path(__file__).parents[3] / "charts" / "mqstore"
SCHEMA: Final = CHART / "values.schema.json"
# fmt: off
SET_BY_THE_CHART: Final = frozenset([
    "store", "host", "shard", "brokerName", "tokenAdmin", "tokenProduce", "tokenConsume",
    "tokenSystem", "tokensDir", "tlsCert", "tlsKey", "tlsClientCa", "shutdownTimeoutS",
    "terminationMessagePath", "listenFd", "parentPid", "storeConfig", "writerPort", "storeHost",
    "storeId", "storePathCommitLog", "coordinatorPort", "writerUrl", "upstreamCa", "configFile",
    "shardStatefulSet", "shardNamespace", "callbackHosts", "callbackCa", "queryPort", "logFormat",
    "shardsFile", "coordinatorUrl", "haTlsCert", "haTlsKey", "haTlsCa",
    "replicaSecretFile", "replicaNames", "replicasFile",
])
# fmt: on
"""Settings that say how the parts of a release find each other; no value of their own."""
_KEYWORDS: Final = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "pattern")


def settings_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Schema of the value of a setting, by the settings' own bounds."""
    document = model.model_json_schema(by_alias=False)
    properties = {
        to_camel(name): _constraints(field, document.get("$defs", {}))
        for name, field in document["properties"].items()
        if to_camel(name) not in SET_BY_THE_CHART
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items())),
    }


def _constraints(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    for each in field.get("anyOf", [field]):
        found = definitions[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if found.get("type") != "null":
            return {name: found[name] for name in _KEYWORDS if name in found}
    raise ValueError(f"no type in {field}")


def completed(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with these parts as they follow from the settings."""
    parts = {"store": settings_schema(StoreConfig), "settings": settings_schema(Settings)}
    properties = schema["properties"]
    for name, part in parts.items():
        properties[name] = {"description": properties[name]["description"], **part}
    return schema


if __name__ == "__main__":
    schema = completed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
