"""Requests about the progress of consumer groups, as values that both clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, given

if TYPE_CHECKING:
    from mqstore.wire.findings import Findings
    from mqstore.wire.lags import GroupLag, GroupLags
    from mqstore.wire.traces import MessageTrace, Traces


def trace(message_id: str, *, topic: str | None = None) -> Call[MessageTrace]:
    """Trace a message: return its copies in the store, in order. Ids are as for ``message``."""
    return call(contract.traces.MESSAGE_TRACE, at={"id": message_id}, params=given(topic=topic))


def traces(
    topic: str, key: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Traces]:
    """Trace the messages of a topic with a key, newest first."""
    params = given(key=key, limit=limit, cursor=cursor)
    return call(contract.traces.TRACES, at={"topic": topic}, params=params)


def findings() -> Call[Findings]:
    """Return the present findings, by the conditions of the alerts; none: all is well."""
    return call(contract.findings.FINDINGS)


def lags(
    *, topic: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[GroupLags]:
    """Return the lags of consumer groups, by name; with ``topic``, of the groups of that topic."""
    params = given(topic=topic, limit=limit, cursor=cursor)
    return call(contract.lags.LAGS, params=params)


def lag(group: str, *, topic: str | None = None) -> Call[GroupLag]:
    """Return the lag of a group, by topic and queue."""
    return call(contract.lags.LAG, at={"group": group}, params=given(topic=topic))


class LagCalls:
    """Methods of both clients."""

    trace = sends(trace)
    traces = sends(traces)
    lags = sends(lags)
    findings = sends(findings)
    lag = sends(lag)
