"""Produce requests in JSON, plain ones and others, as Hypothesis makes them."""

from __future__ import annotations

import base64
import json
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from mqstore.wire.produce import NewMessage

names = st.sampled_from(
    ["colour", "a b", "KEYS", "TAGS", "DELAY", "__SHARDINGKEY", "", "größe", "\x7f", "n1", "n2"]
)
texts = st.one_of(
    st.text(max_size=12), st.sampled_from(["plain", "two words", "\x01", "\x02", "é"])
)
numbers = st.integers(-(1 << 33), 1 << 33) | st.sampled_from([0, 1, -1, 1.0, True, None, "1"])


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    body = draw(st.binary(max_size=20) | st.text(max_size=20))
    content = body.encode(errors="surrogatepass") if isinstance(body, str) else body
    fields: dict[str, Any] = {
        "body": body if isinstance(body, str) else None,
        "bodyBase64": base64.b64encode(content).decode(),
        "tags": draw(texts | st.none()),
        "keys": draw(st.lists(texts, max_size=4)),
        "properties": draw(st.dictionaries(names, texts, max_size=4)),
        "queueId": draw(numbers),
        "orderingKey": draw(texts | st.none()),
        "flag": draw(numbers),
        "delayLevel": draw(st.sampled_from([0, 0, 1, 9])),
        "uniqKey": draw(texts | st.none()),
        "crc32c": draw(st.sampled_from([crc32c(content), 7])),
        "unknown": 1,
    }
    order = draw(st.permutations([*fields]))
    kept = draw(st.sets(st.sampled_from([*fields]), max_size=6))
    return {name: fields[name] for name in order if name in kept}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    fields: dict[str, Any] = {"messages": draw(st.lists(messages(), max_size=4))}
    if draw(st.integers(0, 3)) == 0:
        for each in fields["messages"]:
            each["orderingKey"] = "order-1"
    durability = draw(st.sampled_from(["sync", "async", "replicated", "", None, "never"]))
    if durability != "never":
        fields["durability"] = durability
    order = draw(st.permutations([*fields]))
    text = json.dumps(
        {name: fields[name] for name in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
    )
    return text.encode(errors="surrogatepass")


def properties_of(message: NewMessage, key: str) -> dict[str, str]:
    """The properties of a message without a delay, in their order."""
    found = dict(message.properties)
    if message.keys:
        found["KEYS"] = " ".join(message.keys)
    found["UNIQ_KEY"] = key
    if message.tags:
        found["TAGS"] = message.tags
    if message.ordering_key:
        found["__SHARDINGKEY"] = message.ordering_key
    return found
