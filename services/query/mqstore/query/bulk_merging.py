"""Merge the results of many look-ups that several shards served. Pure functions without input or
output.

Messages stay the bytes that their shard encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from mqstore.query import replies, views
from mqstore.query.merging import Head, decode_answers, decode_head
from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.shards import ShardReplies
from mqstore.wire.queues import OffsetsByTime, QueueName

_T = TypeVar("_T")

Parts = Mapping[int, Sequence[int]]
"""By shard, the numbers of the look-ups of the request that it served, ascending."""


class _Result(msgspec.Struct, gc=False):
    """A ``MessageResult`` with an undecoded message."""

    id: str
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    problem: replies.LookupProblem | msgspec.UnsetType = msgspec.UNSET

    @property
    def head(self) -> Head | None:
        """The fields of its message that are compared; None without a message."""
        return decode_head(self.message) if isinstance(self.message, msgspec.Raw) else None

    @property
    def is_unknown(self) -> bool:
        """Whether the shard has no such message, which another shard may have."""
        return (
            isinstance(self.problem, msgspec.Struct)
            and self.problem.status == problems.MESSAGE_UNKNOWN.status
        )


class _Results(msgspec.Struct, gc=False):
    """The results of one shard: those of its first look-ups."""

    results: list[_Result]


class _Merged(_Results, gc=False):
    """The reply over several shards."""

    remaining: list[str]
    shards: replies.Shards


def messages(spread: ShardReplies, ids: Sequence[str], parts: Parts, max_bytes: int) -> bytes:
    """Merge the results of ids, up to the first for which the reply of a shard had no room."""
    found = decode_results(spread, msgspec.json.Decoder(_Results).decode)
    merged: list[_Result] = []
    taken = 0
    for message_id, places in zip(ids, _places(parts, len(ids)), strict=True):
        result = _join(message_id, places, found, spread)
        if result is None:
            break
        size = 0 if (head := result.head) is None else head.size
        if taken and taken + size > max_bytes:
            break
        taken += size
        merged.append(result)
    return msgspec.json.encode(_Merged(merged, list(ids[len(merged) :]), spread.view()))


def _places(parts: Parts, count: int) -> list[list[tuple[int, int]]]:
    """Return, for each look-up, the shards that served it and its place in their results."""
    places: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for shard, numbers in sorted(parts.items()):
        for place, number in enumerate(numbers):
            places[number].append((shard, place))
    return places


def _join(
    message_id: str,
    places: Sequence[tuple[int, int]],
    found: Mapping[int, _Results],
    spread: ShardReplies,
) -> _Result | None:
    """Return the newest message, else a problem; None where the reply of a shard had no room."""
    replied = [(found[shard].results, place) for shard, place in places if shard in found]
    if any(place >= len(results) for results, place in replied):
        return None
    there = [results[place] for results, place in replied]
    if not there:
        return _Result(message_id, problem=unreachable_problem(places[0][0], spread))
    heads = [(head.store_timestamp, each) for each in there if (head := each.head) is not None]
    if heads:
        return max(reversed(heads), key=lambda each: each[0])[1]
    result = min(there, key=lambda each: each.is_unknown)
    if len(there) < len(places) and isinstance(result.problem, msgspec.Struct):
        result.problem.complete = False
    return result


def decode_results(spread: ShardReplies, decode: Callable[[bytes], _T]) -> dict[int, _T]:
    """Decode the results by shard. A shard that has none counts as missing."""
    for shard, problem in spread.refusals.items():
        spread.missing[shard] = problem.detail
    spread.refusals.clear()
    return decode_answers(spread, decode)


def unreachable_problem(shard: int, spread: ShardReplies) -> replies.LookupProblem:
    """Return the problem of a look-up whose shard did not reply."""
    detail = f"shard {shard} does not answer: {spread.missing[shard]}"
    return views.problem(Problem(problems.SHARD_UNREACHABLE, detail))


# offsets by time ----------------------------------------------------------------------------


def offsets(
    spread: ShardReplies,
    wanted: OffsetsByTime,
    parts: Parts,
    refused: Mapping[int, Problem],
) -> bytes:
    """Merge offsets: those of single queues in the order of the request, then those of topics.

    ``parts`` has the numbers of the queues of each shard, ``refused`` the problems of others.
    Raises Problem if no shard replied about the topics.
    """
    found = decode_results(spread, msgspec.json.Decoder(replies.QueueOffsets).decode)
    queues, topics = wanted.queues or (), wanted.topics or ()
    results: dict[int, replies.OffsetResult] = {}
    of_topics: list[replies.OffsetResult] = []
    for shard, numbers in sorted(parts.items()):
        if shard in found:
            there = found[shard].results
            results |= zip(numbers, there, strict=False)
            of_topics += there[len(numbers) :]
        else:
            problem = unreachable_problem(shard, spread)
            results |= {each: offset_problem(queues[each], problem) for each in numbers}
    for number, refusal in refused.items():
        results[number] = offset_problem(queues[number], views.problem(refusal))
    if topics and not found:
        spread.require_reply()
    merged = [results[number] for number in range(len(queues))]
    for topic in dict.fromkeys(topics):
        merged += _queues_of(topic, of_topics)
    return msgspec.json.encode(
        replies.QueueOffsets(
            timestamp=wanted.timestamp, results=tuple(merged), shards=spread.view()
        )
    )


def offset_problem(queue: QueueName, problem: replies.LookupProblem) -> replies.OffsetResult:
    """Return the result of a queue without an offset."""
    return replies.OffsetResult(
        topic=queue.topic, queue_id=queue.queue_id, shard=queue.shard, problem=problem
    )


def _queues_of(topic: str, found: Sequence[replies.OffsetResult]) -> Sequence[replies.OffsetResult]:
    """Return the results of a topic; its problem if each shard that replied has one."""
    same = [each for each in found if each.topic == topic]
    return [each for each in same if each.problem is None] or same[:1]
