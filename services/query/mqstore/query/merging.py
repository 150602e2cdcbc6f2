"""Answers of several shards as one, in plain Python: nothing here asks or waits.

Messages stay the bytes that their shard answered; only what they are sorted by is read.
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
from mqstore.query.shard_cursor import BEGIN, Part, Parts
from mqstore.service.shards import ShardReplies

_T = TypeVar("_T")


class _Head(msgspec.Struct, rename="camel", gc=False):
    """What is read of a message."""

    physical_offset: int
    size: int
    store_timestamp: int


class _Page(msgspec.Struct, gc=False):
    """One shard's MessagesView."""

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
    """A MessagesView over several."""

    shards: replies.Shards


@dataclass(frozen=True, slots=True)
class Paging:
    """How pages of messages are put together."""

    from_ms: int
    to_ms: int
    newest_first: bool
    limit: int
    max_bytes: int
    """Of records, beyond the first."""
    cursor_at: Callable[[int, str], str]
    """A shard's own cursor, by its store id: below a physical offset, or, where the oldest are
    first, from it on."""
    cursor_of: Callable[[Parts], str]


@dataclass(slots=True)
class _Taking:
    """One shard's page, as messages are taken from it in its own order."""

    shard: int
    page: _OnePage
    heads: list[_Head]
    begun: Part
    taken: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.taken == len(self.heads)

    @property
    def goes_on(self) -> bool:
        """Behind what it answered, which may be before what others have next."""
        return self.is_used_up and self.page.next is not None

    def part(self, paging: Paging) -> Part:
        """Where this shard goes on."""
        if self.is_used_up:
            if self.page.next is None:
                return Part(is_over=True, complete=self.page.complete)
            return Part(self.page.next)
        if self.taken == 0:
            return self.begun
        last = self.heads[self.taken - 1].physical_offset
        following = last if paging.newest_first else last + 1
        return Part(paging.cursor_at(following, self.page.store_id))

    def unreadable(self, paging: Paging) -> Iterable[replies.UnreadableMessage]:
        """Those that will not be met again."""
        if self.is_used_up:
            return self.page.unreadable
        if self.taken == 0:
            return ()
        last, sign = self.heads[self.taken - 1].physical_offset, -1 if paging.newest_first else 1
        return [each for each in self.page.unreadable if sign * (each.physical_offset - last) < 0]


def messages(spread: ShardReplies, begun: Parts, paging: Paging) -> bytes:
    """By store timestamp; of one shard in the order of its log. ``begun`` is where each began."""
    read = _decoded(spread, _read_page, begun)
    pages = [_Taking(shard, *page, begun.get(shard, BEGIN)) for shard, page in read.items()]
    taken = list(_in_order(pages, paging))
    parts = _parts(spread, begun, {each.shard: each.part(paging) for each in pages})
    goes_on = _goes_on(spread, parts)
    unreadable = []
    for each in pages:
        for found in each.unreadable(paging):
            found.shard = each.shard
            unreadable.append(found)
    return msgspec.json.encode(
        _Merged(
            taken,
            unreadable,
            paging.cursor_of(parts) if goes_on else None,
            not goes_on and _is_whole(spread, parts),
            _scanned(paging, {each.shard: each.page.scanned for each in pages}),
            spread.view(),
        )
    )


def _read_page(body: bytes) -> tuple[_OnePage, list[_Head]]:
    page = msgspec.json.decode(body, type=_OnePage)
    return page, [_head(each) for each in page.messages]


_head: Final = msgspec.json.Decoder(_Head).decode


def _in_order(pages: list[_Taking], paging: Paging) -> Iterable[msgspec.Raw]:
    """Ends at the first page that is used up and goes on."""
    sign = -1 if paging.newest_first else 1

    def place(each: _Taking) -> tuple[int, int]:
        return sign * each.heads[each.taken].store_timestamp, each.shard

    queue = [(*place(each), each) for each in pages if not each.is_used_up]
    heapq.heapify(queue)
    count = size = 0
    while queue and count < paging.limit and size < paging.max_bytes:
        if any(each.goes_on for each in pages):
            return
        *_, each = heapq.heappop(queue)
        yield each.page.messages[each.taken]
        count, size = count + 1, size + each.heads[each.taken].size
        each.taken += 1
        if not each.is_used_up:
            heapq.heappush(queue, (*place(each), each))


def _scanned(paging: Paging, found: Mapping[int, replies.ScannedRange]) -> replies.ScannedRange:
    return replies.ScannedRange(
        from_ms=paging.from_ms,
        to_ms=paging.to_ms,
        candidates=sum(each.candidates for each in found.values()),
        min_offset=None,
        max_offset=None,
        by_shard={str(shard): each for shard, each in found.items()},
    )


def newest(spread: ShardReplies) -> int:
    """The shard whose message, as MessageDetail, is the newest."""
    heads = _decoded(spread, _head)
    return max(heads, key=lambda shard: (heads[shard].store_timestamp, shard))


# queues and groups --------------------------------------------------------------------------


def queues(spread: ShardReplies) -> bytes:
    found = _views(spread, replies.Queues)
    listed = [queue for each in found for queue in each.queues]
    listed.sort(key=lambda queue: (queue.shard, queue.queue_id))
    told = replies.Queues(topic=found[0].topic, queues=tuple(listed), shards=spread.view())
    return msgspec.json.encode(told)


def lag(spread: ShardReplies) -> bytes:
    """One group's: sums, and every queue with its shard."""
    found = _views(spread, replies.GroupLag)
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
            topics=tuple(topics),
            offsets=_oldest(each.offsets for each in found),
            shard=None,
            shards=spread.view(),
        )
    )


def lags(spread: ShardReplies, limit: int, cursor_of: Callable[[str], str]) -> bytes:
    """All groups by name, up to the last name that every shard has answered for."""
    found = _views(spread, replies.GroupLags)
    by_name: dict[str, list[replies.GroupSum]] = defaultdict(list)
    for each in found:
        for group in each.groups:
            by_name[group.group].append(group)
    reached = [each.groups[-1].group for each in found if each.next is not None and each.groups]
    names = sorted(name for name in by_name if not reached or name <= min(reached))
    goes_on = bool(reached) or len(names) > limit
    names = names[:limit]
    return msgspec.json.encode(
        replies.GroupLags(
            groups=tuple([_group_sum(name, by_name[name]) for name in names]),
            next=cursor_of(names[-1]) if goes_on and names else None,
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
        topics=tuple(topics),
    )


def _topic_sums(
    topic: str, same: list[replies.TopicSum] | list[replies.TopicLag]
) -> dict[str, Any]:
    """The fields of a TopicSum. The age of the oldest message is None where a shard cannot tell."""
    ages = [each.lag_ms for each in same]
    known = [age for age in ages if age is not None]
    age = max(known) if len(known) == len(ages) else None
    return {
        "topic": topic,
        "lag": sum(each.lag for each in same),
        "expired": sum(each.expired for each in same),
        "lag_ms": age,
    }


def _oldest(sources: Iterable[replies.OffsetsSource]) -> replies.OffsetsSource:
    """What is known the longest ago; a writer that is not alive before one that is."""
    nothing = replies.OffsetsSource(source="none", saved_at=None, age_ms=None, writer="down")
    return max(
        sources, key=lambda each: (each.writer != "alive", each.age_ms or 0), default=nothing
    )


# traces -------------------------------------------------------------------------------------


def trace(spread: ShardReplies) -> replies.MessageTrace:
    """One message's: the copies on all shards."""
    found = _views(spread, replies.MessageTrace)
    told = _joined([each.trace for each in found], whole=spread.is_complete)
    return replies.MessageTrace(
        trace=told,
        offsets=_oldest(each.offsets for each in found),
        shard=None,
        shards=spread.view(),
    )


def traces(spread: ShardReplies, begun: Parts, cursor_of: Callable[[Parts], str]) -> bytes:
    """A page of each shard together: a message's copies are one trace, the newest first."""
    found = _decoded(spread, msgspec.json.Decoder(replies.Traces).decode, begun)
    by_key: dict[Any, list[replies.Trace]] = defaultdict(list)
    for each in found.values():
        for one in each.traces:
            by_key[one.uniq_key or one.copies[0].offset_msg_id].append(one)
    told = [_joined(same, whole=spread.is_complete) for same in by_key.values()]
    told.sort(key=lambda each: each.copies[-1].store_timestamp, reverse=True)
    parts = _parts(spread, begun, {shard: _part(each) for shard, each in found.items()})
    goes_on = _goes_on(spread, parts)
    return msgspec.json.encode(
        replies.Traces(
            traces=tuple(told),
            next=cursor_of(parts) if goes_on else None,
            complete=not goes_on and _is_whole(spread, parts),
            offsets=_oldest(each.offsets for each in found.values()),
            shard=None,
            shards=spread.view(),
        )
    )


def _part(page: replies.Traces) -> Part:
    if page.next is None:
        return Part(is_over=True, complete=page.complete)
    return Part(page.next)


def _joined(same: list[replies.Trace], *, whole: bool) -> replies.Trace:
    first = same[0]
    copies = [copy for each in same for copy in each.copies]
    copies.sort(key=lambda copy: (copy.store_timestamp, copy.shard, copy.physical_offset))
    first.copies = tuple(copies)
    first.unreadable = tuple([found for each in same for found in each.unreadable])
    first.complete = whole and all(each.complete for each in same)
    return first


# what every kind has ------------------------------------------------------------------------


def _views(spread: ShardReplies, kind: type[_T]) -> list[_T]:
    return list(_decoded(spread, msgspec.json.Decoder(kind).decode).values())


def _decoded(
    spread: ShardReplies,
    decode: Callable[[bytes], _T],
    begun: Mapping[int, Part] = MappingProxyType({}),
) -> dict[int, _T]:
    """What the shards answered, by number; who answered what is not known here (it may be of
    another version), or is a shard no more, is missing. Raises Problem where none has anything."""
    found = {}
    for shard, body in sorted(spread.answers.items()):
        try:
            found[shard] = decode(body)
        except msgspec.MsgspecError as error:
            del spread.answers[shard]
            spread.missing[shard] = f"its answer cannot be read here: {error}"
    asked = found.keys() | spread.refusals.keys() | spread.missing.keys()
    for shard, part in begun.items():
        if not part.is_over and shard not in asked:
            spread.missing[shard] = "it is no shard any more"
    if not any(part.is_over for part in begun.values()):
        spread.require_reply()
    return found


def _parts(spread: ShardReplies, begun: Parts, reached: Parts) -> Parts:
    """How far each shard is now."""
    nothing = dict.fromkeys(spread.refusals, Part(is_over=True))  # it has no such topic
    return begun | reached | nothing


def _goes_on(spread: ShardReplies, parts: Parts) -> bool:
    return any(not part.is_over for shard, part in parts.items() if shard not in spread.missing)


def _is_whole(spread: ShardReplies, parts: Parts) -> bool:
    return spread.is_complete and all(part.complete for part in parts.values())
