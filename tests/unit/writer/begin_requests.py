"""Requests to begin transactions, plain ones and others, as Hypothesis makes them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.unit.writer.json_requests import messages

TOPIC = "orders"
GROUPS = ["g", "a%|_-9", "two words", "", "größe", "g" * 121, 7]


@st.composite
def begins(draw: st.DrawFn) -> bytes:
    """The body of a request."""
    fields: dict[str, Any] = {
        "producerGroup": draw(st.sampled_from(GROUPS)),
        "topic": draw(st.sampled_from([TOPIC, TOPIC, TOPIC, "unknown", "", None])),
        "messages": draw(st.lists(messages(), min_size=1, max_size=2)),
    }
    more = {"checkImmunitySeconds": 9, "shard": 0, "unknown": 1}
    fields |= {name: more[name] for name in draw(st.sets(st.sampled_from([*more]), max_size=1))}
    order = draw(st.permutations([*fields]))
    text = json.dumps(
        {name: fields[name] for name in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
    )
    return text.encode(errors="surrogatepass")
