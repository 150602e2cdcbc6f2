"""Judgement, graph and clients of the soak; the whole run is `make soak`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.failures import SideError
from tests.bench.workload import QUEUES, TOPIC
from tests.services.service_processes import running
from tests.soak import __main__ as soak
from tests.soak import graph, samples
from tests.soak.load import CLIENTS, MIX, Kind, Load, stored_messages
from tests.soak.samples import Sample


def _samples(values: list[float], group: str = samples.PRIVATE) -> list[Sample]:
    others: samples.Values = {name: {} for name in samples.GROUPS if name != group}
    return [
        Sample(at + 1, 10, {**others, group: {"query": value}}) for at, value in enumerate(values)
    ]


def test_what_settles_in_the_first_third_is_flat() -> None:
    assert samples.growths(_samples([min(at, 40.0) for at in range(120)])) == []


def test_what_goes_on_growing_is_named_with_both_thirds() -> None:
    (found,) = samples.growths(_samples([float(at) for at in range(120)]))
    assert found == (
        "private memory of query: 99.5 MiB in the last third, 59.5 in the middle third; at most"
        " 70.47 is allowed"
    )


def test_a_series_that_ends_is_named() -> None:
    found = _samples([1.0] * 12, "p99")
    for each in found[8:]:
        each.values["p99"].clear()
    assert samples.growths(found) == ["p99 of query: too few values"]


def test_a_rate_that_is_not_kept_is_named() -> None:
    found = soak.Soaked(
        peak=20, peak_after=20, messages=0, samples=_samples([1.0] * 10), rebuilds=[]
    )
    assert found.findings() == ["100 of 140 due operations were done"]


def test_a_line_rises_with_its_values() -> None:
    assert graph.sparkline([0, 50, 100]) == "▁▄█"
    panel = graph.Panel("MiB", {"a": [(0, 0), (1, 5)], "b": [(0, 1)]})
    drawn = graph.svg("title", [panel, panel], 3, [(1, 2)])
    assert drawn.count("<polyline") == 4
    assert drawn.count('fill="#eee"') == 2


@pytest.mark.slow
def test_each_client_does_the_whole_mix_and_never_more_than_the_rate(tmp_path: Path) -> None:
    with running(tmp_path / "store") as run:
        with run.client() as client:
            client.create_topic(TOPIC, queues=QUEUES)
        with Load(run.writer_url, run.query_url) as load:
            paced = list(load.run(seconds=2, rate=100))
            done = {kind: sum(len(step[kind]) for step in paced) for kind in Kind}
            assert 0 < sum(done.values()) <= 200
            while not all(done.values()) or sum(done.values()) < len(MIX) * CLIENTS:
                for step in load.run(seconds=1):
                    paced.append(step)
                    done = {kind: done[kind] + len(step[kind]) for kind in Kind}
        with run.client() as client:
            queues = client.queues(TOPIC).queues
            assert sum(each.max_offset for each in queues) == stored_messages(paced)


@pytest.mark.slow
def test_a_request_that_is_refused_ends_the_load(tmp_path: Path) -> None:
    with (
        running(tmp_path / "store") as run,
        Load(run.writer_url, run.query_url) as load,
        pytest.raises(SideError, match="refused"),
    ):
        list(load.run(seconds=60))  # there is no topic


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_short_run_is_whole(tmp_path: Path) -> None:
    """Whether it is flat is for a longer run."""
    options = ["--minutes", "0.5", "--directory", str(tmp_path), "--output", str(tmp_path)]
    assert soak.main(options) in (0, 1)
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["peak"] > 0
    assert found["rebuilds"][0]["records"] > 0
    assert {kind for each in found["samples"] for kind in each["values"]["p99"]} == set(Kind)
    assert (tmp_path / "soak.svg").read_text().count("<polyline") > 10
