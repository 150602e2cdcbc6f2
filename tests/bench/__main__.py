"""`python -m tests.bench [ROW…]`: measure, print the table, write build/bench.json.

A row whose side fails is left out and named on standard error; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench import (
    bench_append,
    bench_beside,
    bench_catch_up,
    bench_client,
    bench_jobs,
    bench_lean,
    bench_network,
    bench_open,
    bench_pulls,
    bench_query,
    bench_reads,
    bench_rebuild,
    bench_shared,
    bench_spark,
    bench_sync,
    bench_transactions,
    bench_visible,
    document,
    harness,
    machine,
    rocketmq,
)
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Row, Setting
from tests.bench.lean import Limits
from tests.bench.machine import Use
from tests.bench.rocketmq import Peer

BENCHES: Final[dict[str, Callable[[Setting], Iterator[Bench]]]] = {
    "lean-sends": bench_lean.send_benches,
    "lean-replicated": bench_lean.replicated_benches,
    "lean-pulls": bench_lean.pull_benches,
    "lean-lookups": bench_lean.lookup_benches,
    "lean-transactions": bench_lean.transaction_benches,
    "lean-coordinator": bench_lean.coordinator_benches,
    "lean-shared": bench_shared.benches,
    "lean-push": bench_shared.push_benches,
    "client": bench_client.benches,
    "append": bench_append.benches,
    "sync": bench_sync.benches,
    "rebuild": bench_rebuild.benches,
    "index-rebuild": bench_spark.benches,
    "jobs": bench_jobs.benches,
    "catch-up": bench_catch_up.benches,
    "reads": bench_reads.benches,
    "query": bench_query.benches,
    "open": bench_open.benches,
    "visible": bench_visible.benches,
    "network": bench_network.benches,
    "pulls": bench_pulls.benches,
    "beside": bench_beside.benches,
    "transactions": bench_transactions.benches,
}
PEERS: Final = {"lean-shared": rocketmq.POP_NAME, "client": bench_client.PEER}
"""The peers of rows by the name of their benches, where it is not that of all others."""
BUILD: Final = Path(__file__).parents[2] / "build"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows; return 0, 1 when a row failed, or 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    if options.document is not None and options.rows:
        print("--document holds whole runs: leave ROW out", file=sys.stderr)
        return 2
    if options.document is not None:
        document.split(options.document)  # rather now than after the run
    unknown = [name for name in options.rows if name not in BENCHES]
    if unknown:
        known = ", ".join(BENCHES)
        print(f"unknown rows: {', '.join(unknown)}; known are {known}", file=sys.stderr)
        return 2
    facts, before = machine.facts(), Use.now()
    why_alone = "requested by --alone" if options.alone else rocketmq.missing()
    directory = (options.directory or BUILD).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory, prefix="bench-") as room, _peer(why_alone) as peer:
        limits = Limits(options.seconds, options.exchanges)
        setting = Setting(Path(room), peer, options.records, options.log_mib, limits)
        run = Run()
        for name in options.rows or BENCHES:
            _measure(setting, name, options.rounds, run)
    _clear_line()
    use = Use.now().since(before).sentence()
    settings = f"Rounds: {options.rounds}; log: {options.log_mib} MiB."
    head = f"{machine.sentence(facts)} {settings} {use}"
    print("\n\n".join([head, *run.tables()]))
    if why_alone is not None:
        print(f"\nmqstore alone: {why_alone}")
    harness.write(run.all_rows(), facts | {"use": use, "rounds": settings}, options.output)
    if options.document is not None:
        missing = document.missing(run.all_rows())
        run.failures += [f"{name}: of the page's table, and not measured" for name in missing]
    for failure in run.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if options.document is not None and why_alone is None and not run.failures:
        document.write(options.document, f"{head}\n\n{document.summary(run.all_rows())}")
    return 1 if run.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each side")
    parser.add_argument("--records", type=int, default=200_000, help="of one round of appends")
    parser.add_argument(
        "--log-mib", type=int, default=1024, help="log that is rebuilt; a quarter of it is read"
    )
    parser.add_argument("--directory", type=Path, help="on the disk that is meant; default build/")
    parser.add_argument("--seconds", type=float, default=5, help="of a round of the lean client")
    parser.add_argument(
        "--exchanges", type=int, default=0, help="of a connection in a round of the lean client"
    )
    parser.add_argument("--document", type=Path, help="the page whose table is replaced")
    parser.add_argument("--alone", action="store_true", help="without RocketMQ")
    parser.add_argument("--output", type=Path, default=BUILD / "bench.json")
    return parser


@dataclass
class Run:
    """The rows that were measured, and why others were not."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    """By the name of their benches."""
    uses: dict[str, Use] = field(default_factory=dict)
    """Use of the processors, by the name of the benches."""
    failures: list[str] = field(default_factory=list)

    def all_rows(self) -> list[Row]:
        """The rows of all names."""
        return [row for rows in self.rows.values() for row in rows]

    def tables(self) -> Iterator[str]:
        """A heading, the use of the processors and a table for each name."""
        for name, rows in self.rows.items():
            yield f"### {name}"
            yield self.uses[name].sentence()
            yield harness.table(rows, PEERS.get(name, rocketmq.NAME))


def _measure(setting: Setting, name: str, rounds: int, run: Run) -> None:
    """Measure the benches of one name; one that fails leaves the others."""
    processes, before = {"ours": [os.getpid()]}, Use.now()
    if setting.peer is not None:
        processes["peer"] = [setting.peer.process_id]
    try:
        for bench in BENCHES[name](setting):
            try:
                measured = harness.measure(bench, rounds, _progress, processes)
            except SideError as error:
                run.failures.append(str(error))
            else:
                run.rows.setdefault(name, []).extend(measured)
    except SideError as error:  # its sides did not start
        run.failures.append(f"{name}: {error}")
    run.uses[name] = Use.now().since(before)


@contextmanager
def _peer(why_not: str | None) -> Iterator[Peer | None]:
    if why_not is not None:
        yield None
        return
    _progress("building and starting the peer")
    peer = Peer()
    try:
        yield peer
    finally:
        peer.close()


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _clear_line() -> None:
    _progress("")


if __name__ == "__main__":
    machine.adopt_orphans()
    sys.exit(main())
