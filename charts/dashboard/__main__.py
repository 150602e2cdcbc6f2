"""``python -m charts.dashboard`` writes the Grafana dashboard into the chart."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from charts.dashboard import messages, stores
from charts.dashboard.panels import RELEASE, chosen, several

FILE: Final = Path(__file__).parents[1] / "mqstore" / "files" / "dashboard.json"

ROWS: Final = {
    "Overview": messages.OVERVIEW,
    "Puts and reads": messages.PUTS_AND_READS,
    "Consumers": messages.CONSUMERS,
    "Retention and disk": stores.RETENTION,
    "Dispatch and index": stores.DISPATCH,
    "Delayed messages": messages.DELAYED,
    "Transactions": messages.TRANSACTIONS,
    "Replicas": stores.REPLICAS,
    "Scrub and repair": stores.SCRUB,
    "Recovery and starts": stores.STARTS,
    "Jobs": stores.JOBS,
    "Processes": stores.PROCESSES,
}


def dashboard() -> str:
    """Return the dashboard in JSON, for Grafana 10.1 or newer: a panel a line, for its diffs."""
    numbers = count(1)
    made = builders.Dashboard("mqstore").uid("mqstore").tags(["mqstore", "rocketmq"])
    made.time("now-3h", "now").refresh("30s").tooltip(DashboardCursorSync.CROSSHAIR)
    made.with_variable(builders.DatasourceVariable("source").label("Source").type("prometheus"))
    in_namespace = 'namespace="$namespace"'
    opened = "mqstore_store_open"
    made.with_variable(chosen("namespace", "namespace", opened, ""))
    made.with_variable(chosen("release", "app_kubernetes_io_instance", opened, in_namespace))
    made.with_variable(several("shard", opened, RELEASE))
    made.with_variable(several("pod", "process_start_time_seconds", f'{RELEASE},shard=~"$shard"'))
    for title, panels in ROWS.items():
        made.with_row(builders.Row(title).id(next(numbers)))
        for panel in panels:
            made.with_panel(panel.id(next(numbers)))
    document = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    lines = ",\n".join(json.dumps(panel) for panel in document.pop("panels"))
    return f'{json.dumps(document)[:-1]}, "panels": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(dashboard(), encoding="utf-8")
