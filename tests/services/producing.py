"""Messages that tests of consumers begin with."""

from __future__ import annotations

from mqstore.client import Client, NewMessage


def produce(client: Client, topic: str, count: int, *, tags: str | None = None) -> set[str]:
    """Create a topic of four queues where it is new, store messages, and return their bodies."""
    client.create_topic(topic, queues=4)
    sent = [f"{topic} {tags} {number}" for number in range(count)]
    client.produce(topic, [NewMessage(body=each, tags=tags) for each in sent])
    return set(sent)
