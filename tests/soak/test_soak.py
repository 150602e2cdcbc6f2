"""Memory under load over HTTP; the whole run is `make soak`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak import __main__ as soak
from tests.soak import graph


def _sample(writer_mib: float) -> soak.Sample:
    return soak.Sample(0, 0, 0, writer_mib, 0, 0, 0)


def test_memory_that_goes_on_growing_is_reported() -> None:
    assert soak._is_flat([_sample(min(at, 40)) for at in range(100)])
    assert not soak._is_flat([_sample(at) for at in range(100)])


def test_a_line_rises_with_its_values() -> None:
    assert graph.sparkline([0, 50, 100]) == "▁▄█"
    assert graph.svg({"a": [0, 5, 10]}, 3, "MiB").count("<polyline") == 1


@pytest.mark.slow
def test_a_short_run_is_whole(tmp_path: Path) -> None:
    assert (
        soak.main(["--messages", "50000", "--directory", str(tmp_path), "--output", str(tmp_path)])
        == 0
    )
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["read"] > 0
    assert found["samples"][-1]["writer_mib"] > 0


@pytest.mark.nightly
def test_memory_stays_flat_over_ten_million_messages(tmp_path: Path) -> None:
    assert soak.main(["--directory", str(tmp_path)]) == 0
