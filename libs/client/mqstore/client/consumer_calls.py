"""Requests of consumers in shared groups, as values that both clients send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mqstore.client.requests import Call, call, document, given
from mqstore.wire.consumers import (
    ACKNOWLEDGE,
    EXTEND,
    RECEIVE,
    RETURN,
    LeasedMessage,
    ReceiptResults,
    ReceivedMessages,
    WantedMessages,
)
from mqstore.wire.limits import LEASE_DEFAULT_S
from mqstore.wire.operation import Operation


def receive(
    group: str,
    topics: str | Sequence[str] | Mapping[str, WantedMessages],
    *,
    max_messages: int | None = None,
    wait_s: float = 0.0,
    invisible_s: float = LEASE_DEFAULT_S,
    shard: int | None = None,
) -> Call[ReceivedMessages]:
    """Lease messages of topics to this consumer for ``invisible_s`` seconds.

    Acknowledge each message before that, or it is delivered again. Without a message the service
    waits up to ``wait_s`` seconds for one. ``topics`` may have a filter for each topic: all
    consumers of a group use the same topics and filters.
    """
    if isinstance(topics, str):
        topics = [topics]
    wanted = topics if isinstance(topics, Mapping) else {each: WantedMessages() for each in topics}
    body = document(
        RECEIVE,
        topics={
            topic: each.model_dump(by_alias=True, exclude_none=True)
            for topic, each in wanted.items()
        },
        max=max_messages,
        wait=wait_s or None,
        invisible_s=invisible_s,
    )
    return call(RECEIVE, at={"group": group}, params=given(shard=shard), json=body, wait_s=wait_s)


def acknowledge(
    group: str, messages: LeasedMessage | str | Iterable[LeasedMessage | str]
) -> Call[ReceiptResults]:
    """Acknowledge messages, given as they were received or by their receipts.

    The result of each is in the reply. The call may be repeated.
    """
    return _settle(ACKNOWLEDGE, group, messages)


def give_back(
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    *,
    delay_level: int = 0,
    reason: str = "",
) -> Call[ReceiptResults]:
    """Return messages that could not be consumed now.

    Each is delivered again after a level of the store's messageDelayLevel: by default 3 for the
    first retry, and one more for each further one. Level -1 makes a dead letter, as does the last
    retry that the group allows. The call may be repeated.
    """
    return _settle(RETURN, group, messages, delay_level=delay_level, reason=reason)


def extend(
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    *,
    invisible_s: float = LEASE_DEFAULT_S,
) -> Call[ReceiptResults]:
    """Let the leases of messages end ``invisible_s`` seconds from now; 0 delivers them again at
    once."""
    return _settle(EXTEND, group, messages, invisible_s=invisible_s)


def _settle(
    operation: Operation[ReceiptResults],
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    **fields: Any,
) -> Call[ReceiptResults]:
    if isinstance(messages, (str, LeasedMessage)):
        messages = [messages]
    receipts = [each if isinstance(each, str) else each.receipt for each in messages]
    body = document(operation, receipts=receipts, **fields)
    return call(operation, at={"group": group}, json=body)
