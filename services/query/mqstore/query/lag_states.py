"""The lag of a group divided by the states of its messages."""

from __future__ import annotations

from collections.abc import Mapping

from mqstore.query import replies
from mqstore.query.committed_offsets import ConsumerStates
from mqstore.storage.reads import GroupLag
from mqstore.storage.topic_names import RETRY_PREFIX


class LagDivision:
    """Divides lags by the states that store-writer reported."""

    def __init__(self, states: ConsumerStates | None) -> None:
        """``states`` is None while no store-writer replies: then no lag is divided."""
        self._states = states
        self._pending: Mapping[tuple[str, str, int], tuple[int, int]] = {}
        if states is not None:
            self._pending = {
                (each.group, each.topic, each.queue_id): (each.leased, each.done)
                for each in states.pending
            }

    def of(self, found: GroupLag) -> replies.LagStates | None:
        """Return the states of a group's messages in the topics of its lag."""
        if self._states is None:
            return None
        waiting = leased = retrying = acknowledged = 0
        for topic in found.topics:
            for queue in topic.queues:
                lag = queue.stand.lag
                held, done = self._pending.get(
                    (found.group, topic.topic, queue.stand.queue_id), (0, 0)
                )
                held = min(held, lag)
                done = min(done, lag - held)
                leased += held
                acknowledged += done
                if topic.topic.startswith(RETRY_PREFIX):
                    retrying += lag - held - done
                else:
                    waiting += lag - held - done
        delayed = self._states.delayed
        return replies.LagStates(
            waiting=waiting,
            leased=leased,
            retrying=retrying,
            acknowledged=acknowledged,
            delayed=None if delayed is None else delayed.get(found.group, 0),
        )
