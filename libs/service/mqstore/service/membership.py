"""The list of shards: ``shardsFile``, read again when it changes.

JSON: ``{"shards": [{"shard": 0, "storeHost": "10.0.0.0:10911", "writerUrl": "http://…:8081",
"queryUrl": "http://…:8082"}, …]}``. The list is the desired state: a shard that is down stays in
it, and replies name it as missing.

The member ``"keys": {"shards": [0, 1, 2], "before": [0, 1], "changedAtMs": …}`` names the shards
among which an application's unique keys choose, and those among which they chose before a time.
Without it they choose among all shards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from mqstore.service import logs
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.tls import fingerprint_of
from mqstore.storage.formats import Host, parse_host

log = logs.get(__name__)

SHARDS_MAX: Final = 1024
FILE_SIZE_MAX: Final = 1 << 20

Url = Annotated[str, Field(pattern="^https?://[^/?#@]+/?$")]


class ShardEntry(BaseModel):
    """One shard, with the addresses of its services."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid"
    )

    shard: Annotated[int, Field(ge=0)]
    store_host: str
    writer_url: Url
    query_url: Url

    @field_validator("store_host")
    @classmethod
    def _is_a_host(cls, text: str) -> str:
        parse_host(text)
        return text

    @property
    def host(self) -> Host:
        """The shard's STOREHOST."""
        return parse_host(self.store_host)


class KeyShards(BaseModel):
    """The shards among which unique keys of applications choose, and their last change."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid"
    )

    shards: Annotated[list[int], Field(min_length=1, max_length=SHARDS_MAX)]
    before: Annotated[list[int], Field(max_length=SHARDS_MAX)] = []
    changed_at_ms: Annotated[int, Field(ge=0)] = 0

    @field_validator("shards", "before")
    @classmethod
    def _in_order(cls, numbers: list[int]) -> list[int]:
        return sorted(set(numbers))


class ShardList(BaseModel):
    """The content of ``shardsFile``."""

    model_config = ConfigDict(extra="forbid")

    shards: Annotated[list[ShardEntry], Field(min_length=1, max_length=SHARDS_MAX)]
    keys: KeyShards | None = None


class Membership:
    """The latest valid list of shards, for shard ``own``. Used on the event loop only."""

    def __init__(self, path: Path | None, own: int) -> None:
        """Read the list; without a file this shard is the only one.

        Raises ConfigurationError for an unreadable or invalid file.
        """
        self.own: Final = own
        self._path = path
        self._seen = None if path is None else fingerprint_of(path)
        self._adopt(None if path is None else read(path))

    def _adopt(self, listed: ShardList | None) -> None:
        self._listed = listed
        self.entries = {each.shard: each for each in ([] if listed is None else listed.shards)}
        """All shards by their numbers, ascending."""
        self.others = [each for each in self.entries.values() if each.shard != self.own]
        self.alone = not self.others
        self.lists_own = self._path is None or self.own in self.entries
        self.numbers = sorted({self.own, *self.entries})
        self.keys = (listed and listed.keys) or KeyShards(shards=list(self.entries) or [self.own])
        self._by_host = {each.host: each for each in self.entries.values()}

    def of_host(self, host: Host) -> ShardEntry | None:
        """Return the shard with this STOREHOST; None if no shard in the list has it."""
        return self._by_host.get(host)

    def reload_if_changed(self) -> bool:
        """Read a changed file; return whether the list changed. An invalid file has no effect."""
        if self._path is None or (found := fingerprint_of(self._path)) == self._seen:
            return False
        self._seen = found
        try:
            listed = read(self._path)
        except ConfigurationError as error:
            log.error("the changed list of shards is invalid; the old one stays", error=str(error))
            return False
        if listed == self._listed:
            return False
        self._adopt(listed)
        log.info("list of shards read again", shards=self.numbers)
        return True


def read(path: Path) -> ShardList:
    """Read a list of shards and sort it by number. Raises ConfigurationError."""
    try:
        with path.open("rb") as source:
            text = source.read(FILE_SIZE_MAX + 1)
        if len(text) > FILE_SIZE_MAX:
            raise ConfigurationError(f"shardsFile {path} is larger than {FILE_SIZE_MAX} bytes")
        listed = ShardList.model_validate_json(text)
    except OSError as error:
        raise ConfigurationError(f"shardsFile {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"shardsFile {path} is no list of shards: {place}: {first['msg']}"
        ) from None
    entries = sorted(listed.shards, key=lambda each: each.shard)
    numbers = [each.shard for each in entries]
    _refuse_doubles(path, "number", numbers)
    _refuse_doubles(path, "storeHost", [each.host for each in entries])
    if listed.keys is not None and not set(listed.keys.shards) <= set(numbers):
        raise ConfigurationError(
            f"shardsFile {path} has keys.shards that are not among its shards: {numbers}"
        )
    return listed.model_copy(update={"shards": entries})


def _refuse_doubles(path: Path, what: str, values: list[int] | list[Host]) -> None:
    if len(set(values)) < len(values):
        raise ConfigurationError(f"shardsFile {path} has a {what} twice; each shard has its own")
