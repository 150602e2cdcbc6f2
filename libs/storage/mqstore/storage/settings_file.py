"""Settings files: RocketMQ's ``broker.conf``, with settings of mqstore among a broker's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mqstore.storage import broker_settings, java_properties
from mqstore.storage.setting_names import fold, is_setting, unknown_settings

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OF_BROKERS: Final = frozenset(map(fold, broker_settings.NAMES))


def parse(content: bytes) -> dict[str, str]:
    """Return the settings that a broker reads in the file, by name. Space at the end of a value
    that brokers do not know is removed.

    Raises ValueError for what Java does not read, and for bytes of a setting that another program
    would read otherwise.
    """
    if content.startswith(_BYTE_ORDER_MARK):
        raise ValueError("it begins with a byte order mark, which Java takes for a name: remove it")
    found: dict[str, str] = {}
    for line, name, value, is_ascii in java_properties.parse(content):
        if not is_ascii and is_setting(name):
            raise ValueError(
                f"line {line}: {name} has a byte that is not ASCII, and a broker reads ISO-8859-1, "
                r"other programs UTF-8: write \uXXXX for the character"
            )
        found[name] = value if fold(name) in _OF_BROKERS else value.rstrip()
    return found


def refusals(settings: Mapping[str, str], fields: Mapping[str, str]) -> Iterator[str]:
    """Why each setting of a file is refused: unknown names, two values of one setting, and values
    that a broker reads otherwise.

    ``fields``: the field of each folded name, as ``fields_by_name`` returns them.
    """
    unknown = unknown_settings(settings, broker_settings.NAMES)
    if unknown is not None:
        yield f"{unknown}: correct or remove it"
    first: dict[str, str] = {}
    for name, value in settings.items():
        before = first.setdefault(fields.get(fold(name), name), name)
        if settings[before] != value:
            yield f"{before} and {name} are one setting and have two values: keep one line"
    yield from broker_settings.misreadings(settings)
