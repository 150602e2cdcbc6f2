"""Dead letters that a real broker made are resent over REST, and reach its consumers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.client import LetterStatus
from tests.compat.referee import Line, Referee
from tests.compat.test_consumers_in_turn import GROUP, OURS, SIZES, TOPIC, stop
from tests.compat.versions import mainly
from tests.services.service_processes import service_pair

pytestmark = [pytest.mark.referee, pytest.mark.slow]

TRIES = 1


def consume(
    referee: Referee, store: Path, sends: list[str], *, consumed: int, dead: int
) -> list[Line]:
    """Run a broker with a push consumer of the group, which rejects each message that is sent."""
    request: dict[str, Any] = {
        "config": SIZES,
        "group": GROUP,
        "topic": TOPIC,
        "sends": [{"body": body, "keys": f"k-{body}"} for body in sends],
        "fails": dict.fromkeys(sends, TRIES + 1),
        "tries": TRIES,
        "consumed": consumed,
        "deadLetters": dead,
    }
    return referee.consume(store, request)


@mainly("4.9.7")
def test_a_broker_delivers_the_dead_letters_that_were_resent(
    referee: Referee, tmp_path: Path
) -> None:
    store, sends = tmp_path / "store", ["a", "b", "c"]
    lines = consume(referee, store, sends, consumed=2 * len(sends), dead=len(sends))
    first = {line["body"]: line["offsetMsgId"] for line in lines if line["t"] == "sent"}

    with service_pair(store, **OURS) as pair, pair.client() as client:
        letters = {each.body or "": each for each in client.dead_letters(GROUP).messages}
        assert {body: each.origin_message_id for body, each in letters.items()} == first
        assert {each.source_topic for each in letters.values()} == {TOPIC}
        assert {each.delivery_attempts for each in letters.values()} == {TRIES + 1}
        for body, to in (("a", "topic"), ("b", "group")):
            (done,) = client.resend_dead_letters(GROUP, [letters[body]], to=to).results  # type: ignore[arg-type]  # one of two literals
            assert done.status is LetterStatus.DONE
        assert client.purge_dead_letters(GROUP).purged == 1
        stop(pair.writer)

    lines = consume(referee, store, [], consumed=2, dead=0)
    again = {line["body"]: line for line in lines if line["t"] == "consumed"}
    assert again.keys() == {"a", "b"}
    assert {line["topic"] for line in again.values()} == {TOPIC}
    assert {line["reconsumeTimes"] for line in again.values()} == {0}
    assert {body: line["origin"] for body, line in again.items()} == {
        body: first[body] for body in ("a", "b")
    }
