"""Bodies and parameters of hot routes, and problems that describe invalid ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from pydantic import ValidationError

from mqstore.service import problems
from mqstore.service.http import HotRequest, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.storage.formats import count_json_values, has_distinct_members
from mqstore.wire.parameters import Parameters

ERRORS_SHOWN_MAX: Final = 10
"""Errors of one body that the problem lists."""
_HALF_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
Body = TypeVar("Body")
Query = TypeVar("Query", bound=Parameters)
Item = Mapping[str, Any]
"""One validation error, as pydantic reports it."""


def read(decoder: msgspec.json.Decoder[Body], request: HotRequest, body: bytes) -> Body:
    """Decode the body of a request. Raises Problem: 415 for another type, or as ``decode``."""
    if not is_json(request.media_type.decode("latin-1")):
        raise not_json_problem()
    return decode(decoder, body)


def decode(decoder: msgspec.json.Decoder[Body], body: bytes, *, is_distinct: bool = False) -> Body:
    """Decode JSON. Raises Problem: 400 for invalid JSON, and as ``require_distinct``, unless the
    caller does that (``is_distinct``); 422 for a mismatch with the schema."""
    try:
        found = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(problems.BODY_INVALID, lower_first(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(problems.BAD_JSON, f"the body is no JSON: {_defect(body, error)}") from None
    if not is_distinct:
        require_distinct(body)
    return found


def parameters(model: type[Query], given: Mapping[str, str]) -> Query:
    """Read the query of a request. Raises Problem (400)."""
    refuse_unknown(given, parameter_names(model))
    try:
        return model.model_validate(given)
    except ValidationError as error:
        items = [
            {**each, "loc": ("query", *each["loc"])} for each in error.errors(include_url=False)
        ]
        raise Problem(problems.BAD_PARAMETER, describe_errors(items)) from None


@cache
def parameter_names(model: type[Parameters]) -> frozenset[str]:
    """Return the names of the parameters of a model."""
    return frozenset(each.alias or name for name, each in model.model_fields.items())


def require_distinct(body: bytes) -> None:
    """Raise Problem (400) where an object has a member twice: a reader takes the last one alone.

    Invalid JSON is left to the reader.
    """
    if has_distinct_members(body):
        return
    try:
        _DISTINCT.decode(body.decode())
    except _Repeated as repeated:
        raise Problem(
            problems.BAD_JSON,
            f"member {repeated.args[0]!r} is twice in one object of the body; send it once",
        ) from None
    except (ValueError, RecursionError):
        return


class _Repeated(Exception):
    """A member that an object has twice."""


def _check_members(members: list[tuple[str, object]]) -> None:
    names = {name for name, _ in members}
    if len(names) < len(members):
        counts = Counter(name for name, _ in members)
        raise _Repeated(counts.most_common(1)[0][0])


_DISTINCT: Final = json.JSONDecoder(
    object_pairs_hook=_check_members, parse_int=len, parse_float=len, parse_constant=len
)
"""Makes nothing of a text but its check."""


def check_values(body: bytes, most: int) -> None:
    """Raise Problem (413) for more than ``most`` JSON values.

    Check before decoding: the decoder makes an object of each value and holds the interpreter
    meanwhile.
    """
    if len(body) > most and count_json_values(body, most) > most:
        raise Problem(
            problems.BODY_TOO_LARGE,
            f"the body has more than {most} JSON values; send fewer messages at a time, or fewer "
            "properties and keys",
            extra={"limit": most},
        )


def _defect(body: bytes, error: Exception) -> str:
    """Return why a body is invalid; msgspec's own text misleads in some cases."""
    if not body:
        return "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return "it is not in UTF-8"
    if _HALF_SURROGATE.search(body) and "truncated" in str(error):
        return "it ends too soon, or a string holds half a surrogate pair"
    return lower_first(str(error))


def body_problem(items: Sequence[Item]) -> Problem:
    """Return the problem of an invalid body: 400 for invalid JSON, else 422."""
    if any(item["type"] == "json_invalid" for item in items):
        why = str(items[0].get("ctx", {}).get("error", ""))
        at = items[0]["loc"][-1]
        where = f" at character {at}" if isinstance(at, int) else ""
        return Problem(problems.BAD_JSON, f"the body is no JSON: {lower_first(why)}{where}")
    return Problem(problems.BODY_INVALID, describe_errors(items))


def not_json_problem() -> Problem:
    """Return the problem (415) of a body of another media type than JSON."""
    return Problem(
        problems.UNSUPPORTED_MEDIA_TYPE, "send the body with content-type application/json"
    )


def is_json(media_type: str) -> bool:
    """Return whether a media type, without parameters and in lower case, is JSON."""
    return media_type == "application/json" or media_type.endswith("+json")


def describe_errors(items: Sequence[Item]) -> str:
    """Return the first ERRORS_SHOWN_MAX errors as text, each with its place."""
    shown = items[:ERRORS_SHOWN_MAX]
    return "; ".join(f"{_place(item['loc'])}: {_describe(item)}" for item in shown)


def lower_first(text: str) -> str:
    """Return a text with its first letter in lower case, unless an abbreviation begins it."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location[1:]) or str(location[0])


def _describe(item: Item) -> str:
    """Return pydantic's text of an error, or ours where pydantic's is about Python."""
    return _DESCRIPTIONS.get(item["type"]) or lower_first(item["msg"].removeprefix("Value error, "))


_DESCRIPTIONS: Final = {
    "missing": "it is needed",
    "extra_forbidden": "there is no such field; leave it out",
    "model_attributes_type": "it should be a JSON object",
    "model_type": "it should be a JSON object",
    "int_parsing": "it should be an integer",
    "bool_parsing": "it should be true or false",
    "float_parsing": "it should be a number",
}
