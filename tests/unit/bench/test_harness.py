from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from tests.bench import harness, latencies
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Row, Side, measure

RATE = Metric("rate", "append", "messages/s")
TIME = Metric("p99", "append, p99", "ms", higher_is_better=False)


def rounds_of(*figures: Figures) -> Side:
    """A side that answers these in turn."""
    left = iter(figures)
    return lambda: next(left)


def quiet(_: str) -> None: ...


def test_the_first_round_is_not_counted() -> None:
    bench = Bench([RATE], rounds_of({"rate": 1.0}, {"rate": 10.0}, {"rate": 30.0}))
    assert measure(bench, 2, quiet) == [Row("append", "messages/s", 20.0)]


@pytest.mark.slow
def test_the_ratio_is_taken_round_by_round() -> None:
    ours = rounds_of({"rate": 1.0}, {"rate": 10.0}, {"rate": 40.0}, {"rate": 30.0})
    peer = rounds_of({"rate": 1.0}, {"rate": 5.0}, {"rate": 10.0}, {"rate": 10.0})
    row = measure(Bench([RATE], ours, peer), 3, quiet)[0]
    assert (row.ours, row.peer, row.ratio, row.spread) == (30.0, 10.0, 3.0, (2.0, 4.0))


def test_where_less_is_better_the_ratio_is_turned_round() -> None:
    ours, peer = rounds_of(*[{"p99": 2.0}] * 2), rounds_of(*[{"p99": 6.0}] * 2)
    row = measure(Bench([TIME], ours, peer), 1, quiet)[0]
    assert row.ratio == 3.0


def test_the_disk_is_a_ceiling_of_its_own() -> None:
    ours, disk = rounds_of(*[{"rate": 8.0}] * 2), rounds_of(*[{"rate": 10.0}] * 2)
    row = measure(Bench([RATE], ours, disk=disk), 1, quiet)[0]
    assert (row.disk, row.of_disk, row.ratio) == (10.0, 0.8, None)


def test_a_side_may_leave_a_metric_out() -> None:
    both = {"rate": 1.0, "p99": 2.0}
    bench = Bench([RATE, TIME], rounds_of(both, both), rounds_of(*[{"rate": 1.0}] * 2))
    rate, p99 = measure(bench, 1, quiet)
    assert rate.ratio == 1.0
    assert (p99.ours, p99.peer, p99.ratio) == (2.0, None, None)


def test_who_begins_changes_from_round_to_round() -> None:
    turns: list[str] = []

    def side(name: str) -> Side:
        def run() -> Figures:
            turns.append(name)
            return {"rate": 1.0}

        return run

    measure(Bench([RATE], side("ours"), side("peer")), 2, quiet)
    assert turns == ["peer", "ours", "ours", "peer", "peer", "ours"]


def test_a_warm_up_ends_when_the_cost_stops_falling() -> None:
    costs = [100.0, 50.0, 40.0, 41.0, 39.5, 39.0, 1.0]
    left = iter(costs)
    assert harness.warm_up(lambda: {"server": next(left)}) == 6
    assert list(left) == [1.0]


def test_a_warm_up_with_a_cost_that_only_falls_has_an_end() -> None:
    costs = (0.5**number for number in itertools.count())
    assert harness.warm_up(lambda: {"server": next(costs)}) == harness.WARM_UP_ROUNDS


def test_each_side_warms_up_by_its_own_rounds_and_every_full_round_counts() -> None:
    short = dict.fromkeys(("ours", "peer"), lambda: {"server": 1.0})
    ours, peer = rounds_of({"rate": 8.0}), rounds_of({"rate": 4.0})
    row = measure(Bench([RATE], ours, peer, warm_up=short), 1, quiet)[0]
    assert (row.ours, row.peer, row.ratio) == (8.0, 4.0, 2.0)


def test_the_error_of_a_side_names_the_row_and_the_side() -> None:
    def fail() -> Figures:
        raise SideError("connection 3: the server closed it")

    with pytest.raises(SideError, match="append: peer: connection 3: the server closed it"):
        measure(Bench([RATE], rounds_of({"rate": 1.0}), fail), 1, quiet)


def test_a_rate_of_messages_has_its_megabytes() -> None:
    rate = Metric("rate", "append", "messages/s", record_size=1000)
    bench = Bench([rate], rounds_of(*[{"rate": 2000.0}] * 2), rounds_of(*[{"rate": 500.0}] * 2))
    (row,) = measure(bench, 1, quiet)
    assert (row.ours_mb, row.peer_mb) == (2.0, 0.5)


def test_peak_memory_is_that_of_the_side_that_runs() -> None:
    held: list[bytearray] = []

    def ours() -> Figures:
        held.append(bytearray(b"x" * (32 << 20)))
        return {"rate": 1.0}

    rows = measure(Bench([RATE], ours), 1, quiet, {"ours": [os.getpid()]})
    assert [row.name for row in rows] == ["append", "append, peak private memory"]
    assert rows[1].ours > 32


def test_percentiles_are_of_single_calls() -> None:
    seconds = latencies.timed(lambda _: None, range(10))
    assert len(seconds) == 10
    assert latencies.figures([n / 1000 for n in range(1000)]) == {
        "p50": 500.0,
        "p99": 990.0,
        "p99.9": 999.0,
    }


def test_progress_names_the_round_and_the_side() -> None:
    lines: list[str] = []
    measure(Bench([RATE], rounds_of(*[{"rate": 1.0}] * 2)), 1, lines.append)
    assert lines == ["append: warming up, ours", "append: round 1 of 1, ours"]


def test_the_table_leaves_empty_what_was_not_measured() -> None:
    rows = [
        Row(
            "append",
            "messages/s",
            123456.7,
            1000.0,
            123.4567,
            (1.0, 200.0),
            ours_mb=126.4,
            peer_mb=1.024,
        ),
        Row("sync", "ms", 0.51234, disk=0.4, of_disk=0.78),
    ]
    assert harness.table(rows, "RocketMQ").splitlines()[2:] == [
        "| append | messages/s | 123,457 | 1,000 | 123.46 | 1.00 … 200.00 | 126 · 1.02 |  |  |",
        "| sync | ms | 0.512 |  |  |  |  | 0.4 | 0.78 |",
    ]


def test_the_table_leaves_out_a_column_without_a_figure() -> None:
    table = harness.table([Row("append", "messages/s", 2.0, 1.0, 2.0, (2.0, 2.0))], "RocketMQ")
    assert table.splitlines() == [
        "| row | unit | mqstore | RocketMQ | ratio | spread |",
        "| --- | --- | --: | --: | --: | --: |",
        "| append | messages/s | 2 | 1 | 2.00 | 2.00 … 2.00 |",
    ]


def test_rows_are_written_with_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    harness.write([Row("append", "messages/s", 1.0, 2.0, 0.5, (0.4, 0.6))], {"cores": "2"}, path)
    written = json.loads(path.read_text())
    assert written["machine"] == {"cores": "2"}
    assert written["rows"][0]["spread"] == [0.4, 0.6]
    assert written["rows"][0]["unit"] == "messages/s"


@pytest.mark.parametrize("value", [0.0, 99.9])
def test_small_figures_keep_three_digits(value: float) -> None:
    assert f"| {value:.3g} |" in harness.table([Row("a", "ms", value)], "RocketMQ")
