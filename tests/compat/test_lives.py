"""Random stores that go from a real broker to us and back, or from us to a broker and back, with
the features and settings of both versions: each group gets each message, and none again that it
has settled."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compat.broker_states import SIZES
from tests.compat.examples import KEPT
from tests.compat.lives import KINDS, KINDS_OF_4, LEVELS, Account, BrokerSide, Group, Life, OurSide
from tests.compat.referee import VERSIONS, Referee, missing
from tests.long_runs import few_first

pytestmark = [pytest.mark.referee, pytest.mark.slow]

NIGHTLY_SEEDS: Final = 50
"""Number of stores of each version and direction."""
KILLED_PERCENT: Final = 25
CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "mappedFileSizeCommitLog": (1 << 17, 1 << 20),
    "mappedFileSizeConsumeQueue": (400, 2000),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
    "enableScheduleAsyncDeliver": (False, True),
    "enableConsumeQueueExt": (False, True),
    "enableLmq": (False, True),
    "traceTopicEnable": (False, True),
}
CHOICES_OF_5: Final[dict[str, tuple[Any, ...]]] = {
    "enableRetryTopicV2": (False, True),
    "enablePopBufferMerge": (False, True),
    "enablePopBatchAck": (False, True),
    "appendAckAsync": (False, True),
    "appendCkAsync": (False, True),
    "reviveQueueNum": (1, 8),
    "popConsumerKVServiceInit": (False, True),
    "timerInterceptDelayLevel": (False, True),
    "timerWheelSnapshotFlush": (False, True),
}


def settings_of(rng: random.Random, *, is_5: bool) -> dict[str, Any]:
    choices = CHOICES | (CHOICES_OF_5 if is_5 else {})
    drawn = {name: rng.choice(values) for name, values in choices.items()}
    if drawn["enableConsumeQueueExt"]:
        drawn |= {"enableCalcFilterBitMap": True, "enablePropertyFilter": True}
    drawn |= {"enableMultiDispatch": drawn["enableLmq"], "messageDelayLevel": LEVELS}
    if is_5:
        if drawn["enablePopBufferMerge"]:
            # With both, a restart of a broker may deliver again what was acknowledged:
            # docs/rocketmq-observed.md.
            drawn["appendAckAsync"] = False
        drawn["transactionOpBatchInterval"] = 100  # else an end of the broker waits for it
        drawn["timerWheelSnapshotIntervalMs"] = 100  # else a snapshot is made after ten seconds
    return {**SIZES, **drawn}


class Lived:
    """One random life."""

    def __init__(self, referee: Referee, directory: Path, seed: int) -> None:
        self.referee = referee
        self.rng = random.Random(seed)
        self.is_5 = referee.format == "5.x"
        self.account = Account("orders")
        for kind in KINDS if self.is_5 else KINDS_OF_4:
            self.account.groups[f"by-{kind}"] = Group(f"by-{kind}", kind)
        self.light = Account("%LMQ%device", groups={"%LMQ%r": Group("%LMQ%r", "pull")})
        config = settings_of(self.rng, is_5=self.is_5)
        self.has_light = config["enableLmq"]
        self.life = Life(
            directory / "store",
            config,
            self.account,
            self.rng,
            {"store_format": referee.format},
            self.light,
        )

    def run(self, *, begins_here: bool, successor: Referee | None = None) -> None:
        """Hand the store to and fro, and let all groups consume all at the end; at a broker of
        another version where there is a ``successor``."""
        phases = self.rng.randint(2, 4)
        for number in range(phases + 1):
            is_last = number == phases
            is_ours = (number % 2 == 0) == begins_here
            killed = not is_last and self.rng.randrange(100) < KILLED_PERCENT
            if is_ours:
                with self.life.at_ours(killed=killed) as ours:
                    self._at_ours(ours, is_last=is_last and successor is None)
            else:
                with self.life.at_broker(self.referee, killed=killed) as broker:
                    self._at_broker(broker, is_last=is_last and successor is None)
        if successor is not None:
            with self.life.at_broker(successor) as broker:
                self._at_broker(broker, is_last=True)

    def _at_broker(self, broker: BrokerSide, *, is_last: bool) -> None:
        rng = self.rng
        broker.send(rng.randint(1, 8))
        for _ in range(rng.randint(1, 3)):
            match rng.choice(("plain", "batch", "level", "timed", "transact", "light")):
                case "plain":
                    broker.send(rng.randint(1, 20), tag=rng.choice(("a", "b")))
                case "batch":
                    broker.send(rng.randint(1, 10), batch=True, queue=rng.randrange(3))
                case "level":
                    broker.send(rng.randint(1, 4), level=rng.randint(1, 4))
                case "timed" if self.is_5:
                    broker.send(rng.randint(1, 4), delayMs=rng.randint(500, 4000))
                case "transact":
                    broker.transact(rng.randint(1, 3), rng.randint(0, 2), rng.randint(0, 2), 0)
                case "light" if self.has_light:
                    broker.fan_out(rng.randint(1, 6), self.light)
        for group in self.account.groups.values():
            if is_last or rng.randrange(100) < 60:
                broker.consume(group, part=not is_last)
        if self.has_light:
            broker.consume_light(self.light, part=not is_last)

    def _at_ours(self, ours: OurSide, *, is_last: bool) -> None:
        rng = self.rng
        ours.send(rng.randint(1, 8))
        for _ in range(rng.randint(1, 3)):
            match rng.choice(("plain", "level", "timed", "transact")):
                case "plain":
                    ours.send(rng.randint(1, 20), tags=rng.choice(("a", "b")))
                case "level":
                    ours.send(rng.randint(1, 4), delay_level=rng.randint(1, 4))
                case "timed" if self.is_5:
                    ours.send(rng.randint(1, 4), delay_s=rng.randint(1, 8) / 2)
                case "transact":
                    ours.transact(rng.randint(1, 3), rng.randint(0, 2), rng.randint(0, 2))
        for group in self.account.groups.values():
            if is_last or rng.randrange(100) < 60:
                ours.consume(group, part=not is_last)


@contextlib.contextmanager
def kept_when_failed(seed: int) -> Iterator[Path]:
    """A directory for the stores of a seed, which stays when the test fails."""
    KEPT.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"life-{seed}-", dir=KEPT))
    try:
        yield directory
    except BaseException as failure:
        failure.add_note(f"seed {seed}: the store is kept in {directory}")
        raise
    shutil.rmtree(directory)


SEEDS: Final = few_first(range(NIGHTLY_SEEDS), 1, others=pytest.mark.nightly)


@pytest.mark.parametrize("begins_here", [False, True], ids=["theirs", "ours"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_is_handed_over_loses_nothing(
    referee: Referee, seed: int, begins_here: bool
) -> None:
    with kept_when_failed(seed) as directory:
        Lived(referee, directory, seed).run(begins_here=begins_here)


UPGRADES: Final = few_first(range(NIGHTLY_SEEDS // 5), 1, others=pytest.mark.nightly)


@pytest.mark.parametrize("seed", UPGRADES)
def test_a_store_of_4_9_goes_on_in_a_broker_of_5_x(seed: int) -> None:
    """As RocketMQ allows it: 4.9 to 5.x, not back."""
    if (why := missing()) is not None:
        pytest.skip(why)
    before, after = (Referee(version) for version in VERSIONS)
    with contextlib.closing(before), contextlib.closing(after), kept_when_failed(seed) as directory:
        lived = Lived(before, directory, seed)
        lived.run(begins_here=False, successor=after)
