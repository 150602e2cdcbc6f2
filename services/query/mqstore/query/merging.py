"""Merge the answers of several shards into one. Pure functions without input or output.

Messages stay the bytes that their shard encoded; only the fields that they are sorted by are read.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from mqstore.query import replies
from mqstore.service.shard_cursor import START, ShardPosition, ShardPositions
from mqstore.service.shards import ShardReplies

_T = TypeVar("_T")


class Head(msgspec.Struct, rename="camel", gc=False):
    """The fields of a message that are decoded for merging."""

    physical_offset: int
    size: int
    store_timestamp: int


class _Page(msgspec.Struct, gc=False):
    """The fields of a ``Messages`` reply, with undecoded messages."""

    messages: list[msgspec.Raw]
    unreadable: list[replies.UnreadableMessage]
    next: str | None
    complete: bool
    scanned: replies.ScannedRange


class _OnePage(_Page, gc=False):
    """The page that one shard returned."""

    store_id: str = msgspec.field(default="", name="storeId")
    """Empty for a shard of an earlier release."""


class _Merged(_Page, gc=False):
    """The reply over several shards."""

    shards: replies.Shards


@dataclass(frozen=True, slots=True)
class Paging:
    """The limits and the cursors of a merged page of messages."""

    from_ms: int
    to_ms: int
    newest_first: bool
    limit: int
    max_bytes: int
    """Maximum bytes of records, beyond the first record."""
    cursor_at: Callable[[int, str], str]
    """Return a shard's cursor from a physical offset and a store id. It continues below the offset,
    or at it when the oldest messages are first."""
    cursor_of: Callable[[ShardPositions], str]
    """Return the cursor over all shards."""


@dataclass(slots=True)
class _PageReader:
    """Takes messages from the page of one shard, in the order of the page."""

    shard: int
    page: _OnePage
    heads: list[Head]
    begun: ShardPosition
    taken: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether every message of the page was taken."""
        return self.taken == len(self.heads)

    @property
    def needs_next_page(self) -> bool:
        """Whether the shard's next message is on its next page, so that merging has to stop."""
        return self.is_exhausted and self.page.next is not None

    def position(self, paging: Paging) -> ShardPosition:
        """Return where the query continues on this shard."""
        if self.is_exhausted:
            if self.page.next is None:
                return ShardPosition(is_finished=True, complete=self.page.complete)
            return ShardPosition(self.page.next)
        if self.taken == 0:
            return self.begun
        last = self.heads[self.taken - 1].physical_offset
        following = last if paging.newest_first else last + 1
        return ShardPosition(paging.cursor_at(following, self.page.store_id))

    def unreadable(self, paging: Paging) -> Iterable[replies.UnreadableMessage]:
        """Return the unreadable records that no later page reports again."""
        if self.is_exhausted:
            return self.page.unreadable
        if self.taken == 0:
            return ()
        last, sign = self.heads[self.taken - 1].physical_offset, -1 if paging.newest_first else 1
        return [each for each in self.page.unreadable if sign * (each.physical_offset - last) < 0]


def messages(spread: ShardReplies, begun: ShardPositions, paging: Paging) -> bytes:
    """Merge pages of messages by store timestamp, those of one shard in the order of its log.

    ``begun`` is where the query began on each shard.
    """
    read = _decode(spread, _read_page, begun)
    pages = [_PageReader(shard, *page, begun.get(shard, START)) for shard, page in read.items()]
    taken = list(_merge(pages, paging))
    positions = _positions(spread, begun, {each.shard: each.position(paging) for each in pages})
    has_more = _has_more(spread, positions)
    unreadable = []
    for each in pages:
        for found in each.unreadable(paging):
            found.shard = each.shard
            unreadable.append(found)
    return msgspec.json.encode(
        _Merged(
            taken,
            unreadable,
            paging.cursor_of(positions) if has_more else None,
            not has_more and _is_whole(spread, positions),
            _join_scanned(paging, {each.shard: each.page.scanned for each in pages}),
            spread.view(),
        )
    )


def _read_page(body: bytes) -> tuple[_OnePage, list[Head]]:
    page = msgspec.json.decode(body, type=_OnePage)
    return page, [decode_head(each) for each in page.messages]


decode_head: Final = msgspec.json.Decoder(Head).decode


def _merge(pages: list[_PageReader], paging: Paging) -> Iterable[msgspec.Raw]:
    """Yield messages in order, up to the end of the first page that has a next one."""
    sign = -1 if paging.newest_first else 1

    def place(each: _PageReader) -> tuple[int, int]:
        return sign * each.heads[each.taken].store_timestamp, each.shard

    queue = [(*place(each), each) for each in pages if not each.is_exhausted]
    heapq.heapify(queue)
    count = size = 0
    while queue and count < paging.limit and size < paging.max_bytes:
        if any(each.needs_next_page for each in pages):
            return
        *_, each = heapq.heappop(queue)
        yield each.page.messages[each.taken]
        count, size = count + 1, size + each.heads[each.taken].size
        each.taken += 1
        if not each.is_exhausted:
            heapq.heappush(queue, (*place(each), each))


def _join_scanned(
    paging: Paging, found: Mapping[int, replies.ScannedRange]
) -> replies.ScannedRange:
    return replies.ScannedRange(
        from_ms=paging.from_ms,
        to_ms=paging.to_ms,
        candidates=sum(each.candidates for each in found.values()),
        min_offset=None,
        max_offset=None,
        by_shard={str(shard): each for shard, each in found.items()},
    )


def newest(spread: ShardReplies) -> int:
    """Return the shard whose message is the newest."""
    heads = _decode(spread, decode_head)
    return max(heads, key=lambda shard: (heads[shard].store_timestamp, shard))


# queues and groups --------------------------------------------------------------------------


def queues(spread: ShardReplies) -> bytes:
    """Merge the queues of a topic, sorted by shard and queue id."""
    found = _decode_all(spread, replies.Queues)
    listed = [queue for each in found for queue in each.queues]
    listed.sort(key=lambda queue: (queue.shard, queue.queue_id))
    merged = replies.Queues(topic=found[0].topic, queues=tuple(listed), shards=spread.view())
    return msgspec.json.encode(merged)


def lag(spread: ShardReplies) -> bytes:
    """Merge the lag of one group: sums, and every queue with its shard."""
    found = _decode_all(spread, replies.GroupLag)
    by_topic: dict[str, list[replies.TopicLag]] = defaultdict(list)
    for each in found:
        for topic in each.topics:
            by_topic[topic.topic].append(topic)
    topics = [
        replies.TopicLag(
            **_topic_sums(name, same),
            queues=tuple([queue for each in same for queue in each.queues]),
        )
        for name, same in sorted(by_topic.items())
    ]
    return msgspec.json.encode(
        replies.GroupLag(
            group=found[0].group,
            lag=sum(each.lag for each in found),
            dead_letters=sum(each.dead_letters for each in found),
            states=_join_states([each.states for each in found]),
            topics=tuple(topics),
            offsets=_oldest(each.offsets for each in found),
            shard=None,
            shards=spread.view(),
        )
    )


def lags(spread: ShardReplies, limit: int, cursor_of: Callable[[str], str]) -> bytes:
    """Merge pages of groups by name, up to the last name that the pages of all shards include."""
    found = _decode_all(spread, replies.GroupLags)
    by_name: dict[str, list[replies.GroupSum]] = defaultdict(list)
    for each in found:
        for group in each.groups:
            by_name[group.group].append(group)
    reached = [each.groups[-1].group for each in found if each.next is not None and each.groups]
    names = sorted(name for name in by_name if not reached or name <= min(reached))
    has_more = bool(reached) or len(names) > limit
    names = names[:limit]
    return msgspec.json.encode(
        replies.GroupLags(
            groups=tuple([_group_sum(name, by_name[name]) for name in names]),
            next=cursor_of(names[-1]) if has_more and names else None,
            offsets=_oldest(each.offsets for each in found),
            shard=None,
            shards=spread.view(),
        )
    )


def _group_sum(name: str, same: list[replies.GroupSum]) -> replies.GroupSum:
    by_topic: dict[str, list[replies.TopicSum]] = defaultdict(list)
    for each in same:
        for topic in each.topics:
            by_topic[topic.topic].append(topic)
    topics = [
        replies.TopicSum(**_topic_sums(topic, found)) for topic, found in sorted(by_topic.items())
    ]
    return replies.GroupSum(
        group=name,
        lag=sum(each.lag for each in same),
        dead_letters=sum(each.dead_letters for each in same),
        states=_join_states([each.states for each in same]),
        topics=tuple(topics),
    )


def _join_states(found: list[replies.LagStates | None]) -> replies.LagStates | None:
    """Return the sums of states; None if those of one shard are unknown."""
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    delayed = [each.delayed for each in known if each.delayed is not None]
    return replies.LagStates(
        waiting=sum(each.waiting for each in known),
        leased=sum(each.leased for each in known),
        retrying=sum(each.retrying for each in known),
        acknowledged=sum(each.acknowledged for each in known),
        delayed=sum(delayed) if len(delayed) == len(known) else None,
    )


def _topic_sums(
    topic: str, same: list[replies.TopicSum] | list[replies.TopicLag]
) -> dict[str, Any]:
    """Return the fields of a TopicSum. ``lag_ms`` is None if it is unknown on one shard."""
    ages = [each.lag_ms for each in same]
    known = [age for age in ages if age is not None]
    age = max(known) if len(known) == len(ages) else None
    return {
        "topic": topic,
        "lag": sum(each.lag for each in same),
        "expired": sum(each.expired for each in same),
        "expired_total": sum(each.expired_total or 0 for each in same),
        "lag_ms": age,
    }


def _oldest(sources: Iterable[replies.OffsetsSource]) -> replies.OffsetsSource:
    """Return the oldest source: one whose writer is not alive before any other, then one that is no
    writer."""
    nothing = replies.OffsetsSource(source="none", saved_at=None, age_ms=None, writer="down")
    return max(
        sources,
        key=lambda each: (each.writer != "alive", each.source != "writer", each.age_ms or 0),
        default=nothing,
    )


# traces -------------------------------------------------------------------------------------


def trace(spread: ShardReplies) -> replies.MessageTrace:
    """Merge the trace of one message: the copies on all shards."""
    found = _decode_all(spread, replies.MessageTrace)
    merged = _join_traces([each.trace for each in found], whole=spread.is_complete)
    return replies.MessageTrace(
        trace=merged,
        offsets=_oldest(each.offsets for each in found),
        shard=None,
        shards=spread.view(),
    )


def traces(
    spread: ShardReplies, begun: ShardPositions, cursor_of: Callable[[ShardPositions], str]
) -> bytes:
    """Merge pages of traces, newest first. The copies of a message become one trace."""
    found = _decode(spread, msgspec.json.Decoder(replies.Traces).decode, begun)
    by_key: dict[Any, list[replies.Trace]] = defaultdict(list)
    for each in found.values():
        for one in each.traces:
            by_key[one.uniq_key or one.copies[0].offset_msg_id].append(one)
    merged = [_join_traces(same, whole=spread.is_complete) for same in by_key.values()]
    merged.sort(key=lambda each: each.copies[-1].store_timestamp, reverse=True)
    positions = _positions(spread, begun, {shard: _position(each) for shard, each in found.items()})
    has_more = _has_more(spread, positions)
    return msgspec.json.encode(
        replies.Traces(
            traces=tuple(merged),
            next=cursor_of(positions) if has_more else None,
            complete=not has_more and _is_whole(spread, positions),
            offsets=_oldest(each.offsets for each in found.values()),
            shard=None,
            shards=spread.view(),
        )
    )


def _position(page: replies.Traces) -> ShardPosition:
    if page.next is None:
        return ShardPosition(is_finished=True, complete=page.complete)
    return ShardPosition(page.next)


def _join_traces(same: list[replies.Trace], *, whole: bool) -> replies.Trace:
    first = same[0]
    copies = [copy for each in same for copy in each.copies]
    copies.sort(key=lambda copy: (copy.store_timestamp, copy.shard, copy.physical_offset))
    first.copies = tuple(copies)
    first.unreadable = tuple([found for each in same for found in each.unreadable])
    first.complete = whole and all(each.complete for each in same)
    return first


# shared by all kinds ------------------------------------------------------------------------


def _decode_all(spread: ShardReplies, kind: type[_T]) -> list[_T]:
    return list(_decode(spread, msgspec.json.Decoder(kind).decode).values())


def _decode(
    spread: ShardReplies,
    decode: Callable[[bytes], _T],
    begun: Mapping[int, ShardPosition] = MappingProxyType({}),
) -> dict[int, _T]:
    """Decode the answers by shard number. Raises Problem if no shard has anything.

    A shard counts as missing also if it has been removed since the query began.
    """
    found = decode_answers(spread, decode)
    replied = found.keys() | spread.refusals.keys() | spread.missing.keys()
    for shard, position in begun.items():
        if not position.is_finished and shard not in replied:
            spread.missing[shard] = "it is no longer a shard"
    if not any(position.is_finished for position in begun.values()):
        spread.require_reply()
    return found


def decode_answers(spread: ShardReplies, decode: Callable[[bytes], _T]) -> dict[int, _T]:
    """Decode the answers by shard number. A shard counts as missing if its answer cannot be
    decoded, as that of another version may be."""
    found = {}
    for shard, body in sorted(spread.answers.items()):
        try:
            found[shard] = decode(body)
        except msgspec.MsgspecError as error:
            del spread.answers[shard]
            spread.missing[shard] = (
                f"its answer cannot be read here; it may run another release: {error}"
            )
    return found


def _positions(
    spread: ShardReplies, begun: ShardPositions, reached: ShardPositions
) -> ShardPositions:
    """Return where the query continues on each shard."""
    nothing = dict.fromkeys(
        spread.refusals, ShardPosition(is_finished=True)
    )  # the shard has no such topic
    return begun | reached | nothing


def _has_more(spread: ShardReplies, positions: ShardPositions) -> bool:
    return any(
        not position.is_finished
        for shard, position in positions.items()
        if shard not in spread.missing
    )


def _is_whole(spread: ShardReplies, positions: ShardPositions) -> bool:
    return spread.is_complete and all(position.complete for position in positions.values())
