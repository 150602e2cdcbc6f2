"""Settings of the services: environment (``MQSTORE_…``) over a file over defaults.

Names are RocketMQ's own where it has one. In the environment and in the file, case and underscores
do not matter: ``MQSTORE_MAPPED_FILE_SIZE_COMMIT_LOG``, ``MQSTORE_mappedFileSizeCommitLog`` and,
in a file, ``mappedFileSizeCommitLog`` are one setting. The file has RocketMQ's ``broker.conf``
form: ``name = value`` lines and ``#`` comments; ``MQSTORE_CONFIG_FILE`` names it. A name that is
unknown is refused in both; the file may have a broker's other settings, which have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mqstore.service.refusal import Refused
from mqstore.storage import broker_settings, setting_names
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.setting_names import fold
from mqstore.storage.system.umask import PRIVATE

CONFIG_FILE_VARIABLE = "MQSTORE_CONFIG_FILE"
CONFIG_FILE_SIZE_MAX = 1 << 20


def _not_empty(path: object) -> object:
    if path == "":
        raise ValueError("it is empty; name a directory")
    return path


class Settings(BaseSettings):
    """What the services read; one file may serve them all. Sizes are bytes."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    store: Annotated[
        Path,
        BeforeValidator(_not_empty),
        Field(validation_alias=AliasChoices("store", "storePathRootDir")),
    ] = Path("data/store")
    """The store directory."""
    host: str = "127.0.0.1"
    """Address to listen on; another than loopback needs tokens."""
    shard: Annotated[int, Field(ge=0)] = 0
    """Ordinal of this shard."""
    shards_file: Path | None = None
    """Which shards there shall be and where they are; without it this one is the only one."""
    shard_timeout_s: Annotated[float, Field(gt=0, le=60)] = 3.0
    """A shard that has not answered by then is missing in what is asked of all."""
    broker_cluster_name: str = "DefaultCluster"
    """Label `cluster` of metrics that have RocketMQ's names."""
    broker_name: str | None = None
    """Their label `node_id`; without one, mqstore- and the shard."""
    metrics_topics_max: Annotated[int, Field(ge=0)] = 1_000
    """Topics with metrics of their own; those of the rest are added up."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    access_log: bool = False
    """A line for each answer, at the level info."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON lines elsewhere."""

    token_admin: SecretStr | None = None
    token_produce: SecretStr | None = None
    token_consume: SecretStr | None = None
    token_system: SecretStr | None = None
    tokens_dir: Path | None = None
    """A directory with one file per role (admin, produce, consume, system) holding its token, or
    two, a line each: both are valid."""
    tls_cert: Path | None = None
    """A PEM file with the service's certificate and those that signed it."""
    tls_key: Path | None = None
    """A PEM file with its key."""
    tls_client_ca: Path | None = None
    """A PEM file: only clients with a certificate that these have signed are answered."""

    max_request_size: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """Bytes of one request's body."""
    max_pending_bytes: Annotated[int, Field(ge=1024)] = 128 << 20
    """Bytes held at one time: request bodies, and answers that clients are slow to take."""
    max_header_size: Annotated[int, Field(ge=1024, le=1 << 20)] = 32 << 10
    """Bytes of one request's line and headers."""
    max_connections: Annotated[int, Field(ge=1)] = 16_384
    """Open connections; at most three quarters of the open files that the system allows."""
    max_requests: Annotated[int, Field(ge=1)] = 16_384
    """Requests being answered at one time, long polls included."""
    max_client_share: Annotated[int, Field(ge=1, le=100)] = 80
    """Percent of each of these three that one address may have."""
    receive_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """A client that has not sent its whole request by then is dropped."""
    send_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """A client that has not taken its answer by then is dropped."""
    shutdown_timeout_s: Annotated[float, Field(gt=0)] = 14.0
    """From the first signal to the end of the process, at most."""
    store_umask: Annotated[str, Field(pattern=r"^0?0[0-7]{2}$")] = PRIVATE
    """The process's umask, in octal: the permissions that new files of the store lack.
    0077 makes files 0600 and directories 0700, 0027 lets the group read."""
    termination_message_path: Path | None = None
    """Where the reason of a failure is left; by default /dev/termination-log where that is."""

    config_file: Path | None = None
    """The settings file, as its variable names it."""
    listen_fd: int | None = None
    """A listening socket inherited from the parent, instead of binding one."""
    parent_pid: int | None = None
    """End with this process (``mqstore run``)."""

    store_config: StoreConfig = StoreConfig()
    """RocketMQ's MessageStoreConfig; its names stand beside the others, not below this one."""

    # store-writer
    writer_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    store_host: str = "127.0.0.1:10911"
    """``address:port`` in every record and offset message id; stable and unique per shard."""
    store_id: str | None = None
    """Refuse the directory unless it is this store's."""
    store_path_commit_log: str | None = None
    store_format: StoreFormat | None = None
    """Format of a store that is made new: 4.9 or 5.x."""
    retention: bool = True
    """False: this process deletes no segment, whatever the store's settings are."""
    max_batch_count: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Messages in one request."""

    # transaction-coordinator
    coordinator_port: Annotated[int, Field(ge=0, le=65535)] = 8083
    writer_url: str = "http://127.0.0.1:8081"
    """Where the coordinator finds store-writer, without a `shards_file`."""
    upstream_ca: Path | None = None
    """A PEM file: who signed the certificates of services that the coordinator calls."""
    shard_stateful_set: Annotated[
        str | None, Field(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    ] = None
    """Events are written on this StatefulSet's pods; shard N is its pod N."""
    shard_namespace: str | None = None
    """Namespace of shardStatefulSet; by default the pod's own."""
    transaction_time_out: Annotated[int, Field(ge=0)] = 6_000
    """Milliseconds before a producer is asked for the first time."""
    transaction_check_interval: Annotated[int, Field(ge=1_000)] = 60_000
    transaction_check_max: Annotated[int, Field(ge=1, le=1_000)] = 15
    """Checks sent before a transaction is set aside."""

    callback_hosts: str = ""
    """Where registered producers may be called: names (`*.example.org` too) and address blocks,
    with commas between. Addresses that are not public must be in a block. Empty: nowhere."""
    callback_ports: str = "443"
    callback_http: bool = False
    """Also without TLS."""
    callback_ca: Path | None = None
    """A PEM file: who else may have signed producers' certificates."""
    callback_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0

    # query
    query_port: Annotated[int, Field(ge=0, le=65535)] = 8082
    query_threads: Annotated[int, Field(ge=1, le=256)] = 8
    """Look-ups that may wait for the disk at one time."""
    max_pending_queries: Annotated[int, Field(ge=1)] = 512
    """Look-ups running or waiting for a thread; more are answered 503."""
    max_open_polls: Annotated[int, Field(ge=1)] = 10_000
    """Long polls waiting for arrivals; more are answered 503."""
    filter_support_retry: bool = False
    """A pull of %RETRY%GROUP goes by the group's subscriptions of the topics that messages were
    in before."""
    metrics_lags_max: Annotated[int, Field(ge=0)] = 1_000
    """Topics of consumer groups with metrics of how far the group is behind."""
    max_answer_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 8 << 20
    """Bytes of records in one answer, beyond the first."""
    segment_transfer_rate: Annotated[int, Field(ge=0)] = 256 << 20
    """Bytes a second of all segments that are being read; 0: as fast as can be."""
    max_inflated_size: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """Bytes that one compressed body may become when it is inflated on request."""
    max_inflate_ratio: Annotated[int, Field(ge=1)] = 1_000
    """As often as long an inflated body may be as it is stored."""

    def unused_names(self) -> list[str]:
        """Settings of a broker in the settings file that mqstore does not have, sorted."""
        if self.config_file is None:
            return []
        named = read_properties(self.config_file)
        return sorted(name for name in named if not setting_names.is_setting(name))

    def tokens(self) -> Tokens:
        """The configured bearer tokens; files are read anew. Raises Refused for one that cannot be
        used."""
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
                tokens[role] = _split_tokens(role, text)
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
        return (init_settings, _NamedSource(settings_cls))


Tokens = dict[str, tuple[str, ...]]
"""The valid tokens of each role."""
TOKEN_LENGTH_MIN = 16
TOKENS_OF_A_ROLE_MAX = 2
"""During a rotation: the old one and the new one."""


def _split_tokens(role: str, text: str) -> tuple[str, ...]:
    tokens = tuple(text.split())
    if not tokens or any(len(token) < TOKEN_LENGTH_MIN for token in tokens):
        raise Refused(
            f"the {role} token is shorter than {TOKEN_LENGTH_MIN} characters; "
            "make one with `openssl rand -hex 32`"
        )
    if len(tokens) > TOKENS_OF_A_ROLE_MAX:
        raise Refused(f"{len(tokens)} {role} tokens: give one, or the old one and the new one")
    return tokens


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises Refused, naming every wrong one."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise Refused("; ".join(_explain(error))) from None


class _NamedSource(PydanticBaseSettingsSource):
    """Environment over file, matched to fields of the settings or of StoreConfig by folded name."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        own = _folded_names(self.settings_cls.model_fields)
        store = _folded_names(StoreConfig.model_fields)
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
    """Every name and value, later ones win. Raises Refused for names that are unknown."""
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    if path:
        yield from _read_settings_file(Path(path)).items()
    unknown = setting_names.unknown_variables(os.environ)
    if unknown is not None:
        raise Refused(unknown)
    yield from setting_names.given_variables(os.environ)


def _read_settings_file(path: Path) -> dict[str, str]:
    """A file of ours, or RocketMQ's broker.conf."""
    values = read_properties(path)
    unknown = setting_names.unknown_settings(values, broker_settings.NAMES)
    if unknown is not None:
        raise Refused(f"settings file {path}: {unknown}: correct or remove it")
    refused = "; ".join(broker_settings.refusals(values))
    if refused:
        raise Refused(f"settings file {path}: {refused}")
    return values


def read_properties(path: Path) -> dict[str, str]:
    """Read ``name = value`` lines. Raises Refused for a file or line that cannot be read."""
    try:
        if path.stat().st_size > CONFIG_FILE_SIZE_MAX:
            raise Refused(f"settings file {path} is larger than {CONFIG_FILE_SIZE_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"settings file {path} cannot be read: {error}") from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise Refused(f"settings file {path}, line {number}: expected `name = value`")
        values[name.strip()] = value.strip()
    return values


def _folded_names(fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, field in fields.items():
        if name == "store_config":
            continue
        names[fold(name)] = name
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        names.update({fold(choice): name for choice in choices if isinstance(choice, str)})
    return names


def _token_file(directory: Path | None, role: str) -> str | None:
    if directory is None:
        return None
    try:
        return (directory / role).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"token file {directory / role} cannot be read: {error}") from None


def _explain(error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"] if part != "store_config")
        message = item["msg"]
        yield f"setting {place}: {message[0].lower()}{message[1:]}"
