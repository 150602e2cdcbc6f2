"""`python -m tests.bench [ROW…]`: measure, print the table, write build/bench.json."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench import (
    bench_append,
    bench_beside,
    bench_network,
    bench_open,
    bench_pulls,
    bench_query,
    bench_reads,
    bench_rebuild,
    bench_spark,
    bench_sync,
    bench_transactions,
    bench_visible,
    harness,
    rocketmq,
)
from tests.bench.harness import Bench, Row, Setting
from tests.bench.rocketmq import Peer

BENCHES: Final[dict[str, Callable[[Setting], Iterator[Bench]]]] = {
    "append": bench_append.benches,
    "sync": bench_sync.benches,
    "rebuild": bench_rebuild.benches,
    "index-rebuild": bench_spark.benches,
    "reads": bench_reads.benches,
    "query": bench_query.benches,
    "open": bench_open.benches,
    "visible": bench_visible.benches,
    "network": bench_network.benches,
    "pulls": bench_pulls.benches,
    "beside": bench_beside.benches,
    "transactions": bench_transactions.benches,
}
BUILD: Final = Path(__file__).parents[2] / "build"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows; return 0, or 2 for an unknown row."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.rows if name not in BENCHES]
    if unknown:
        known = ", ".join(BENCHES)
        print(f"unknown rows: {', '.join(unknown)}; known are {known}", file=sys.stderr)
        return 2
    why_alone = "requested by --alone" if options.alone else rocketmq.missing()
    directory = (options.directory or BUILD).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory, prefix="bench-") as room, _peer(why_alone) as peer:
        setting = Setting(Path(room), peer, options.records, options.log_mib)
        rows = list(_measure(setting, options.rows or list(BENCHES), options.rounds))
    _clear_line()
    print(harness.table(rows, rocketmq.NAME))
    if why_alone is not None:
        print(f"\nmqstore alone: {why_alone}")
    harness.write(rows, _machine(), options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each side")
    parser.add_argument("--records", type=int, default=200_000, help="of one round of appends")
    parser.add_argument(
        "--log-mib", type=int, default=1024, help="log that is rebuilt; a quarter of it is read"
    )
    parser.add_argument("--directory", type=Path, help="on the disk that is meant; default build/")
    parser.add_argument("--alone", action="store_true", help="without RocketMQ")
    parser.add_argument("--output", type=Path, default=BUILD / "bench.json")
    return parser


def _measure(setting: Setting, names: list[str], rounds: int) -> Iterator[Row]:
    processes = {"ours": [os.getpid()]}
    if setting.peer is not None:
        processes["peer"] = [setting.peer.process_id]
    for name in names:
        for bench in BENCHES[name](setting):
            yield from harness.measure(bench, rounds, _progress, processes)


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


def _machine() -> dict[str, str]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{pages / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
    }


def _java_version() -> str:
    if rocketmq.missing() is not None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
