"""Panels, queries and variables of the Grafana dashboard, made by Grafana's own builders."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Final

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphTresholdsStyleMode,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = timeseries.Panel | stat.Panel | heatmap.Panel
Query = tuple[str, str]
"""An expression of PromQL, and the legend of its series."""

SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${source}")
RELEASE: Final = 'namespace="$namespace",app_kubernetes_io_instance="$release"'
"""Matchers of the series of one release."""
PODS: Final = f'{RELEASE},shard=~"$shard",pod=~"$pod"'
"""Matchers of the series of the chosen shards and pods. Those of coordinators have no shard."""
INTERVAL: Final = "30s"
"""Least step of a query: the interval of scrapes by the chart's ServiceMonitor."""
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
GOOD, WARNING, BAD = "green", "orange", "red"
USED: Final = "rocketmq_brokeruntime_commitlog_disk_ratio"
SPACE: Final = ((0.75, WARNING), (0.85, WARNING), (0.9, BAD))
"""RocketMQ's levels of a volume: retention deletes early, it deletes by force, and messages are
refused."""


def of(metric: str, *matchers: str) -> str:
    """Return a selector of the chosen shards and pods."""
    return f"{metric}{{{','.join((PODS, *matchers))}}}"


def rate(metric: str, *matchers: str) -> str:
    """Return the rate per second of a counter."""
    return f"rate({of(metric, *matchers)}[$__rate_interval])"


def events(metric: str, *matchers: str) -> str:
    """Return by how much a counter of rare events has grown in the last hour."""
    return f"increase({of(metric, *matchers)}[1h])"


def quantiles(histogram: str, *matchers: str, by: str = "") -> list[Query]:
    """Return the quantiles of a histogram: all of them, or the 99th by a label."""
    buckets = rate(f"{histogram}_bucket", *matchers)
    if by:
        inner = f"sum by ({by}, le) ({buckets})"
        return [(f"topk(20, histogram_quantile(0.99, {inner}))", f"{{{{{by}}}}}")]
    inner = f"sum by (le) ({buckets})"
    return [(f"histogram_quantile({q}, {inner})", name) for name, q in QUANTILES.items()]


def summed(metric: str, *matchers: str, by: str = "", each: str = "") -> str:
    """Return a gauge added up over shards: all, or by labels. ``each`` are its further labels.

    Every replica of a shard exposes it, so the largest of them counts.
    """
    of_shard = ", ".join(filter(None, ("shard", by, each)))
    largest = f"max by ({of_shard}) ({of(metric, *matchers)})"
    return f"sum by ({by}) ({largest})" if by else f"sum({largest})"


def by_group(metric: str, *matchers: str, each: str = "") -> str:
    """Return the 20 groups of which a gauge, added up over shards, is the largest."""
    return f"topk(20, {summed(metric, *matchers, by='consumer_group', each=each)})"


def by_pod(expression: str, function: str = "max") -> Query:
    """Return one series for each pod."""
    return f"{function} by (pod) ({expression})", "{{pod}}"


def levels(*bounds: tuple[float, str]) -> builders.ThresholdsConfig:
    """Return thresholds: good below the first bound."""
    steps = [models.Threshold(color=GOOD)]
    steps += [models.Threshold(value=bound, color=color) for bound, color in bounds]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def lines(
    title: str,
    unit: str,
    text: str,
    *queries: Query,
    stacked: bool = False,
    thresholds: builders.ThresholdsConfig | None = None,
) -> Panel:
    """Return a panel of lines. ``text`` says what they are, and what to do about a bad value.

    ``stacked`` adds them up; ``thresholds`` are drawn as lines too.
    """
    panel = timeseries.Panel().title(title).description(text).unit(unit).span(8).height(8)
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    if unit != "percentunit":
        panel.axis_soft_min(0)
    if stacked:
        panel.fill_opacity(20).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if thresholds is not None:
        style = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        panel.thresholds(thresholds).thresholds_style(style)
    return _with_queries(panel, queries)


def number(
    title: str,
    unit: str,
    text: str,
    expression: str,
    thresholds: builders.ThresholdsConfig,
    words: dict[str, str] | None = None,
) -> Panel:
    """Return a panel with the last value, coloured by ``thresholds``; ``words`` replace values."""
    panel = stat.Panel().title(title).description(text).unit(unit).span(4).height(4)
    panel.thresholds(thresholds).color_mode(BigValueColorMode.BACKGROUND)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if words:
        results = {value: models.ValueMappingResult(text=word) for value, word in words.items()}
        panel.mappings([models.ValueMap(options=results)])
    return _with_queries(panel, [(expression, title)])


def heat(title: str, unit: str, text: str, histogram: str) -> Panel:
    """Return a heat map of a histogram over time."""
    panel = heatmap.Panel().title(title).description(text).span(8).height(8)
    panel.y_axis(heatmap.YAxisConfig().unit(unit)).show_tooltip()
    panel.color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges"))
    expression = f"sum by (le) (increase({of(f'{histogram}_bucket')}[$__rate_interval]))"
    return _with_queries(panel, [(expression, "{{le}}")], PromQueryFormat.HEATMAP)


def _with_queries(
    panel: Panel,
    queries: Sequence[Query],
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> Panel:
    panel.datasource(SOURCE).interval(INTERVAL)
    for name, (expression, legend) in zip(ascii_uppercase, queries, strict=False):
        query = prometheus.Dataquery().ref_id(name).expr(expression).legend_format(legend)
        panel.with_target(query.format(form).range())
    return panel


def chosen(name: str, label: str, metric: str, matchers: str) -> builders.QueryVariable:
    """Return a variable with one value of a label of a metric."""
    query = f"label_values({metric}{{{matchers}}}, {label})"
    variable = builders.QueryVariable(name).label(name.capitalize()).query(query).datasource(SOURCE)
    variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.sort(models.VariableSort.NUMERICAL_ASC)


def several(name: str, metric: str, matchers: str) -> builders.QueryVariable:
    """Return a variable with values of the label of its name: all, series without the label
    included, unless some are chosen."""
    every = models.VariableOption(selected=True, text="All", value="$__all")
    variable = chosen(name, name, metric, matchers).multi(True).include_all(True)
    return variable.all_value(".*").current(every)
