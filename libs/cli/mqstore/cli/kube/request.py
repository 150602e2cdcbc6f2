"""``kubectl mqstore request``: one request to a service of the release, with the admin token."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import httpx
import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import exit_of, shard_of
from mqstore.cli.kube.kubectl import EXIT_UNREACHABLE, KubeError
from mqstore.cli.kube.release import COORDINATOR_PORT, QUERY_PORT, WRITER_PORT, Release

TIMEOUT_S: Final = 65.0
"""Timeout of a request: longer than the longest long poll."""


class Service(StrEnum):
    """The services of a release."""

    WRITER = "writer"
    QUERY = "query"
    COORDINATOR = "coordinator"


_PORTS: Final = {Service.WRITER: WRITER_PORT, Service.QUERY: QUERY_PORT}


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("request")(send)


def send(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="Path of the request, as /v1/store.")],
    service: Annotated[
        Service, typer.Option("--service", "-c", help="Service that gets the request.")
    ] = Service.WRITER,
    shard: Annotated[
        int, typer.Option("--shard", help="Shard of the writer or query service.", min=0)
    ] = 0,
    method: Annotated[
        str | None, typer.Option("--method", "-X", help="HTTP method. [default: GET, or POST]")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="Body, in JSON.")] = None,
) -> None:
    """Send a request with the admin token to a service, and print the reply.

    Exit code 0: success; 2: the request was refused; 3: the service does not reply.

    Examples:

    \b
        kubectl mqstore request /v1/store --shard 1
        kubectl mqstore request /v1/groups -c query
        kubectl mqstore request /v1/topics/orders -X PUT -d '{"queues": 8}'
    """
    verb = method or ("GET" if data is None else "POST")
    request = {"method": verb, "url": path, "content": data}
    raise exit_of(context, lambda release: _print_reply(release, service, shard, request))


def _print_reply(release: Release, service: Service, shard: int, request: dict[str, Any]) -> int:
    if not request["url"].startswith("/"):
        raise KubeError(f"{request['url']} is no path; name one as /v1/store")
    pod, port = _target(release, service, shard)
    headers = {"content-type": "application/json"} if request["content"] is not None else {}
    with release.http(pod, port, TIMEOUT_S) as http:
        try:
            reply = http.request(**request, headers=headers)
        except httpx.HTTPError as error:
            raise KubeError(f"{pod} does not reply ({error})", EXIT_UNREACHABLE) from error
    if not reply.is_success:
        raise KubeError(f"{request['url']} was refused ({reply.status_code}): {reply.text}")
    print(reply.text, end="" if reply.text.endswith("\n") else "\n")
    return EXIT_OK


def _target(release: Release, service: Service, shard: int) -> tuple[str, int]:
    if service is Service.COORDINATOR:
        return release.coordinator_pod(), COORDINATOR_PORT
    return shard_of(release, shard).name, _PORTS[service]
