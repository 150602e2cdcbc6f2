"""The names of all settings and ``MQSTORE_…`` variables of the project.

A name that no program knows is refused by each of them: a misspelt setting would have no effect.
Names of other programs are accepted, as one environment may serve all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import AliasChoices
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from mqstore.storage.config import StoreConfig
from mqstore.storage.service_settings import ServiceSettings

ENV_PREFIX: Final = "MQSTORE_"
OF_CLIENTS: Final = frozenset({"token", "token_file", "ca", "context", "output", "query_url"})
"""Variables that ``mqstore`` commands and jobs take in place of an option, and those of
``Client.from_env``."""
_OF_TESTS: Final = re.compile(
    r"REQUIRE_(REFEREE|BROWSER)|CHROMIUM|EXPLORE|KILL_ROUNDS|(E2E|COMPAT)_\w+"
)
_SERVICE_LINKS: Final = {
    re.compile(r"(\w+_)?SERVICE_HOST"): re.compile(r"[0-9a-fA-F.:]+"),
    re.compile(r"(\w+_)?SERVICE_PORT(_\w+)?"): re.compile(r"\d+"),
    re.compile(r"(\w+_)?PORT(_\d+_(TCP|UDP|SCTP))?"): re.compile(r"(tcp|udp|sctp)://\S+"),
    re.compile(r"(\w+_)?PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)"): re.compile(r"[\w.:]+"),
}
"""Names and values of what Kubernetes injects for a Service called mqstore or mqstore-…"""


def fold(name: str) -> str:
    """Return the name in lower case without underscores, for comparisons."""
    return name.replace("_", "").lower()


def fields_by_name(fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    """The field of each name of a setting, with its other spellings; names are folded."""
    return {fold(spelling): name for name, spelling in _spellings(fields)}


def _spellings(fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    for name, field in fields.items():
        yield name, name
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        yield from ((name, choice) for choice in choices if isinstance(choice, str))


_MODELS: Final = (ServiceSettings, StoreConfig)
_SETTINGS: Final = {
    fold(spelling): spelling
    for model in _MODELS
    for name, spelling in _spellings(model.model_fields)
    if name != "store_config"
}
"""All settings by their folded names, with RocketMQ's older spellings."""
_VARIABLES: Final = _SETTINGS | {fold(name): name for name in OF_CLIENTS}


def is_setting(name: str) -> bool:
    """Whether mqstore has a setting of this name, in any spelling."""
    return fold(name) in _SETTINGS


def is_service_link(name: str, value: str) -> bool:
    """Whether a variable (without its prefix) is one that Kubernetes injects for a Service."""
    return any(
        pattern.fullmatch(name.upper()) and values.fullmatch(value)
        for pattern, values in _SERVICE_LINKS.items()
    )


def given_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name, without our prefix, and value of each variable with it, but for Service links."""
    for variable, value in environment.items():
        name = variable[len(ENV_PREFIX) :]
        if variable.upper().startswith(ENV_PREFIX) and not is_service_link(name, value):
            yield name, value


def unknown_variables(environment: Mapping[str, str]) -> str | None:
    """Why the environment is refused: the variables that no program of ours knows, each with the
    nearest name; None where all are known."""
    unknown = [
        _describe(f"{ENV_PREFIX}{name}", _nearest_variable(name))
        for name, _ in given_variables(environment)
        if fold(name) not in _VARIABLES and not _OF_TESTS.fullmatch(name.upper())
    ]
    if not unknown:
        return None
    return f"unknown variable {', '.join(sorted(unknown))}: correct or unset it"


def unknown_settings(names: Iterable[str], others: Iterable[str] = ()) -> str | None:
    """Why a settings file is refused: names in it that are no setting and not among ``others``."""
    known = {fold(name): to_camel(name) for name in (*_SETTINGS.values(), *others)}
    unknown = [
        _describe(repr(name), _nearest(name, known)) for name in names if fold(name) not in known
    ]
    return f"unknown setting {', '.join(unknown)}" if unknown else None


def _describe(name: str, nearest: str | None) -> str:
    return name if nearest is None else f"{name} (did you mean {nearest}?)"


def _nearest_variable(name: str) -> str | None:
    found = _nearest(name, _VARIABLES)
    return None if found is None else ENV_PREFIX + _in_capitals(found)


def _nearest(name: str, known: Mapping[str, str]) -> str | None:
    found = difflib.get_close_matches(fold(name), known, 1, cutoff=0.7)
    return known[found[0]] if found else None


def _in_capitals(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()
