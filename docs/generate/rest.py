"""REST: each operation with role, parameters, body, replies, problems, from OpenAPI documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from docs.generate.markdown import code, table
from docs.generate.services import described
from mqstore.wire.operation import Role, all_operations

Json = Mapping[str, Any]
_PROBLEM: Final = "application/problem+json"
_METHODS: Final = ("get", "put", "post", "delete")


def rest(service: str) -> str:
    """The operations of one service by tag, then the schemas of their bodies and replies."""
    document = described()[service].api
    texts = {each["name"]: each["description"] for each in document.get("tags", ())}
    parts = [document["info"]["description"]]
    for tag, found in _by_tag(document).items():
        parts += [f"## {tag.capitalize()}", texts.get(tag, "")]
        parts += [_operation(path, method, each) for path, method, each in found]
    parts.append("## Schemas")
    schemas = document["components"]["schemas"]
    parts += [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "\n\n".join(part for part in parts if part)


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Path, method and object of each operation."""
    for path, found in document["paths"].items():
        for method in _METHODS:
            if method in found:
                yield path, method, found[method]


def _by_tag(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    found: dict[str, list[tuple[str, str, Json]]] = {}
    for path, method, each in operations(document):
        found.setdefault(each.get("tags", ["other"])[0], []).append((path, method, each))
    return found


def _operation(path: str, method: str, operation: Json) -> str:
    parts = [f"### {method.upper()} {path}", f"**{operation['summary'].rstrip('.')}.**"]
    parts.append(operation.get("description", ""))
    parts.append(_role(method.upper(), path))
    if operation.get("parameters"):
        rows = (_parameter(each) for each in operation["parameters"])
        parts.append(table(("parameter", "in", "type", "meaning"), rows))
    if "requestBody" in operation:
        parts.append("Body: " + _content(operation["requestBody"]["content"]))
    parts += list(_replies(operation["responses"]))
    return "\n\n".join(part for part in parts if part)


def _role(method: str, path: str) -> str:
    roles = _roles()
    if (method, path) not in roles:
        return "Role: none; no token is needed."
    role = roles[method, path]
    return "Role: any." if role is None else f"Role: {code(role.value)}."


@cache
def _roles() -> dict[tuple[str, str], Role | None]:
    """Roles by method and path as the OpenAPI document has it."""
    return {(each.method, each.path.replace(":path}", "}")): each.role for each in all_operations()}


def _parameter(parameter: Json) -> tuple[str, str, str, str]:
    schema = parameter.get("schema", {})
    name = code(parameter["name"]) + (" (required)" if parameter.get("required") else "")
    text = parameter.get("description") or schema.get("description", "")
    return name, parameter["in"], _type(schema), text


def _replies(responses: Json) -> Iterator[str]:
    names: list[str] = []
    for status, reply in responses.items():
        problems = reply.get("content", {}).get(_PROBLEM, {})
        if problems:
            names += problems.get("examples", {})
        else:
            content = _content(reply["content"]) if "content" in reply else ""
            yield f"Reply {status}: {reply['description']} {content}".rstrip()
    if names:
        links = (f"[`{name}`](problems.md#{name})" for name in dict.fromkeys(names))
        yield "Problems: " + ", ".join(links) + "."


def _content(content: Json) -> str:
    """Its media types with their schemas, and an example of it in JSON."""
    types = " or ".join(
        f"{_type(media['schema'])} ({code(name)})" if media.get("schema") else code(name)
        for name, media in content.items()
    )
    example = _example(content.get("application/json", {}))
    return types + (f"\n\n```json\n{json.dumps(example, indent=2)}\n```" if example else "")


def _example(media: Json) -> Any:
    if "example" in media:
        return media["example"]
    for each in media.get("examples", {}).values():
        return each.get("value")
    return None


def _schema(name: str, schema: Json) -> str:
    parts = [f"### {name}", schema.get("description", "")]
    required = schema.get("required", ())
    fields = schema.get("properties", {})
    if fields:
        rows = ((_field(key, required), *_described(each)) for key, each in fields.items())
        parts.append(table(("field", "type", "meaning"), rows))
    else:
        parts.append(_type(schema))
    return "\n\n".join(part for part in parts if part)


def _field(name: str, required: Any) -> str:
    return code(name) + (" (required)" if name in required else "")


def _described(schema: Json) -> tuple[str, str]:
    text = schema.get("description", "")
    if schema.get("default") not in (None, ""):
        text = f"{text} Default: {code(json.dumps(schema['default']))}.".strip()
    return _type(schema), text


def _type(schema: Json) -> str:
    """A type in words, with a link where it is a schema of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{re.sub(r'[^a-z0-9_-]', '', name.lower())})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[several]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(code(json.dumps(each)) for each in values)
    return _simple_type(schema)


def _simple_type(schema: Json) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return name + _bounds(schema)


def _bounds(schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", {low} or more"
    return "" if high is None else f", at most {high}"
