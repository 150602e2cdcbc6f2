"""A real Prometheus that scrapes running services."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.free_ports import free_port
from tests.prometheus_tools import find_tool

SCRAPE_S: Final = 1
PATIENCE_S: Final = 60.0


class QueryError(Exception):
    """Prometheus rejected a query."""


@dataclass(frozen=True)
class Series:
    """One series of a result."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]
    """Unix times and finite values."""


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def query(
        self, expression: str, *, seconds: int, step_s: int, end_s: float | None = None
    ) -> list[Series]:
        """The series of the last ``seconds``, until ``end_s`` or now, that have a finite value.

        Raises QueryError.
        """
        now = time.time() if end_s is None else end_s
        found = self._get(
            "query_range", query=expression, start=now - seconds, end=now, step=step_s
        )
        series = [
            Series(
                each["metric"],
                [(at, float(value)) for at, value in each["values"] if math.isfinite(float(value))],
            )
            for each in found["result"]
        ]
        return [each for each in series if each.points]

    def label_values(self, selector: str, label: str) -> list[str]:
        """The values of a label of the series of a selector."""
        return list(self._get(f"label/{label}/values", **{"match[]": selector}))

    def targets(self) -> list[dict[str, Any]]:
        """The scraped targets."""
        return list(self._get("targets")["activeTargets"])

    def _get(self, path: str, **parameters: Any) -> Any:
        reply = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=PATIENCE_S)
        if reply.status_code != 200:
            raise QueryError(f"{parameters}: {reply.text}")
        return reply.json()["data"]


@contextlib.contextmanager
def prometheus(directory: Path, jobs: list[dict[str, Any]]) -> Iterator[Prometheus]:
    """A server with these scrape configurations, once it has scraped each target; killed at the
    end."""
    directory.mkdir()
    document = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    (directory / "prometheus.yml").write_text(json.dumps(document))
    port = free_port()
    command = [
        *(str(find_tool("prometheus")), "--config.file=prometheus.yml", "--log.level=warn"),
        *("--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with (directory / "log").open("w") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        _await_scrapes(found, process, directory / "log")
        yield found
    finally:
        process.kill()
        process.wait()


def _await_scrapes(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(httpx.TransportError, QueryError):
            targets = server.targets()
            if targets and all(each["health"] == "up" for each in targets):
                return
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
