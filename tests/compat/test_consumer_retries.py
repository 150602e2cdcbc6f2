"""Messages that a real consumer sent back to a real broker are shown as one history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, MessageCopy, Trace
from tests.compat import ours
from tests.compat.referee import Referee
from tests.compat.scripts import Script
from tests.compat.versions import mainly
from tests.services.service_processes import query

pytestmark = [pytest.mark.referee, pytest.mark.slow]

GROUP, TOPIC = "g", "orders"
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
TRIES = 2
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": "1s 1s 1s 1s",
}
REQUEST: dict[str, Any] = {
    "config": SIZES,
    "group": GROUP,
    "topic": TOPIC,
    "sends": [{"body": body, "keys": f"k-{body}"} for body in ("good", "late", "bad")],
    "fails": {"late": 1, "bad": 1 + TRIES},
    "tries": TRIES,
    "consumed": 1 + 2 + 1 + TRIES,
    "deadLetters": 1,
}


def _summary_of(copies: tuple[MessageCopy, ...]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.topic, each.state) for each in copies]


MESSAGE = ("message", TOPIC, "stored")
TRIED = [("delayed", "SCHEDULE_TOPIC_XXXX", "delivered"), ("retry", RETRY, "stored")]
HISTORIES = {
    "good": [MESSAGE],
    "late": [MESSAGE, *TRIED],
    "bad": [MESSAGE, *TRIED * TRIES, ("dead-letter", DLQ, "stored")],
}


@mainly("5.4.0")
def test_retries_and_dead_letters_are_one_messages_history(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    lines = referee.consume(store, REQUEST)
    sent = {line["body"]: line for line in lines if line["t"] == "sent"}
    ours.append(Script(SIZES, ()), store, referee.format)
    with query(store) as process, Client(process.url, process.url) as client:
        for body, line in sent.items():
            trace = client.trace(line["uniqKey"], topic=TOPIC).trace
            _assert_history(trace, line, HISTORIES[body])
            assert client.traces(TOPIC, f"k-{body}").traces == (trace,)
            for copy in trace.copies:
                assert client.trace(copy.offset_msg_id).trace == trace
        assert client.lag(GROUP).dead_letters == 1


def _assert_history(
    trace: Trace, sent: dict[str, Any], history: list[tuple[str, str, str]]
) -> None:
    assert _summary_of(trace.copies) == history
    assert trace.complete
    first, *rest = trace.copies
    assert (first.offset_msg_id, first.origin_message_id) == (sent["offsetMsgId"], None)
    assert {each.origin_message_id for each in rest} <= {sent["offsetMsgId"]}
    assert {each.group for each in rest} <= {GROUP}
    times = [each.reconsume_times for each in trace.copies if each.kind in ("message", "retry")]
    assert times == list(range(len(times)))
    for each in trace.copies:
        if each.kind in ("message", "retry"):
            assert [(of.group, of.consumed) for of in each.groups] == [(GROUP, True)]
