"""`python -m tests.soak`: a mixed load over HTTP for an hour, and whether the services stay flat.

First the peak of the mix (sends, batches, pulls, transactions) is measured. Then the mix runs at a
share of it, with retention on and index rebuilds beside the writer. Memory, file handles and
latencies are sampled each second. At the end the peak is measured again. Exit code 1 when a series
is above its allowance in the last third of the run, or when the services cannot keep the rate; 2
without Spark. Writes soak.json and soak.svg.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.bench import machine
from tests.bench.failures import SideError
from tests.bench.workload import QUEUES, TOPIC
from tests.services.service_processes import Run, running
from tests.soak import graph, samples
from tests.soak.load import Load, stored_messages
from tests.soak.rebuilds import Rebuilds, Rebuilt
from tests.soak.samples import Sample, Sampler

BUILD: Final = Path(__file__).parents[2] / "build"
SHARE: Final = 0.7
"""The part of the peak at which the run goes on."""
WARM_UP_S: Final = 3.0
PEAK_SHARE, PEAK_MIN_S, PEAK_MAX_S = 1 / 20, 5.0, 60.0
"""The peak is measured for this part of the run's time, within these bounds."""
PACE_MIN: Final = 0.98
"""The least part of the due operations that the run must have done."""
REPORT_EACH: Final = 60
HIGHEST_PRIORITY: Final = -20
MIB: Final = 1 << 20
SETTINGS: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 128 * MIB,
    # Index files of 50 MB, so that many are made and deleted within the hour.
    "max_hash_slot_num": 500_000,
    "max_index_num": 2_000_000,
    "file_reserved_time": 1,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
    "clean_resource_interval": 1000,
}
SEGMENTS_KEPT: Final = 4
AGE_S: Final = 2 * 3600
"""Older segments are made to look so old that retention deletes them: without that none would be
within the hour, and transactions do not outlive a shorter fileReservedTime."""


@dataclass(frozen=True)
class Soaked:
    """The result of a run."""

    peak: float
    """Operations a second before the run."""
    peak_after: float
    """The same after it: whether the machine is as fast as before."""
    messages: int
    samples: list[Sample]
    rebuilds: list[Rebuilt]

    @property
    def seconds(self) -> float:
        """The length of the run."""
        return self.samples[-1].seconds

    def findings(self) -> list[str]:
        """The series that did not stay flat, in words."""
        done = sum(each.operations for each in self.samples)
        due = self.peak * SHARE * self.seconds
        slow = [] if done >= due * PACE_MIN else [f"{done} of {due:.0f} due operations were done"]
        return slow + samples.growths(self.samples)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--directory", type=Path, default=BUILD, help="where the store is made")
    parser.add_argument("--output", type=Path, default=BUILD, help="of soak.json and soak.svg")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("pyspark") is None:
        print("the index rebuilds need Spark: make soak installs it", file=sys.stderr)
        return 2
    options.directory.mkdir(parents=True, exist_ok=True)
    facts = machine.facts()
    with suppress(PermissionError):  # other work on the machine is not what is measured
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    with TemporaryDirectory(dir=options.directory, prefix="soak-") as room:
        try:
            found = _soak(Path(room) / "store", options.minutes * 60)
        except SideError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    findings = found.findings()
    _write(found, findings, facts, options.output)
    return 1 if findings else 0


def _soak(store: Path, seconds: float) -> Soaked:
    with ExitStack() as stack:
        run = stack.enter_context(running(store, **SETTINGS))
        with run.client() as client:
            client.create_topic(TOPIC, queues=QUEUES)
        load = stack.enter_context(Load(run.writer_url, run.query_url))
        peak = _peak(load, seconds)
        _report(f"peak: {peak:.0f} operations/s; the run has {SHARE:.0%} of it")
        rebuilds = Rebuilds(store, run.writer_url, seconds)
        stack.callback(rebuilds.kill)
        messages, found = _run(load, run, store, rebuilds, peak, seconds)
        after = _peak(load, seconds)
        _report(f"peak after the run: {after:.0f} operations/s")
        return Soaked(peak, after, messages, found, rebuilds.ended)


def _peak(load: Load, seconds: float) -> float:
    """Operations a second of the mix, as fast as the services answer."""
    for _ in load.run(WARM_UP_S):
        pass
    length = min(max(seconds * PEAK_SHARE, PEAK_MIN_S), PEAK_MAX_S)
    counts = [sum(map(len, step.values())) for step in load.run(length)]
    return statistics.median(counts[:-1])  # the last one may be a shorter step


def _run(
    load: Load, run: Run, store: Path, rebuilds: Rebuilds, peak: float, seconds: float
) -> tuple[int, list[Sample]]:
    """The messages stored and the samples of the run."""
    sampler, found = Sampler(run, store), list[Sample]()
    messages, began = 0, time.monotonic()
    rebuilds.step(0)
    for step in load.run(seconds, peak * SHARE):
        now = time.monotonic() - began
        found.append(sampler.sample(now, step))
        messages += stored_messages([step])
        rebuilds.step(now)
        _age_segments(store / "commitlog")
        if len(found) % REPORT_EACH == 0:
            _report(f"{now / 60:.0f} min: {found[-1].values}")
    rebuilds.finish(began)
    return messages, found


def _age_segments(directory: Path) -> None:
    then = time.time() - AGE_S
    for path in sorted(directory.iterdir())[:-SEGMENTS_KEPT]:
        with suppress(FileNotFoundError):  # retention took it
            os.utime(path, (then, then))


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(found: Soaked, findings: Sequence[str], facts: dict[str, str], output: Path) -> None:
    title = (
        f"{facts['began']}: {found.messages:,} messages in {found.seconds / 60:.0f} min, "
        f"{found.peak * SHARE:,.0f} of {found.peak:,.0f} operations/s "
        f"(after the run {found.peak_after:,.0f}), "
        f"{len(found.rebuilds)} index rebuilds (grey)"
    )
    panels: dict[str, dict[str, graph.Points]] = {}
    print(title)
    for group, name, points in samples.series(found.samples):
        panels.setdefault(group, {})[name] = points
        values = [value for _, value in points]
        bounds = f"{min(values):.3g} … {max(values):.3g} {samples.GROUPS[group].unit}"
        print(f"{f'{group}, {name}':30} {graph.sparkline(values)} {bounds}")
    for each in findings:
        print(f"not flat: {each}")
    output.mkdir(parents=True, exist_ok=True)
    whole = {"machine": facts, "findings": list(findings)} | asdict(found)
    (output / "soak.json").write_text(json.dumps(whole) + "\n")
    drawn = [
        graph.Panel(f"{group}, {samples.GROUPS[group].unit}", lines)
        for group, lines in panels.items()
    ]
    bands = [(each.begin, each.end) for each in found.rebuilds]
    (output / "soak.svg").write_text(graph.svg(title, drawn, found.seconds, bands))


if __name__ == "__main__":
    sys.exit(main())
