"""Settles receipts: acknowledges, returns or extends messages whose lease is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage.errors import (
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PropertyError,
)
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.shared_groups.queue_leases import LeaseState, QueueLeases
from mqstore.storage.shared_groups.receipts import QueueReceipts, Receipt
from mqstore.storage.shared_groups.results import ReceiptStatus

log = bounded_log(__name__)

_OF_ONE_MESSAGE: Final = (MessageInvalid, MessageTooLarge, PropertiesTooLong, PropertyError)
"""Errors of a copy that are about its message only."""
_STATUSES: Final = {
    LeaseState.HELD: ReceiptStatus.OK,
    LeaseState.ACKNOWLEDGED: ReceiptStatus.OK,
    LeaseState.LOST: ReceiptStatus.LOST,
    LeaseState.UNKNOWN: ReceiptStatus.UNKNOWN,
}


def settle_queue(
    leases: QueueLeases | None,
    committed: int | None,
    given: QueueReceipts,
    act: Callable[[QueueLeases, Receipt], ReceiptStatus],
    *,
    in_order: bool,
) -> list[ReceiptStatus]:
    """Settle receipts of a queue, all or none of an ordered group, with these leases and this
    committed offset of the group.

    ``in_order``: in an ordered group, only the first message that is not acknowledged.
    """
    if leases is None:  # nothing is pending: all below the group's offset is acknowledged
        end = committed or 0
        return [ReceiptStatus.OK if each < end else ReceiptStatus.UNKNOWN for each in given.offsets]
    if act is acknowledge and given.epoch is None:
        statuses = [ReceiptStatus.OK] * len(given.offsets)
        for at, state in leases.acknowledge_held(given.offsets, given.leases).items():
            statuses[at] = _STATUSES[state]
        return statuses
    return [_settle(leases, each, act, in_order=in_order) for each in given.receipts()]


def acknowledge(leases: QueueLeases, receipt: Receipt) -> ReceiptStatus:
    """Acknowledge the message of a receipt."""
    leases.acknowledge(receipt.offset)
    return ReceiptStatus.OK


def _settle(
    leases: QueueLeases,
    receipt: Receipt,
    act: Callable[[QueueLeases, Receipt], ReceiptStatus],
    *,
    in_order: bool,
) -> ReceiptStatus:
    state = leases.state_of(receipt.offset, receipt.lease)
    if state is LeaseState.HELD:
        if in_order and receipt.epoch is not None and receipt.offset != leases.floor:
            return ReceiptStatus.EARLY
        try:
            return act(leases, receipt)
        except _OF_ONE_MESSAGE as error:
            log.warning("receipt %s: %s", receipt.encode(), error)
            return ReceiptStatus.REFUSED
    return _STATUSES[state]
