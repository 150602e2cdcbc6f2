"""``kubectl mqstore status``: prints the state of shards and replicas, findings, and lags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.kube.commands import exit_of_output
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import Release, Shard
from mqstore.cli.output import Column, Output, camel_case, field_column, size, yes_no
from mqstore.cli.session import Form
from mqstore.cli.times import duration
from mqstore.client import Client, ClientError, Finding, TopicSum, Writes


@dataclass(slots=True)
class ReplicaStatus:
    """One replica of a shard: its pod, and what its leader reports of it."""

    shard: int
    pod: str
    role: str
    state: str
    ready: str
    restarts: int
    in_sync: bool | None = None
    """None if the leader does not answer."""
    lag_bytes: int | None = None
    """Bytes that it has not acknowledged; None if it is not connected."""

    @property
    def is_in_sync(self) -> bool:
        """Whether it is known to have all acknowledged messages."""
        return bool(self.in_sync)


@dataclass(slots=True)
class ShardStatus:
    """The status of one shard. If it does not answer, ``why`` has the reason and the fields that
    the shard itself reports are None."""

    shard: int
    pod: str
    state: str
    ready: str
    restarts: int
    health: str | None = None
    log_bytes: int | None = None
    not_durable_bytes: int | None = None
    index_complete: bool | None = None
    disk_used_percent: int | None = None
    writes: str | None = None
    why: str | None = None
    lags: list[tuple[str, TopicSum]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    replicas: list[ReplicaStatus] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether the shard answers, accepts messages, has no finding, and all of its containers
        are ready and its replicas in sync."""
        done, _, all_of_them = self.ready.partition("/")
        accepts = self.why is None and done == all_of_them and self.writes == "on"
        return accepts and not self.findings and all(each.is_in_sync for each in self.replicas)


@dataclass(slots=True)
class Lag:
    """Lag of one group in one topic, over all shards that answer.

    ``oldest_ms`` is the age of the oldest message that is not consumed, in milliseconds; None if a
    shard does not know it.
    """

    group: str
    topic: str
    messages: int = 0
    oldest_ms: int | None = 0

    def add(self, more: TopicSum) -> None:
        """Add the lag on one more shard."""
        self.messages += more.lag
        if more.lag:
            known = self.oldest_ms is not None and more.lag_ms is not None
            self.oldest_ms = max(self.oldest_ms or 0, more.lag_ms or 0) if known else None


_SHARDS: Final = (
    field_column("pod", "pod"),
    field_column("state", "state"),
    field_column("ready", "ready"),
    field_column("restarts", "restarts", right=True),
    field_column("log", "log_bytes", size, right=True),
    field_column("not-on-disk", "not_durable_bytes", size, right=True),
    field_column("index-complete", "index_complete", yes_no),
    field_column("disk-percent", "disk_used_percent", right=True),
    Column("writes", lambda row: row.writes if row.why is None else f"no reply: {row.why}"),
)
_REPLICAS: Final = (
    field_column("replica", "pod"),
    field_column("role", "role"),
    field_column("in-sync", "in_sync", yes_no),
    field_column("lag", "lag_bytes", size, right=True),
    field_column("state", "state"),
    field_column("ready", "ready"),
    field_column("restarts", "restarts", right=True),
)
_LAGS: Final = (
    field_column("group", "group"),
    field_column("topic", "topic"),
    field_column("lag", "messages", right=True),
    field_column("oldest", "oldest_ms", duration, right=True),
)


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("status")(status)


def status(context: typer.Context, output: Form = None) -> None:
    """Print the state of each shard and replica, findings, and the lag of consumer groups; CSV has
    the shards.

    Exit code 0: all is well; 1: a shard is not ready, does not answer or rejects messages, a
    replica is not in sync, or there is a finding (as in `mqstore check`); 2: refused; 3: the
    cluster does not answer.

    Examples:

    \b
        kubectl mqstore status
        kubectl mqstore status -o json | jq '.lags[] | select(.messages > 1000)'
    """
    raise exit_of_output(context, output, print_status)


def print_status(release: Release, out: Output) -> int:
    """Print the status of a release; returns the exit code."""
    rows = [_row(release, shard) for shard in release.shards()]
    lags = _summed(rows)
    if out.is_document:
        out.item(_document(release, rows, lags), ())
    elif out.is_table:
        _print(release, rows, lags, out)
    else:
        out.items(rows, _SHARDS)
    return EXIT_OK if rows and all(row.is_well for row in rows) else EXIT_FINDINGS


def _row(release: Release, shard: Shard) -> ShardStatus:
    row = ShardStatus(shard.number, shard.name, shard.state, shard.ready, shard.restarts)
    if release.has_replicas:
        row.replicas = [_replica(each) for each in release.replicas(shard.number)]
    try:
        with release.client(shard) as client:
            _fill(client, row)
            _fill_replicas(client, row.replicas)
    except (ClientError, KubeError) as error:
        row.why = str(error)
    return row


def _replica(pod: Shard) -> ReplicaStatus:
    return ReplicaStatus(pod.number, pod.name, pod.role, pod.state, pod.ready, pod.restarts)


def _fill_replicas(client: Client, rows: list[ReplicaStatus]) -> None:
    """Add what the leader reports of its replicas."""
    leading = client.replication().leading if rows else None
    if leading is None:
        return
    in_sync = {name.partition("/")[0] for name in leading.in_sync}
    lags = {each.name.partition("/")[0]: each.lag_bytes for each in leading.replicas}
    for row in rows:
        row.in_sync = row.pod in in_sync
        row.lag_bytes = 0 if row.role == "leader" else lags.get(row.pod)


def _fill(client: Client, row: ShardStatus) -> None:
    store, writes = client.store(), client.writes()
    row.health = store.health
    row.log_bytes = store.max_offset - store.min_offset
    row.not_durable_bytes = store.flush_behind
    row.index_complete = store.index_complete
    row.disk_used_percent = 100 * store.disk_used // max(1, store.disk_total)
    row.writes = store.read_only_reason or _writes(writes)
    row.lags = list(_lags(client))
    row.findings = list(client.findings().findings)


def _writes(writes: Writes) -> str:
    if writes.paused:
        return f"paused: {writes.reason}"
    if writes.refused is not None:
        return f"refused ({writes.refused['reason']}): {writes.refused['detail']}"
    return "off: other shards do not know of this one yet" if writes.taken is False else "on"


def _lags(client: Client) -> Iterator[tuple[str, TopicSum]]:
    cursor: str | None = None
    while True:
        page = client.lags(cursor=cursor)
        yield from ((group.group, topic) for group in page.groups for topic in group.topics)
        cursor = page.next
        if cursor is None:
            return


def _summed(rows: list[ShardStatus]) -> list[Lag]:
    found: defaultdict[tuple[str, str], list[TopicSum]] = defaultdict(list)
    for row in rows:
        for group, topic in row.lags:
            found[group, topic.topic].append(topic)
    sums = []
    for (group, name), parts in sorted(found.items()):
        sums.append(lag := Lag(group, name))
        for part in parts:
            lag.add(part)
    return sums


def _document(release: Release, rows: list[ShardStatus], lags: list[Lag]) -> dict[str, Any]:
    apart = ("lags", "findings", "replicas")
    shards = [
        {name: value for name, value in asdict(row).items() if name not in apart}
        | {"is_well": row.is_well}
        for row in rows
    ]
    return {
        "release": release.instance,
        "shards": [camel_case(each) for each in shards],
        "replicas": [camel_case(asdict(each)) for row in rows for each in row.replicas],
        "findings": [
            each.model_dump(mode="json", by_alias=True) for row in rows for each in row.findings
        ],
        "lags": [camel_case(asdict(lag)) for lag in lags],
    }


def _print(release: Release, rows: list[ShardStatus], lags: list[Lag], out: Output) -> None:
    well = sum(row.is_well for row in rows)
    out.line(f"release {release.instance}: {well} of {len(rows)} shards are well")
    out.items(rows, _SHARDS)
    if replicas := [each for row in rows for each in row.replicas]:
        out.line("")
        out.items(replicas, _REPLICAS)
    if findings := [each for row in rows for each in row.findings]:
        out.line("")
    for each in findings:
        out.line(f"shard {each.shard}: {each.text} (how-to/{each.page})")
    if lags:
        out.line("")
        out.items(lags, _LAGS)
