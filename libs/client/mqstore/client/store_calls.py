"""Requests about a store and its services, as values that both clients send."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mqstore.client.models import Health
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.findings import STORE_FINDINGS, Findings
from mqstore.wire.key_shards import RELEASE_KEYS, KeyShards
from mqstore.wire.operation import Nothing, Target
from mqstore.wire.replication import (
    PROMOTE,
    REPLICATION,
    SWITCH_OVER,
    Replication,
    Switchover,
)
from mqstore.wire.settings import SETTING, SETTINGS, Setting, SettingList
from mqstore.wire.stores import (
    DELAYS,
    FLUSH,
    OPERATIONS,
    PUT_WRITES,
    QUARANTINE,
    RECOVERY,
    REMOVE_QUARANTINED,
    REPAIR,
    RUN_SCRUB,
    SCRUB,
    SEGMENTS,
    STORE,
    WRITES,
    DelayLevels,
    FlushReply,
    Operations,
    Quarantine,
    Recovery,
    RepairReport,
    Scrub,
    Segments,
    Store,
    Writes,
)

PROMOTE_WAIT_S: Final = 60.0
"""Longest time in which a promoted store is closed and opened again."""


def store() -> Call[Store]:
    """Return the state of the store that store-writer has open: identity, offsets, sizes."""
    return call(STORE)


def recovery() -> Call[Recovery]:
    """Return what recovery found and did when the store was opened."""
    return call(RECOVERY)


def delays() -> Call[DelayLevels]:
    """Count the delayed messages, by level."""
    return call(DELAYS)


def segments() -> Call[Segments]:
    """List the segments of the log, oldest first."""
    return call(SEGMENTS)


def scrub() -> Call[Scrub]:
    """Return the damage that scrubs found, and the progress of the pass over the checksums."""
    return call(SCRUB)


def run_scrub() -> Call[Scrub]:
    """Begin a pass over all checksums."""
    return call(RUN_SCRUB)


def repair_log(*, dry_run: bool = False) -> Call[RepairReport]:
    """Read the whole log, and repair its damaged records. ``dry_run`` changes nothing."""
    return call(REPAIR, params=given(dryRun=dry_run or None))


def quarantine() -> Call[Quarantine]:
    """List the quarantine: bytes that recoveries and repairs set aside."""
    return call(QUARANTINE)


def remove_quarantined(name: str) -> Call[Nothing]:
    """Remove an entry of the quarantine, for good."""
    return call(REMOVE_QUARANTINED, at={"name": name})


def operations() -> Call[Operations]:
    """List the long operations that run, and the last finished one of each name, newest first."""
    return call(OPERATIONS)


def flush() -> Call[FlushReply]:
    """Sync everything to disk."""
    return call(FLUSH)


def writes() -> Call[Writes]:
    """Return whether messages are accepted."""
    return call(WRITES)


def put_writes(*, paused: bool, reason: str = "") -> Call[Writes]:
    """Pause writes, with a reason for the clients, or resume them."""
    body = document(PUT_WRITES, paused=paused, reason=reason)
    return call(PUT_WRITES, json=body)


def store_findings() -> Call[Findings]:
    """Return the findings about a store alone; ``findings`` has those of groups and all shards."""
    return call(STORE_FINDINGS)


def release_keys(shard: int) -> Call[KeyShards]:
    """Move the keys of a shard that is about to be removed to the other shards, at once."""
    return call(RELEASE_KEYS, at={"number": shard})


def replication() -> Call[Replication]:
    """Return the role of a store, and how far a follower is behind its leader."""
    return call(REPLICATION)


def promote() -> Call[Replication]:
    """Let a follower take messages: it stops following, with what it has received."""
    return call(PROMOTE, wait_s=PROMOTE_WAIT_S)


def switch_over(to: str | None = None) -> Call[Switchover]:
    """Hand the lead of a shard over to ``to``, or to the follower that has most."""
    body = document(SWITCH_OVER, to=to)
    return call(SWITCH_OVER, json=body, wait_s=PROMOTE_WAIT_S)


def settings(target: Target = Target.WRITER) -> Call[SettingList]:
    """Return the settings of a service, with their values and sources."""
    return replace(call(SETTINGS), target=target)


def setting(
    name: str, value: str | None = None, *, target: Target = Target.WRITER
) -> Call[Setting]:
    """Return a setting of a service: its value, or with ``value`` how it would have that one, read
    as at a start. The service refuses a value that the setting cannot have."""
    found = call(SETTING, at={"name": name}, params=given(value=value))
    return replace(found, target=target)


def health(target: Target, probe: str = "ready") -> Call[Health]:
    """Return the health of a service by a probe (live, ready, serving or startup).

    The status 503 is a reply here, not an error.
    """
    return Call(target, "GET", f"/healthz/{probe}", Health, errors_are_answers=True)
