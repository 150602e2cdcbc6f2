"""Requests by which RocketMQ's slaves copy topics, groups and offsets, over the remoting protocol.

Source: BrokerOuterAPI, AdminBrokerProcessor and SlaveSynchronize of 4.9.7. A slave learns its
master's address from a name server; a slave whose ``namesrvAddr`` is this port learns it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mqstore.service.remoting import (
    SYSTEM_ERROR,
    Command,
    CommandRefused,
    Connection,
    Handler,
    RequestCode,
    Response,
)
from mqstore.storage import MessageStore
from mqstore.storage.reads import LogStream


def handlers(store: MessageStore, port: int, ha_port: int) -> dict[int, Handler]:
    """Return the handlers by request code. The ports are those that slaves are to use."""
    texts = store.table_texts
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: _sends_bounds(store.log_stream),
        RequestCode.GET_ALL_TOPIC_CONFIG: _sends(texts.topics),
        RequestCode.GET_ALL_CONSUMER_OFFSET: _sends(texts.consumer_offsets),
        RequestCode.GET_ALL_DELAY_OFFSET: _sends(texts.delay_offsets),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _sends(texts.groups),
        RequestCode.REGISTER_BROKER: _registers(port, ha_port),
        RequestCode.UNREGISTER_BROKER: _unregister,
    }


def _sends(text: Callable[[], str]) -> Handler:
    """Return a handler whose response is a table; printing a long one takes a thread."""

    async def handle(_: Command, __: Connection) -> Response:
        return Response(body=(await asyncio.to_thread(text)).encode())

    return handle


def _sends_bounds(stream: LogStream) -> Handler:
    """Return a handler whose response has the log's bounds, of all that a broker reports here:
    the HA protocol does not name them."""

    async def handle(_: Command, __: Connection) -> Response:
        bounds = {"commitLogMinOffset": str(stream.start), "commitLogMaxOffset": str(stream.end)}
        return Response(body=msgspec.json.encode({"table": bounds}))

    return handle


def _registers(port: int, ha_port: int) -> Handler:
    """Return a handler that sends a slave the addresses of its master, as a name server does."""

    async def handle(request: Command, connection: Connection) -> Response:
        if request.ext_fields.get("brokerId", "0") == "0":
            raise CommandRefused(
                SYSTEM_ERROR,
                "mqstore is a name server for slaves of this shard only, whose brokerId is not 0",
            )
        host = connection.local
        addresses = {"masterAddr": f"{host}:{port}", "haServerAddr": f"{host}:{ha_port}"}
        return Response(ext_fields=addresses)

    return handle


async def _unregister(_: Command, __: Connection) -> Response:
    """Do nothing: registrations are not kept."""
    return Response()
