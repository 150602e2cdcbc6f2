"""Every operation of a workload is a place to crash, in five ways, and every state is examined.

``make simulate`` does the same for as many states as one likes; a failure here names the state in
its own terms.
"""

from __future__ import annotations

import hashlib
import math
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqstore.storage.layout import StoreFormat
from tests.compat.compare import Dump
from tests.compat.referee import Referee
from tests.long_runs import few_first
from tests.simulation import __main__ as command
from tests.simulation.crash_states import (
    POINTS,
    Crash,
    CrashStateBroken,
    CrashStates,
    Replay,
    crashed,
)
from tests.simulation.driver import WIDE
from tests.simulation.explore import PART_STATES, explore
from tests.simulation.invariants import Checker
from tests.simulation.world import (
    ROOT,
    WAITLESS_SEEDS,
    World,
    open_store,
    rocketmq_settings,
    seams_on,
)

QUICK_POINTS = 24
SHARDS = 40
"""Parts of one workload; each is a test of its own, so that they spread over the cores."""
REFEREE_STATES = 12
WIDE_SEEDS = range(6, 70, 8)
"""Seeds of worlds whose queue files have several sectors."""


@pytest.mark.parametrize("seed", few_first([1, WAITLESS_SEEDS[1]]))
def test_the_first_crash_states_keep_what_was_promised(seed: int) -> None:
    assert CrashStates(Replay(seed), points=QUICK_POINTS).run() == QUICK_POINTS * len(Crash)


@pytest.mark.parametrize(
    "shard",
    [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, SHARDS))],
)
@pytest.mark.parametrize(
    "seed",
    [pytest.param(11, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.nightly)],
)
def test_every_crash_state_of_a_workload_keeps_what_was_promised(seed: int, shard: int) -> None:
    """A workload of 2,000 operations, five states each; make test-ci examines a part."""
    states = CrashStates(Replay(seed), shard=shard, shards=SHARDS)
    assert states.run() == POINTS // SHARDS * len(Crash)


def test_a_replay_is_what_its_text_says() -> None:
    for replay in (Replay(7), Replay(7, 12), Replay(7, 12, Crash.TORN_512)):
        assert Replay.parse(str(replay)) == replay
    with pytest.raises(ValueError, match="nothing"):
        Replay.parse("7.12.nothing")


def test_one_state_can_be_seen_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["STATES=", "SEED=3.20.torn4096"]) == 0
    assert "1 states of 3.20.torn4096 keep what was promised" in capsys.readouterr().err


@pytest.mark.parametrize("seed", few_first([1, 6]))
def test_a_state_alone_is_the_state_among_all_others(seed: int) -> None:
    """Else a replay would show something else than the exploration found."""
    points, crash = 2 * QUICK_POINTS, Crash.TORN_512
    among = _what_is_left(Replay(seed, None, crash), points)
    assert len(among) == points
    for point in range(points - 1, QUICK_POINTS, -10):
        alone = Replay(seed, point, crash)
        assert _what_is_left(alone, points) == {alone: among[alone]}


def _what_is_left(replay: Replay, points: int) -> dict[Replay, bytes]:
    """A checksum of all that each state consists of."""
    left: dict[Replay, bytes] = {}

    def add(state: Replay) -> None:
        world, checksum = states.world, hashlib.sha256()
        assert state.crash is not None
        for crash_seed in range(3):
            disk = crashed(world, state.crash, crash_seed)
            for path in disk.paths():
                checksum.update(f"{path} {disk.stat(path)}".encode() + disk.read(path))
        model = world.model
        promised = (model.durable, model.min_range, model.pending, model.topics, model.consumed)
        checksum.update(repr((bytes(model.image), promised, world.torn)).encode())
        left[state] = checksum.digest()

    states = CrashStates(replay, points=points, on_state=add)
    states.run()
    return left


def test_a_wrong_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["SEED=x"]) == 2
    assert command.main(["SPEED=1"]) == 2
    assert "usage" in capsys.readouterr().err


def test_an_exploration_that_is_stopped_says_how_far_it_came() -> None:
    command_line = [sys.executable, "-m", "tests.simulation", "STATES=1000000", "SEED=1", "JOBS=1"]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "1000000 crash states" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        output = process.stderr.read()
    assert process.returncode == command.STOPPED
    assert "of 1000000 states, 0 broken" in output
    assert "stopped; what comes next: SEED=1 PART=" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_an_exploration_goes_on_where_another_ended() -> None:
    lines: list[str] = []
    done = explore(3, 1, 1, lines.append, first_part=39)
    assert (done.done, done.next_part, done.broken) == (PART_STATES, 40, [])
    assert lines[0].startswith("1 crash states from SEED=3 PART=39 on")
    assert lines[-1].endswith("what comes next: SEED=3 PART=40")


def test_a_state_that_breaks_its_promise_says_how_to_see_it_again() -> None:
    states = CrashStates(Replay(1), points=QUICK_POINTS)
    states.world.model.topics["never made"] = {4}
    with pytest.raises(CrashStateBroken, match=r"make simulate SEED=1\.0\.kill"):
        states.run()


def test_a_state_that_breaks_in_a_services_step_is_reported() -> None:
    """The store takes whatever its services raise for its own failure, and goes on."""
    states = CrashStates(Replay(1, None, Crash.KILL), points=3 * QUICK_POINTS)
    world = states.world
    world.open()

    class Breaking:
        name = "breaking"

        def step(self, now: float) -> float:
            world.model.topics["never made"] = {4}
            try:
                world.disk.sync_directory(ROOT)
            finally:
                del world.model.topics["never made"]
            return math.inf

    world.scheduler.start(Breaking(), lambda error: None)
    with pytest.raises(CrashStateBroken, match="make simulate SEED=1"):
        states.run()


@pytest.mark.slow
@pytest.mark.referee
@pytest.mark.parametrize(
    "seeds",
    [range(REFEREE_STATES), pytest.param(WIDE_SEEDS, marks=pytest.mark.nightly)],
    ids=["all", "wide"],
)
def test_rocketmq_reads_what_we_recovered(
    referee: Referee, tmp_path: Path, seeds: Sequence[int]
) -> None:
    """A sample of states; what the crash tore, and nothing else, is a tombstone there."""
    for seed in seeds:
        assert seeds is not WIDE_SEEDS or World(seed).config is WIDE
        rng = random.Random(seed)
        world = World(seed, StoreFormat(referee.format))
        world.live(rng.randint(20, 300))
        crash = rng.choice(list(Crash))
        floor = world.floor_after_kill()
        if crash is not Crash.KILL:
            floor = world.floor_after_power_cut()
        disk = crashed(world, crash, seed)
        seams = seams_on(disk, seed)
        store = open_store(seams, world.format, world.config)
        checker = Checker(store, world.model, seams, rng, torn=crash is not Crash.KILL)
        checker.check(floor)
        directory = tmp_path / f"state-{seed}"
        disk.save(ROOT, directory)
        theirs = referee.dump(directory, rocketmq_settings(world.config), queries=False)
        _compare(checker, Dump.of(theirs))


def _compare(checker: Checker, theirs: Dump) -> None:
    found = {line["off"]: line for line in theirs.messages}
    readable = [record for record in checker.live if checker.readable(record)]
    assert theirs.recovered["maxPhyOffset"] == checker.end
    for record in readable:
        line = found.pop(record.offset)
        assert line["bodySha256"] == hashlib.sha256(record.body).hexdigest()
        assert (line["topic"], line["q"]) == record.queue
        if record.queued:
            entry = theirs.entries[record.queue][record.queue_offset]
            assert entry == (record.offset, record.size, record.tags_code)
    torn = {record.offset for record in checker.live} - {record.offset for record in readable}
    assert found.keys() <= torn
