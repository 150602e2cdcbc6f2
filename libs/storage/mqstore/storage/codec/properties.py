"""The properties string of a record: ``name 0x01 value`` joined by 0x02.

4.9 writes no 0x02 after the last property, 5.x does; both endings are read. Facts: MessageDecoder
and IndexService of 4.9.7 and 5.4.0, and the stores they wrote.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqstore.storage._kernel import split_properties
from mqstore.storage.codec.java_text import decode_utf8, string_hash
from mqstore.storage.errors import PropertyError
from mqstore.storage.layout import (
    KEY_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
)

_FORBIDDEN = (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, "\0")


def encode(properties: Mapping[str, str], *, trailing_separator: bool) -> bytes:
    """Encode properties in the mapping's order; empty for an empty mapping.

    Raises PropertyError for properties that would not decode to the same: an empty name or value, a
    separator or NUL inside, invalid Unicode.
    """
    parts = [name + NAME_VALUE_SEPARATOR + value for name, value in properties.items()]
    text = PROPERTY_SEPARATOR.join(parts)
    if not _reads_back(properties, text):
        for name, value in properties.items():
            _check("name", name, name)
            _check("value", name, value)
    if parts and trailing_separator:
        text += PROPERTY_SEPARATOR
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PropertyError("a property holds half a surrogate pair: send valid text") from None


def replace(
    encoded: bytes, changes: Mapping[str, str | None], *, trailing_separator: bool
) -> bytes:
    """Replace some encoded properties: new values go to the end, None removes a property.

    The other bytes stay, except empty parts. Raises PropertyError as ``encode``.
    """
    separator = PROPERTY_SEPARATOR.encode()
    dropped = tuple((name + NAME_VALUE_SEPARATOR).encode() for name in changes)
    parts = [p for p in encoded.split(separator) if p and not p.startswith(dropped)]
    new = {name: value for name, value in changes.items() if value is not None}
    if new:
        parts.append(encode(new, trailing_separator=False))
    text = separator.join(parts)
    return text + separator if parts and trailing_separator else text


def _reads_back(properties: Mapping[str, str], text: str) -> bool:
    """Whether the joined text has the separators between names and values, and no others."""
    count = len(properties)
    return (
        text.count(NAME_VALUE_SEPARATOR) == count
        and text.count(PROPERTY_SEPARATOR) == max(0, count - 1)
        and "\0" not in text
        and all(properties)
        and all(properties.values())
    )


def _check(part: str, name: str, text: str) -> None:
    if not text:
        raise PropertyError(f"the {part} of property {name!r} is empty: RocketMQ would drop it")
    if any(character in text for character in _FORBIDDEN):
        raise PropertyError(
            f"the {part} of property {name!r} holds 0x00, 0x01 or 0x02, which separate properties:"
            " leave them out"
        )


def decode(data: bytes) -> dict[str, str]:
    """Decode properties as RocketMQ does; never raises.

    A part without a separator, name or value is ignored; of equal names the last one counts; a
    value may contain further 0x01.
    """
    split = split_properties(data)
    if split is not None:
        return split
    found: dict[str, str] = {}
    for part in decode_utf8(data).split(PROPERTY_SEPARATOR):
        name, _, value = part.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def index_keys(uniq_key: str | None, keys: str | None) -> list[str]:
    """The keys under which a message is indexed: UNIQ_KEY, then KEYS split at single spaces."""
    indexed = [uniq_key] if uniq_key is not None else []
    if keys:
        indexed.extend(key for key in keys.split(KEY_SEPARATOR) if key)
    return indexed


def tags_code(tags: str | None) -> int:
    """The queue entry's code for TAGS: String.hashCode, 0 without tags."""
    return string_hash(tags) if tags else 0
