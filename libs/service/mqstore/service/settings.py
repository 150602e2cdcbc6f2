"""Settings of the services: environment (``MQSTORE_…``) over a file over defaults.

A setting that RocketMQ has too has RocketMQ's name. Case and underscores do not matter:
``MQSTORE_MAPPED_FILE_SIZE_COMMIT_LOG``, ``MQSTORE_mappedFileSizeCommitLog`` and, in a file,
``mappedFileSizeCommitLog`` are one setting. ``MQSTORE_CONFIG_FILE`` names the file, which is read
as RocketMQ reads its ``broker.conf``. Unknown names are rejected, and values that a broker reads
otherwise; other settings of a broker are accepted in the file and have no effect.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mqstore.service.configuration_error import ConfigurationError
from mqstore.storage import StoreConfig
from mqstore.storage.replication import Margins
from mqstore.storage.settings import (
    ServiceSettings,
    broker_lacks,
    broker_refusals,
    fields_by_name,
    file_refusals,
    fold,
    given_variables,
    is_setting,
    parse_settings_file,
    unknown_variables,
)

CONFIG_FILE_VARIABLE = "MQSTORE_CONFIG_FILE"
CONFIG_FILE_SIZE_MAX = 1 << 20


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of a ``HostAndPort``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Settings(ServiceSettings, BaseSettings):
    """The settings of all services, with their values."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def own_replica_name(self) -> str:
        """`replicaName`, or the host name."""
        return self.replica_name or socket.gethostname()

    @property
    def shard_replicas(self) -> frozenset[str]:
        """The names of the replicas that can be in sync, if they prove themselves."""
        return frozenset((self.replica_names or self.replica_pods).split())

    @property
    def admits_copies(self) -> bool:
        """Whether other processes may copy the log while this store leads."""
        return bool(self.ha_allowed_slaves) or self.replica_secret_file is not None

    @property
    def follows(self) -> bool:
        """Whether the store is to be a copy of a leader's."""
        return self.broker_role == "SLAVE"

    @property
    def waits_for_all_in_sync(self) -> bool:
        """Whether a reply that waits for replicas waits for all in sync: any may be elected."""
        return self.all_ack_in_sync_state_set or self.election_lease is not None

    @property
    def election_margins(self) -> Margins:
        """The times of an election."""
        return Margins(
            self.election_lease_duration / 1000,
            self.election_renewal_deadline / 1000,
            self.election_retry_interval / 1000,
        )

    @model_validator(mode="after")
    def _require_leader(self) -> Self:
        if self.follows and self.ha_master_address is None:
            raise ValueError("brokerRole=SLAVE needs haMasterAddress: host:port of the leader's HA")
        return self

    @model_validator(mode="after")
    def _require_founder(self) -> Self:
        _ = self.election_margins
        if self.election_lease is None:
            return self
        if self.follows:
            raise ValueError("brokerRole=SLAVE and electionLease: the lease says who follows")
        if self.founding_replica is None:
            raise ValueError("electionLease needs foundingReplica: who leads a new shard first")
        if not self.admits_copies:
            raise ValueError(
                "electionLease needs replicaSecretFile, or haAllowedSlaves with the addresses of "
                "the other replicas"
            )
        return self

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        if self.replica_secret_file is not None and not self.shard_replicas:
            raise ValueError(
                "replicaSecretFile needs replicaNames: the names of this shard's replicas, which "
                "alone can be in sync"
            )
        return self

    def unused_names(self) -> list[str]:
        """Return the broker settings in the settings file that mqstore does not use, sorted."""
        return sorted(name for name in self._in_file() if not is_setting(name))

    def lacks(self) -> list[str]:
        """Return the consequence of each broker setting in the settings file that changes what is
        stored, deleted, delivered or permitted, and that mqstore does without."""
        return list(broker_lacks(self._in_file()))

    def _in_file(self) -> dict[str, str]:
        return {} if self.config_file is None else read_properties(self.config_file)

    def tokens(self) -> Tokens:
        """Return the configured bearer tokens by role; token files are read at each call.

        Raises ConfigurationError for an unreadable file, a short token or too many tokens.
        """
        given = {
            "admin": self.token_admin,
            "produce": self.token_produce,
            "consume": self.token_consume,
            "system": self.token_system,
        }
        tokens: Tokens = {}
        for role, secret in given.items():
            text = _token_file(self.tokens_dir, role)
            if text is None and secret is not None:
                text = secret.get_secret_value()
            if text is not None:
                tokens[role] = split_secrets(f"{role} token", text)
        return tokens

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Replace pydantic's sources of settings by arguments, environment and settings file."""
        return (init_settings, _NamedSource(settings_cls))


Tokens = dict[str, tuple[str, ...]]
"""The valid tokens of each role."""
TOKEN_LENGTH_MIN = 16
TOKENS_OF_A_ROLE_MAX = 2
"""Valid tokens of a role at one time: during a rotation the old one and the new one."""


def split_secrets(name: str, text: str) -> tuple[str, ...]:
    """Return the valid values of a secret: one, or two during a rotation.

    Raises ConfigurationError for a short one or too many.
    """
    tokens = tuple(text.split())
    if not tokens or any(len(token) < TOKEN_LENGTH_MIN for token in tokens):
        raise ConfigurationError(
            f"the {name} is shorter than {TOKEN_LENGTH_MIN} characters; "
            "make one with `openssl rand -hex 32`"
        )
    if len(tokens) > TOKENS_OF_A_ROLE_MAX:
        raise ConfigurationError(f"{len(tokens)} {name}s: give one, or the old one and the new one")
    return tokens


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError, which names each invalid one."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("; ".join(explain(error))) from None


class _NamedSource(PydanticBaseSettingsSource):
    """Environment variables and the settings file, as fields of Settings and StoreConfig.

    Names are compared without case and underscores.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        own = fields_by_name(self.settings_cls.model_fields)
        store = fields_by_name(StoreConfig.model_fields)
        values: dict[str, Any] = {}
        store_values: dict[str, Any] = {}
        for name, value in _given():
            folded = fold(name)
            if folded in own:
                values[own[folded]] = value
            elif folded in store:
                store_values[store[folded]] = value
        if store_values:
            values["store_config"] = store_values
        return values


def _given() -> Iterator[tuple[str, str]]:
    """Yield the name and value of each setting given; a later one overrides an earlier one.

    Raises ConfigurationError for an unknown name.
    """
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    if path:
        yield from _read_settings_file(Path(path)).items()
    unknown = unknown_variables(os.environ)
    if unknown is not None:
        raise ConfigurationError(unknown)
    yield from given_variables(os.environ)


def _read_settings_file(path: Path) -> dict[str, str]:
    """Read a settings file of mqstore, or RocketMQ's broker.conf."""
    values = read_properties(path)
    fields = fields_by_name({**StoreConfig.model_fields, **Settings.model_fields})
    refused = "; ".join((*file_refusals(values, fields), *broker_refusals(values)))
    if refused:
        raise ConfigurationError(f"settings file {path}: {refused}")
    return values


def read_properties(path: Path) -> dict[str, str]:
    """Read a settings file as a broker does, whatever its settings are.

    Raises ConfigurationError for an unreadable file or line.
    """
    try:
        if path.stat().st_size > CONFIG_FILE_SIZE_MAX:
            raise ConfigurationError(
                f"settings file {path} is larger than {CONFIG_FILE_SIZE_MAX} bytes"
            )
        return parse_settings_file(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"settings file {path} cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigurationError(f"settings file {path}: {error}") from None


def _token_file(directory: Path | None, role: str) -> str | None:
    if directory is None:
        return None
    try:
        return (directory / role).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"token file {directory / role} cannot be read: {error}") from None


def explain(error: ValidationError) -> Iterator[str]:
    """Yield what is wrong with each setting that was refused, and what is allowed."""
    for item in error.errors(include_url=False):
        place = ".".join(to_camel(str(part)) for part in item["loc"] if part != "store_config")
        message = item["msg"].removeprefix("Value error, ")
        of = f"setting {place}: " if place else "settings: "
        yield f"{of}{message[0].lower()}{message[1:]}"
