"""Typed client of the mqstore REST API, blocking (``Client``) and asyncio (``AsyncClient``)."""

from mqstore.client.calls import Target
from mqstore.client.client import QUERY_URL, WRITER_URL, AsyncClient, Client
from mqstore.client.errors import ClientError, ProblemError, Unreachable
from mqstore.client.models import (
    Health,
    KeyAnswer,
    Message,
    NewMessage,
    Placed,
    Produced,
    Pull,
    Queue,
    QueueOffset,
    Queues,
    Recovery,
    Segment,
    Segments,
    Store,
    Topic,
    Topics,
)

__all__ = [
    "QUERY_URL",
    "WRITER_URL",
    "AsyncClient",
    "Client",
    "ClientError",
    "Health",
    "KeyAnswer",
    "Message",
    "NewMessage",
    "Placed",
    "ProblemError",
    "Produced",
    "Pull",
    "Queue",
    "QueueOffset",
    "Queues",
    "Recovery",
    "Segment",
    "Segments",
    "Store",
    "Target",
    "Topic",
    "Topics",
    "Unreachable",
]
