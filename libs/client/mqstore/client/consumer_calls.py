"""Requests of consumers in shared groups, and about their dead letters, as values that both clients
send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.limits import LEASE_DEFAULT_S, SESSION_DEFAULT_S
from mqstore.wire.operation import Nothing, Operation

if TYPE_CHECKING:
    from mqstore.wire.consumers import (
        LeasedMessage,
        ReceiptResults,
        ReceivedMessages,
        WantedMessages,
    )
    from mqstore.wire.dead_letters import (
        DeadLetter,
        DeadLetterFilter,
        DeadLetters,
        PurgedLetters,
        ResendTarget,
        ResentLetters,
    )
    from mqstore.wire.members import Member, Members


def receive(
    group: str,
    topics: str | Sequence[str] | Mapping[str, WantedMessages],
    *,
    max_messages: int | None = None,
    wait_s: float = 0.0,
    invisible_s: float = LEASE_DEFAULT_S,
    member: str | None = None,
    shard: int | None = None,
) -> Call[ReceivedMessages]:
    """Lease messages of topics to this consumer for ``invisible_s`` seconds.

    Acknowledge each message before that, or it is delivered again. Without a message the service
    waits up to ``wait_s`` seconds for one. ``topics`` may have a filter for each topic: all
    consumers of a group use the same topics and filters. ``member`` is the caller in an ordered
    group, see ``join``.
    """
    if isinstance(topics, str):
        topics = [topics]
    wanted = (
        topics
        if isinstance(topics, Mapping)
        else dict.fromkeys(topics, contract.consumers.WantedMessages())
    )
    body = document(
        contract.consumers.RECEIVE,
        topics={
            topic: each.model_dump(by_alias=True, exclude_none=True)
            for topic, each in wanted.items()
        },
        max=max_messages,
        wait=wait_s or None,
        invisible_s=invisible_s,
        member=member,
    )
    return call(
        contract.consumers.RECEIVE,
        at={"group": group},
        params=given(shard=shard),
        json=body,
        wait_s=wait_s,
    )


def acknowledge(
    group: str, messages: LeasedMessage | str | Iterable[LeasedMessage | str]
) -> Call[ReceiptResults]:
    """Acknowledge messages, given as they were received or by their receipts.

    The result of each is in the reply. The call may be repeated.
    """
    return _settle(contract.consumers.ACKNOWLEDGE, group, messages)


def give_back(
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    *,
    delay_level: int = 0,
    delay_s: float | None = None,
    reason: str = "",
) -> Call[ReceiptResults]:
    """Return messages that could not be consumed now.

    Each is delivered again after a level of the store's messageDelayLevel: by default 3 for the
    first retry, and one more for each further one. Level -1 makes a dead letter, as does the last
    retry that the group allows. ``delay_s`` takes the shortest level that is as long; in an ordered
    group, it is how long the message holds its queue. The call may be repeated.
    """
    fields = {"delay_level": delay_level, "delay_s": delay_s, "reason": reason}
    return _settle(contract.consumers.RETURN, group, messages, **fields)


def extend(
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    *,
    invisible_s: float = LEASE_DEFAULT_S,
) -> Call[ReceiptResults]:
    """Let the leases of messages end ``invisible_s`` seconds from now; 0 delivers them again at
    once."""
    return _settle(contract.consumers.EXTEND, group, messages, invisible_s=invisible_s)


def join(
    group: str,
    member: str,
    topics: str | Sequence[str],
    *,
    session_s: float = SESSION_DEFAULT_S,
) -> Call[Member]:
    """Make a consumer a member of an ordered group, or renew its session.

    The reply has its queues with their epochs. Repeat the call before ``session_s`` seconds are
    over, or the queues go to other members. Receive with ``member``.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    body = document(contract.members.JOIN, topics=names, session_s=session_s)
    return call(contract.members.JOIN, at={"group": group, "member": member}, json=body)


def leave(group: str, member: str) -> Call[Nothing]:
    """End the membership in an ordered group: others get the queues at once. May be repeated."""
    return call(contract.members.LEAVE, at={"group": group, "member": member})


def members(group: str) -> Call[Members]:
    """List the members of an ordered group with their queues; a shared group has none."""
    return call(contract.members.MEMBERS, at={"group": group})


def dead_letters(
    group: str,
    wanted: DeadLetterFilter | None = None,
    *,
    order: Literal["newest", "oldest"] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    shard: int | None = None,
) -> Call[DeadLetters]:
    """List the dead letters of a group that were not resent or purged, by default newest first.

    ``wanted`` selects some of them.
    """
    chosen = {} if wanted is None else _fields(wanted)
    params = chosen | given(order=order, limit=limit, cursor=cursor, shard=shard)
    return call(contract.dead_letters.DEAD_LETTERS, at={"group": group}, params=params)


def resend_dead_letters(
    group: str,
    wanted: DeadLetterFilter | Iterable[DeadLetter | str] | None = None,
    *,
    to: ResendTarget | Literal["topic", "group"] = "topic",
    max_messages: int | None = None,
    dry_run: bool = False,
    cursor: str | None = None,
    shard: int | None = None,
) -> Call[ResentLetters]:
    """Resend dead letters: those that a filter selects, those given (also by ``offset_msg_id``), or
    all of the group.

    ``to`` is their source topic, or the group alone. While the reply has ``next``, repeat the call
    with it as ``cursor``. The call may be repeated: nothing is resent twice.
    """
    body = document(
        contract.dead_letters.RESEND,
        **_chosen(wanted),
        to=to,
        max=max_messages,
        dry_run=dry_run or None,
    )
    params = given(cursor=cursor, shard=shard)
    return call(contract.dead_letters.RESEND, at={"group": group}, params=params, json=body)


def purge_dead_letters(
    group: str,
    wanted: DeadLetterFilter | Iterable[DeadLetter | str] | None = None,
    *,
    before_ms: int | None = None,
    offset: int | None = None,
    max_messages: int | None = None,
    dry_run: bool = False,
    cursor: str | None = None,
    shard: int | None = None,
) -> Call[PurgedLetters]:
    """End the listing of dead letters: those that a filter selects, those given, those dead before
    a time, those in front of a queue offset of a shard, or all of the group.

    While the reply has ``next``, repeat the call with it as ``cursor``.
    """
    chosen = _chosen(wanted) if before_ms is None and offset is None else {}
    bounds = {"before": before_ms, "offset": offset, "max": max_messages}
    body = document(contract.dead_letters.PURGE, **chosen, **bounds, dry_run=dry_run or None)
    return call(
        contract.dead_letters.PURGE,
        at={"group": group},
        params=given(cursor=cursor, shard=shard),
        json=body,
    )


def _chosen(wanted: DeadLetterFilter | Iterable[DeadLetter | str] | None) -> dict[str, Any]:
    if wanted is None:
        return {"all": True}
    if isinstance(wanted, contract.dead_letters.DeadLetterFilter):
        return {"filter": _fields(wanted)}
    return {"ids": [each if isinstance(each, str) else each.offset_msg_id for each in wanted]}


def _fields(wanted: DeadLetterFilter) -> dict[str, Any]:
    return wanted.model_dump(by_alias=True, exclude_defaults=True)


def _settle(
    operation: Operation[ReceiptResults],
    group: str,
    messages: LeasedMessage | str | Iterable[LeasedMessage | str],
    **fields: Any,
) -> Call[ReceiptResults]:
    if isinstance(messages, (str, contract.consumers.LeasedMessage)):
        messages = [messages]
    receipts = [each if isinstance(each, str) else each.receipt for each in messages]
    body = document(operation, receipts=receipts, **fields)
    return call(operation, at={"group": group}, json=body)


class ConsumerCalls:
    """Methods of both clients."""

    receive = sends(receive)
    acknowledge = sends(acknowledge)
    give_back = sends(give_back)
    extend = sends(extend)
    join = sends(join)
    leave = sends(leave)
    members = sends(members)
    dead_letters = sends(dead_letters)
    resend_dead_letters = sends(resend_dead_letters)
    purge_dead_letters = sends(purge_dead_letters)
