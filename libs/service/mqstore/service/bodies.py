"""What was wrong with a request's body or parameters, in words; bodies of hot routes as structs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from mqstore.service import problems
from mqstore.service.http import HotRequest
from mqstore.service.problems import Problem
from mqstore.storage.formats import count_json_values

SHOWN_MAX: Final = 10
"""Of what is wrong with one body."""
_HALF_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
Asked = TypeVar("Asked")
Item = Mapping[str, Any]
"""One thing that is wrong, as pydantic says it."""


def read(decoder: msgspec.json.Decoder[Asked], request: HotRequest, body: bytes) -> Asked:
    """Raises Problem: 415 for another type than JSON, else as ``decode``."""
    if not says_json(request.media_type.decode("latin-1")):
        raise not_json()
    return decode(decoder, body)


def decode(decoder: msgspec.json.Decoder[Asked], body: bytes) -> Asked:
    """Raises Problem: 400 for no JSON, 422 for what does not fit the schema."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(problems.BODY_INVALID, lower(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(problems.BAD_JSON, f"the body is no JSON: {_why(body, error)}") from None


def check_values(body: bytes, most: int) -> None:
    """Raises Problem (413) for more JSON values than a request needs: decoding makes an object of
    each, before their number can be checked, and holds the interpreter meanwhile."""
    if len(body) > most and count_json_values(body, most) > most:
        raise Problem(
            problems.BODY_TOO_LARGE,
            f"the body has more than {most} JSON values; send fewer messages at a time, or fewer "
            "properties and keys",
            extra={"limit": most},
        )


def _why(body: bytes, error: Exception) -> str:
    """What is wrong with a body, where msgspec's own word for it misleads."""
    if not body:
        return "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return "it is not in UTF-8"
    if _HALF_SURROGATE.search(body) and "truncated" in str(error):
        return "it ends too soon, or a string holds half a surrogate pair"
    return lower(str(error))


def body_problem(items: Sequence[Item]) -> Problem:
    """400 for no JSON, 422 for what does not fit."""
    if any(item["type"] == "json_invalid" for item in items):
        why = str(items[0].get("ctx", {}).get("error", ""))
        at = items[0]["loc"][-1]
        where = f" at character {at}" if isinstance(at, int) else ""
        return Problem(problems.BAD_JSON, f"the body is no JSON: {lower(why)}{where}")
    return Problem(problems.BODY_INVALID, explained(items))


def not_json() -> Problem:
    return Problem(
        problems.UNSUPPORTED_MEDIA_TYPE, "send the body with content-type application/json"
    )


def says_json(media_type: str) -> bool:
    """Without its parameters, in lower case."""
    return media_type == "application/json" or media_type.endswith("+json")


def explained(items: Sequence[Item]) -> str:
    return "; ".join(f"{_place(item['loc'])}: {_explained(item)}" for item in items[:SHOWN_MAX])


def lower(text: str) -> str:
    """The first letter, unless an abbreviation begins with it."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location[1:]) or str(location[0])


def _explained(item: Item) -> str:
    """Pydantic's text, where it does not speak of Python."""
    return _EXPLANATIONS.get(item["type"]) or lower(item["msg"].removeprefix("Value error, "))


_EXPLANATIONS: Final = {
    "missing": "it is needed",
    "extra_forbidden": "there is no such field; leave it out",
    "model_attributes_type": "it should be a JSON object",
    "model_type": "it should be a JSON object",
    "int_parsing": "it should be an integer",
    "bool_parsing": "it should be true or false",
    "float_parsing": "it should be a number",
}
