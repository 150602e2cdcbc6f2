"""Requests about a store and its services, as values that both clients send."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.models import Health
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.operation import Nothing, Target

if TYPE_CHECKING:
    from mqstore.wire.findings import Findings
    from mqstore.wire.key_shards import KeyShards
    from mqstore.wire.replication import Replication, Switchover
    from mqstore.wire.settings import Setting, SettingList
    from mqstore.wire.stores import (
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
    return call(contract.stores.STORE)


def recovery() -> Call[Recovery]:
    """Return what recovery found and did when the store was opened."""
    return call(contract.stores.RECOVERY)


def delays() -> Call[DelayLevels]:
    """Count the delayed messages, by level."""
    return call(contract.stores.DELAYS)


def segments() -> Call[Segments]:
    """List the segments of the log, oldest first."""
    return call(contract.stores.SEGMENTS)


def scrub() -> Call[Scrub]:
    """Return the damage that scrubs found, and the progress of the pass over the checksums."""
    return call(contract.stores.SCRUB)


def run_scrub() -> Call[Scrub]:
    """Begin a pass over all checksums."""
    return call(contract.stores.RUN_SCRUB)


def repair_log(*, dry_run: bool = False) -> Call[RepairReport]:
    """Read the whole log, and repair its damaged records. ``dry_run`` changes nothing."""
    return call(contract.stores.REPAIR, params=given(dryRun=dry_run or None))


def quarantine() -> Call[Quarantine]:
    """List the quarantine: bytes that recoveries and repairs set aside."""
    return call(contract.stores.QUARANTINE)


def remove_quarantined(name: str) -> Call[Nothing]:
    """Remove an entry of the quarantine, for good."""
    return call(contract.stores.REMOVE_QUARANTINED, at={"name": name})


def operations() -> Call[Operations]:
    """List the long operations that run, and the last finished one of each name, newest first."""
    return call(contract.stores.OPERATIONS)


def flush() -> Call[FlushReply]:
    """Sync everything to disk."""
    return call(contract.stores.FLUSH)


def writes() -> Call[Writes]:
    """Return whether messages are accepted."""
    return call(contract.stores.WRITES)


def put_writes(*, paused: bool, reason: str = "") -> Call[Writes]:
    """Pause writes, with a reason for the clients, or resume them."""
    body = document(contract.stores.PUT_WRITES, paused=paused, reason=reason)
    return call(contract.stores.PUT_WRITES, json=body)


def store_findings() -> Call[Findings]:
    """Return the findings about a store alone; ``findings`` has those of groups and all shards."""
    return call(contract.findings.STORE_FINDINGS)


def release_keys(shard: int) -> Call[KeyShards]:
    """Move the keys of a shard that is about to be removed to the other shards, at once."""
    return call(contract.key_shards.RELEASE_KEYS, at={"number": shard})


def replication() -> Call[Replication]:
    """Return the role of a store, and how far a follower is behind its leader."""
    return call(contract.replication.REPLICATION)


def promote() -> Call[Replication]:
    """Let a follower take messages: it stops following, with what it has received."""
    return call(contract.replication.PROMOTE, wait_s=PROMOTE_WAIT_S)


def switch_over(to: str | None = None) -> Call[Switchover]:
    """Hand the lead of a shard over to ``to``, or to the follower that has most."""
    body = document(contract.replication.SWITCH_OVER, to=to)
    return call(contract.replication.SWITCH_OVER, json=body, wait_s=PROMOTE_WAIT_S)


def settings(target: Target = Target.WRITER) -> Call[SettingList]:
    """Return the settings of a service, with their values and sources."""
    return replace(call(contract.settings.SETTINGS), target=target)


def setting(
    name: str, value: str | None = None, *, target: Target = Target.WRITER
) -> Call[Setting]:
    """Return a setting of a service: its value, or with ``value`` how it would have that one, read
    as at a start. The service refuses a value that the setting cannot have."""
    found = call(contract.settings.SETTING, at={"name": name}, params=given(value=value))
    return replace(found, target=target)


def health(target: Target, probe: str = "ready") -> Call[Health]:
    """Return the health of a service by a probe (live, ready, serving or startup).

    The status 503 is a reply here, not an error.
    """
    return Call(target, "GET", f"/healthz/{probe}", Health, errors_are_answers=True)


class StoreCalls:
    """Methods of both clients."""

    store = sends(store)
    recovery = sends(recovery)
    delays = sends(delays)
    segments = sends(segments)
    flush = sends(flush)
    writes = sends(writes)
    put_writes = sends(put_writes)
    release_keys = sends(release_keys)
    store_findings = sends(store_findings)
    setting = sends(setting)
    settings = sends(settings)
    replication = sends(replication)
    promote = sends(promote)
    switch_over = sends(switch_over)
    quarantine = sends(quarantine)
    remove_quarantined = sends(remove_quarantined)
    operations = sends(operations)
    scrub = sends(scrub)
    run_scrub = sends(run_scrub)
    repair_log = sends(repair_log)
    health = sends(health)
