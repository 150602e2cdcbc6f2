"""Requests about retention, as values that both clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.operation import Nothing

if TYPE_CHECKING:
    from mqstore.wire.reports import ExpiryReport
    from mqstore.wire.retention import Archive, Pin, Pins, Retention


def retention(*, limit: int | None = None) -> Call[Retention]:
    """Return when and why each of the oldest ``limit`` segments will be deleted."""
    return call(contract.retention.RETENTION, params=given(limit=limit))


def run_retention() -> Call[Retention]:
    """Delete expired segments now, at any hour; returns the plan."""
    return call(contract.retention.RUN_RETENTION)


def pins() -> Call[Pins]:
    """List the pins: leases that keep a range of the log from deletion."""
    return call(contract.retention.PINS)


def pin(name: str) -> Call[Pin]:
    """Return a pin."""
    return call(contract.retention.PIN, at={"name": name})


def put_pin(
    name: str, from_offset: int, to_offset: int | None = None, *, lease_s: int = 300, why: str = ""
) -> Call[Pin]:
    """Pin a range of the log for ``lease_s`` seconds; put it again to renew the lease."""
    body = document(
        contract.retention.PUT_PIN,
        from_offset=from_offset,
        to_offset=to_offset,
        lease_seconds=lease_s,
        why=why,
    )
    return call(contract.retention.PUT_PIN, at={"name": name}, json=body)


def remove_pin(name: str) -> Call[Nothing]:
    """Remove a pin."""
    return call(contract.retention.REMOVE_PIN, at={"name": name})


def archive() -> Call[Archive]:
    """Return the offset up to which the log is archived."""
    return call(contract.retention.ARCHIVE)


def put_archive(offset: int, place: str) -> Call[Archive]:
    """Report that the log is archived below ``offset``: retention keeps the rest (role system)."""
    body = document(contract.retention.PUT_ARCHIVE, offset=offset, place=place)
    return call(contract.retention.PUT_ARCHIVE, json=body)


def end_archive() -> Call[Nothing]:
    """End the archive: retention no longer waits for it."""
    return call(contract.retention.END_ARCHIVE)


def expiry_report() -> Call[ExpiryReport]:
    """Return the last expiry report."""
    return call(contract.retention.EXPIRY_REPORT)


def put_expiry_report(summary: Mapping[str, Any]) -> Call[ExpiryReport]:
    """Store the summary of an expiry report; for the job that makes it (role system)."""
    return call(contract.retention.PUT_EXPIRY_REPORT, json=dict(summary))


class RetentionCalls:
    """Methods of both clients."""

    retention = sends(retention)
    run_retention = sends(run_retention)
    archive = sends(archive)
    put_archive = sends(put_archive)
    end_archive = sends(end_archive)
    expiry_report = sends(expiry_report)
    put_expiry_report = sends(put_expiry_report)
    pin = sends(pin)
    pins = sends(pins)
    put_pin = sends(put_pin)
    remove_pin = sends(remove_pin)
