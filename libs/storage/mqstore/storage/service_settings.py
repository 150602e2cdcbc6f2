"""The registry of the settings of the services: name, type, bounds, default and meaning of each.

``mqstore.service.settings`` reads their values. The engine, jobs and commands know the names, as
one file or environment may serve all programs. The reference and the chart's schema are made of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.layout import StoreFormat

PRIVATE_UMASK: Final = "0077"
"""Directories 0700, files 0600: for their owner alone."""
HA_BODY_SIZE_MAX: Final = (4 << 20) - 12
"""Bytes of a frame's body at most: RocketMQ's slave reads frames, of a head of 12 bytes and a body,
into 4 MiB."""


def _not_empty(path: object) -> object:
    if path == "":
        raise ValueError("it is empty; name a directory")
    return path


HostAndPort = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]+):[0-9]{1,5}$")]


class ServiceSettings(BaseModel):
    """The settings of all services; one file may serve them all. Sizes are in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    store: Annotated[
        Path,
        BeforeValidator(_not_empty),
        Field(validation_alias=AliasChoices("store", "storePathRootDir")),
    ] = Path("data/store")
    """Directory of the store; also `storePathRootDir`."""
    host: str = "127.0.0.1"
    """Address to listen on; any other than loopback needs tokens."""
    shard: Annotated[int, Field(ge=0)] = 0
    """Ordinal of this shard, in ids and replies."""
    shards_file: Path | None = None
    """File with the shards and their addresses; without it there is this shard only. Read again
    when it changes."""
    shard_timeout_s: Annotated[float, Field(gt=0, le=60)] = 3.0
    """Seconds; a shard that does not reply in time is missing from the merged reply."""
    broker_cluster_name: str = "DefaultCluster"
    """Label `cluster` of metrics that have RocketMQ's names."""
    broker_name: str | None = None
    """Label `node_id` of those metrics; by default `mqstore-` and the shard."""
    metrics_topics_max: Annotated[int, Field(ge=0)] = 1_000
    """Series by topic that each metric has at most, in query by topic and group: those of the
    busiest topics; the others are counted together under `mqstore-other-topics`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged; `mqstore run` takes warning."""
    access_log: bool = False
    """Log a line for each reply, at the level info: route, status, problem, time and address, but
    no words of a path or query."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """Form of the log. auto: console on a terminal, else JSON lines."""

    token_admin: SecretStr | None = None
    """Bearer token of the role admin, 16 characters or more; two, separated by a space, are both
    valid."""
    token_produce: SecretStr | None = None
    """Bearer token of the role produce."""
    token_consume: SecretStr | None = None
    """Bearer token of the role consume."""
    token_system: SecretStr | None = None
    """Bearer token of the role system, for the services among themselves."""
    tokens_dir: Path | None = None
    """Directory with one file per role (admin, produce, consume, system) with its token, or two,
    a line each. Read again every second."""
    tls_cert: Path | None = None
    """PEM file with the service's certificate chain; with it, HTTPS only (TLS 1.2 or newer). Read
    again when it changes. Under `mqstore run` it must name `host`, by default `127.0.0.1`, by which
    the coordinator calls the other services."""
    tls_key: Path | None = None
    """PEM file with the key of `tlsCert`."""
    tls_client_ca: Path | None = None
    """PEM file of CA certificates; only clients with a certificate of theirs are served, but for
    health and metrics."""

    cors_allowed_origins: str = ""
    """Origins of web pages that may call the API from a browser, separated by spaces, as
    `https://console.example.com`. `*`: all pages; it needs tokens."""

    max_request_size: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """Bytes of one request's body."""
    max_pending_bytes: Annotated[int, Field(ge=1024)] = 128 << 20
    """Bytes held at one time: request bodies, and replies that clients have not read."""
    max_header_size: Annotated[int, Field(ge=1024, le=1 << 20)] = 32 << 10
    """Bytes of one request's line and headers."""
    max_connections: Annotated[int, Field(ge=1)] = 16_384
    """Open connections, unfinished TLS handshakes included; at most three quarters of the open
    files that the system allows."""
    max_requests: Annotated[int, Field(ge=1)] = 16_384
    """Requests in progress at one time, long polls included."""
    max_client_share: Annotated[int, Field(ge=1, le=100)] = 80
    """Percent of connections, requests, bytes and registered producers that one address may have;
    100 behind a proxy."""
    receive_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds in which a client must send its whole request, or finish a TLS handshake; then it is
    refused (408) or disconnected."""
    send_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds in which a client must read its reply; then it is disconnected."""
    shutdown_timeout_s: Annotated[float, Field(gt=0)] = 14.0
    """Seconds from the first signal to the end of the process, at most."""
    store_umask: Annotated[str, Field(pattern=r"^0?0[0-7]{2}$")] = PRIVATE_UMASK
    """Umask of the process, in octal. `0077` gives files 0600 and directories 0700; `0027` lets the
    group read (0640, 0750), `0007` also write."""
    termination_message_path: Path | None = None
    """File for the reason of a failure; by default `/dev/termination-log`, which Kubernetes reads,
    if it exists."""

    config_file: Path | None = None
    """Settings file; only as the variable `MQSTORE_CONFIG_FILE`."""
    listen_fd: int | None = None
    """A listening socket inherited from the parent, instead of binding one."""
    parent_pid: int | None = None
    """End with this process (``mqstore run``)."""

    store_config: StoreConfig = StoreConfig()
    """RocketMQ's MessageStoreConfig; its names stand beside the others, not below this one."""

    # store-writer
    writer_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """Port of store-writer; 0: a free one."""
    store_host: str = "127.0.0.1:10911"
    """``address:port`` in every record and offset message id; stable and unique for a shard."""
    store_id: str | None = None
    """Id that the store must have; another directory is refused."""
    store_path_commit_log: str | None = None
    """Directory of the commit log, where it is not in the store's: one directory of its volume,
    not the mount point. The file `NAME.mqstore` beside it names the store that owns it."""
    store_format: StoreFormat | None = None
    """Format of a new store: 4.9 (default) or 5.x; an existing store keeps its own."""
    retention: bool = True
    """Delete expired segments. False: this process deletes none, whatever the store's settings
    are. Not recorded in the store."""
    max_batch_count: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Messages in one request."""

    # replication, by store-writer
    ha_send_heartbeat_interval: Annotated[int, Field(ge=1)] = 5_000
    """Milliseconds without bytes for a slave before it is sent a heartbeat; between two reports of
    a SLAVE to its leader."""
    ha_housekeeping_interval: Annotated[int, Field(ge=1)] = 20_000
    """Milliseconds without bytes of the other side after which leader or slave disconnects."""
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = "ASYNC_MASTER"
    """SYNC_MASTER: a produce waits for a slave, unless its durability is async. SLAVE: the store is
    a copy of that of the leader at `haMasterAddress`; it serves reads, and refuses changes until it
    is promoted."""
    ha_master_address: HostAndPort | None = None
    """`host:port` of the HA port (`haListenPort`) of the leader whose log a SLAVE copies."""
    master_address: HostAndPort | None = None
    """`host:port` of that leader's remoting port (`listenPort`), from which a SLAVE copies topics,
    groups and offsets. Without it they are not copied, and not looked at."""
    replica_name: Annotated[str | None, Field(pattern=r"^[!-~]{1,253}$")] = None
    """Name of this store among the replicas of its shard, by which its leader knows it; by default
    the host name, which in Kubernetes is that of the pod. It must not change."""
    replica_secret_file: Path | None = None
    """File with the secret by which leader and followers of mqstore prove themselves to each other,
    16 characters or more; two, a line each, are both valid. Read again for each connection. With
    it a follower may have any address. It needs `replicaNames`."""
    replica_names: str = ""
    """Names (`replicaName`) of the replicas of this shard, joined by spaces; by default
    `replicaPods`. Of the followers that prove themselves only these can be in sync."""
    ha_allowed_slaves: str = ""
    """IP addresses and blocks of RocketMQ's slaves that may copy the log, joined by commas. Empty:
    none, and no port is open for them. Their connections have neither token nor TLS, unless
    `haTlsCert` is set; without it a block of all addresses is refused. Replies wait for slaves
    whose addresses are named one by one, not for those of a block."""
    ha_tls_cert: Path | None = None
    """PEM file with the certificate chain of this replica. With it followers connect to leaders by
    TLS only, and RocketMQ's slaves cannot. Read again when it changes."""
    ha_tls_key: Path | None = None
    """PEM file with the key of `haTlsCert`."""
    ha_tls_ca: Path | None = None
    """PEM file of the authority of the replicas' certificates: each of its certificates admits to
    the log; without `replicaSecretFile` one that names a replica of `replicaNames` proves it."""
    ha_flush_disk_type: FlushDiskType = FlushDiskType.SYNC
    """Place of the bytes that a follower acknowledges. SYNC_FLUSH: its disk. ASYNC_FLUSH: its page
    cache, as in a slave of RocketMQ: replies come sooner, and a power cut of all replicas loses
    messages that were acknowledged as replicated."""
    slave_timeout: Annotated[int, Field(ge=1)] = 3_000
    """Milliseconds that a produce waits for a slave."""
    in_sync_replicas: Annotated[int, Field(ge=1)] = 2
    """Copies that have a message before its reply, where that waits for replicas; the leader is
    one. 1 counts as 2."""
    all_ack_in_sync_state_set: bool = False
    """A reply that waits for replicas waits for all copies that are in sync, instead of
    `inSyncReplicas`."""
    replicas_file: Path | None = None
    """File with the number of replicas that this shard is to have, this one included; read again at
    each use. Without it the number is `minInSyncReplicas`. Fewer in sync are reported."""
    min_in_sync_replicas: Annotated[int, Field(ge=1)] = 1
    """Copies, the leader included, that must be in sync; with fewer, messages whose replies wait
    for replicas are refused."""
    ha_max_time_slave_not_catchup: Annotated[int, Field(ge=1)] = 15_000
    """Milliseconds that a copy may be behind and be in sync."""
    read_up_to_confirmed_offset: bool = False
    """Consumers and readers see a message once all copies that are in sync have it on their disks;
    the leader then syncs its log at once, whatever flushDiskType is. False: as soon as the leader
    has stored it."""
    ha_slave_fallbehind_max: Annotated[int, Field(ge=1)] = 256 << 20
    """Bytes that a slave may be behind and still be waited for."""
    ha_listen_port: Annotated[int, Field(ge=0, le=65535)] = 10_912
    """Port at which slaves copy the log; 0: a free one."""
    listen_port: Annotated[int, Field(ge=3, le=65535)] = 10_911
    """Port of RocketMQ's remoting protocol, for slaves: topics, groups and offsets. As in a broker
    the port two below is open too."""
    ha_transfer_batch_size: Annotated[int, Field(ge=1, le=HA_BODY_SIZE_MAX)] = 32 << 10
    """Bytes of the log in one frame to a slave."""
    ha_flow_control_enable: bool = False
    """Send slaves at most `maxHaTransferByteInSecond`."""
    max_ha_transfer_byte_in_second: Annotated[int, Field(ge=1 << 16)] = 100 << 20
    """Bytes of the log per second to all slaves together, with `haFlowControlEnable`. RocketMQ
    counts each slave by itself."""
    sync_from_last_file: bool = False
    """Send an empty slave the last segment only, as RocketMQ 4.9 does, instead of the whole log."""

    # election of a shard's leader, by store-writer
    election_lease: Annotated[
        str | None, Field(pattern=r"^(kubernetes:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|file:.+)$")
    ] = None
    """Lease by which the replicas of a shard elect their leader: `kubernetes:NAME`, in the pod's
    namespace, or `file:DIRECTORY`, for processes of one machine. Without it `brokerRole` alone
    decides who leads."""
    founding_replica: str | None = None
    """`replicaName` of the replica that leads a new shard first; needed with `electionLease`."""
    election_lease_duration: Annotated[int, Field(ge=1_000)] = 6_000
    """Milliseconds without renewal after which another replica takes the lead; the same for all
    replicas of a shard."""
    election_renewal_deadline: Annotated[int, Field(ge=100)] = 4_000
    """Milliseconds without renewal after which a leader acknowledges nothing more; at most three
    quarters of `electionLeaseDuration`."""
    election_retry_interval: Annotated[int, Field(ge=50)] = 1_000
    """Milliseconds between two renewals or reads of the lease; at most a third of
    `electionRenewalDeadline`."""
    replica_host: str | None = None
    """Address at which the other replicas reach this one; by default `host`."""
    replica_pods: str = ""
    """Names of the shard's pods, joined by spaces: the leader sets their label `mqstore/role`, by
    which Services select it. Empty: no labels are set."""

    # query
    coordinator_url: Annotated[str | None, Field(pattern=r"^https?://[^/?#\s]+/?$")] = None
    """Address of transaction-coordinator for query's console, which shows its settings. None: the
    console says that it cannot. `mqstore run` and the chart set it."""

    # transaction-coordinator
    coordinator_port: Annotated[int, Field(ge=0, le=65535)] = 8083
    """Port of transaction-coordinator; 0: a free one."""
    writer_url: str = "http://127.0.0.1:8081"
    """Address of store-writer for the coordinator, without `shardsFile`."""
    upstream_ca: Path | None = None
    """CA bundle (PEM) for the https addresses of services that the coordinator and query call.
    Certificates that are added to it are read when it changes; removed ones stay trusted until a
    restart."""
    shard_stateful_set: Annotated[
        str | None, Field(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    ] = None
    """StatefulSet on whose pods events of the shards are written as Kubernetes Events: shard N is
    pod N, and where its replicas elect a leader, the leader's pod."""
    shard_namespace: str | None = None
    """Namespace of shardStatefulSet; by default the pod's own."""
    transaction_time_out: Annotated[int, Field(ge=0)] = 6_000
    """Milliseconds before the first check of a transaction, unless CHECK_IMMUNITY_TIME_IN_SECONDS
    of the message differs."""
    transaction_check_interval: Annotated[int, Field(ge=1_000)] = 60_000
    """Milliseconds between two checks of a transaction."""
    transaction_check_max: Annotated[int, Field(ge=1, le=1_000)] = 15
    """Checks that are sent before a transaction is set aside."""

    callback_hosts: str = ""
    """Hosts at which registered producers may be called: names (`*.example.org` too) and address
    blocks, joined by commas. Addresses that are not public must be in a block. Empty: none."""
    callback_ports: str = "443"
    """Ports at which they may be called, joined by commas."""
    callback_http: bool = False
    """Allow callbacks by http, without TLS."""
    callback_ca: Path | None = None
    """CA bundle (PEM) for producers' certificates, beside the system's."""
    callback_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Seconds in which a producer must reply to a check; then the check counts as unanswered."""

    # query
    query_port: Annotated[int, Field(ge=0, le=65535)] = 8082
    """Port of query; 0: a free one."""
    query_threads: Annotated[int, Field(ge=1, le=256)] = 8
    """Look-ups that may wait for the disk at one time."""
    max_pending_queries: Annotated[int, Field(ge=1)] = 512
    """Look-ups running or waiting for a thread; more are refused (503)."""
    max_open_polls: Annotated[int, Field(ge=1)] = 10_000
    """Pulls and receives that wait, and event streams; more are refused (503, 429)."""
    filter_support_retry: bool = False
    """Filter a pull of `%RETRY%GROUP` by the group's subscriptions of the original topics."""
    metrics_lags_max: Annotated[int, Field(ge=0)] = 1_000
    """Topics of consumer groups with lag metrics; the others have none."""
    max_answer_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 8 << 20
    """Bytes of records in one reply, beyond the first record."""
    segment_transfer_rate: Annotated[int, Field(ge=0)] = 256 << 20
    """Bytes per second of all segment downloads together; 0: no limit."""
    max_inflated_size: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """Bytes that one compressed body may have when it is inflated on request; a reply has at most
    four times as many, and one body more."""
    max_inflate_ratio: Annotated[int, Field(ge=1)] = 1_000
    """Times the stored length that an inflated body may have."""
