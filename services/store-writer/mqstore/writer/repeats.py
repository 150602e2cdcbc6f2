"""Messages that are sent again, and may have reached another shard before.

Before a shard stores a repeat that it does not know, it asks the others. One that is asked for a
message, and does not have it, stores none under that key for a while, unless it has asked by itself
since: so an earlier attempt that is still on its way there cannot be stored behind its answer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from mqstore.service import problems
from mqstore.service.auth import OwnToken
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards, Spread
from mqstore.storage.errors import UniqueKeyTaken
from mqstore.writer.internal_models import RepeatsAsked, SentBefore

REPEAT: Final = b"x-mqstore-repeat"
"""Header of a produce that was sent before, perhaps to another shard; its value is 1."""
PATH: Final = "/v1/internal/repeats"
ASKED_MAX: Final = 100_000
"""Keys that others have asked for lately."""
GRACE_S: Final = 30.0
"""Beyond the time in which a request's body has to come: for files that its put waits for."""


class _Known(msgspec.Struct):
    """What another shard answers."""

    messages: list[msgspec.Raw]
    taken: str | None = None


class _Placed(msgspec.Struct, rename="camel"):
    uniq_key: str


class Repeats:
    """Used on the event loop only."""

    def __init__(
        self,
        shards: Shards,
        token: OwnToken,
        receive_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._shards = shards
        self._token = token
        self._counts_s = receive_timeout_s + GRACE_S
        self._turns = itertools.count(1)
        self.asked: dict[tuple[str, str], tuple[int, float]] = {}
        """By topic and unique key: the turn in which another shard asked, and until when that
        counts; the oldest first."""

    def turn(self) -> int:
        """What has been asked up to now is before it."""
        return next(self._turns)

    def note_asked(self, topic: str, keys: Collection[str]) -> None:
        """Another shard asked for these, which are not here. Raises Problem (503)."""
        self._forget()
        if len(self.asked) + len(keys) > ASKED_MAX:
            raise Problem(problems.OVERLOADED, "too many repeats were asked for; try again later")
        turn, until = self.turn(), self._clock() + self._counts_s
        for key in keys:
            self.asked.pop((topic, key), None)
            self.asked[topic, key] = turn, until

    def require_not_asked(self, topic: str, keys: Iterable[str], since: int = 0) -> None:
        """Before a put: raises Problem (503) where another shard has asked ``since``."""
        self._forget()
        for key in keys:
            turn, _ = self.asked.get((topic, key), (0, 0.0))
            if turn > since:
                raise Problem(
                    problems.REPEAT_AMBIGUOUS,
                    f"another shard was just asked to store unique key {key!r}; send it again as "
                    "a repeat",
                )

    def note_stored(self, topic: str, keys: Iterable[str]) -> None:
        """These are here by now: whoever asks is told."""
        for key in keys:
            self.asked.pop((topic, key), None)

    def _forget(self) -> None:
        """What counts no longer."""
        now = self._clock()
        while self.asked and self.asked[first := next(iter(self.asked))][1] < now:
            del self.asked[first]

    async def elsewhere(
        self, topic: str, bodies: Mapping[str, bytes], *, sync: bool
    ) -> dict[str, msgspec.Raw]:
        """Where the other shards have messages, by unique key, each a ``Placed``.

        ``bodies`` is what ``once.puts.body_digests`` makes; with ``sync`` they are on disk. Raises
        UniqueKeyTaken, and Problem (503) where one is not found and not all could be asked.
        """
        sent = [SentBefore(key, digest) for key, digest in bodies.items()]
        asked = msgspec.json.encode(RepeatsAsked(topic, sent, sync))
        told = await self._shards.told_by_others(PATH, self._token(), asked)
        told.missing |= {shard: problem.detail for shard, problem in told.refusals.items()}
        found = _read(told)
        if told.missing and len(found) < len(bodies):
            raise Problem(
                problems.REPEAT_AMBIGUOUS,
                f"whether it was stored before on {_names(told)} cannot be told just now; send it "
                "again as a repeat",
                extra={"shards": told.view()},
            )
        return found


def _read(told: Spread) -> dict[str, msgspec.Raw]:
    found: dict[str, msgspec.Raw] = {}
    for shard, answer in sorted(told.answers.items()):
        try:
            known = msgspec.json.decode(answer, type=_Known)
            keys = [msgspec.json.decode(each, type=_Placed).uniq_key for each in known.messages]
        except msgspec.MsgspecError as error:
            told.missing[shard] = f"its answer cannot be read here: {error}"
            continue
        if known.taken is not None:
            raise UniqueKeyTaken(known.taken)
        found |= dict(zip(keys, known.messages, strict=True))
    return found


def _names(told: Spread) -> str:
    return "shard " + ", ".join(map(str, sorted(told.missing)))
