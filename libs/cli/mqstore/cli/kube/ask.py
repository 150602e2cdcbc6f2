"""``kubectl mqstore ask``: one request to a service of the release, with the admin token."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import httpx
import typer

from mqstore.cli.ending import EXIT_FINE
from mqstore.cli.kube.commands import ended, shard_of
from mqstore.cli.kube.kubectl import EXIT_UNREACHABLE, KubeError
from mqstore.cli.kube.release import COORDINATOR_PORT, QUERY_PORT, WRITER_PORT, Release

TIMEOUT_S: Final = 65.0
"""Longer than the longest poll."""


class Service(StrEnum):
    """Which of them."""

    WRITER = "writer"
    QUERY = "query"
    COORDINATOR = "coordinator"


_PORTS: Final = {Service.WRITER: WRITER_PORT, Service.QUERY: QUERY_PORT}


def add(app: typer.Typer) -> None:
    app.command("ask")(ask)


def ask(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="For instance /v1/store.")],
    service: Annotated[
        Service, typer.Option("--service", "-c", help="Who is asked.")
    ] = Service.WRITER,
    shard: Annotated[int, typer.Option("--shard", help="Whose writer or query.", min=0)] = 0,
    method: Annotated[str | None, typer.Option("--method", "-X", help="As of curl.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A body in JSON.")] = None,
) -> None:
    """Send a request to a service, with the admin token, and print its answer.

    Exit code 0: it was answered; 2: refused, by the service or before; 3: nobody answers.
    """
    verb = method or ("GET" if data is None else "POST")
    asked = {"method": verb, "url": path, "content": data}
    raise ended(context, lambda release: _ask(release, service, shard, asked))


def _ask(release: Release, service: Service, shard: int, asked: dict[str, Any]) -> int:
    if not asked["url"].startswith("/"):
        raise KubeError(f"{asked['url']} is no path; name one as /v1/store")
    pod, port = _target(release, service, shard)
    headers = {"content-type": "application/json"} if asked["content"] is not None else {}
    with release.http(pod, port, TIMEOUT_S) as http:
        try:
            answer = http.request(**asked, headers=headers)
        except httpx.HTTPError as error:
            raise KubeError(f"{pod} does not answer ({error})", EXIT_UNREACHABLE) from error
    if not answer.is_success:
        raise KubeError(f"{asked['url']} was refused ({answer.status_code}): {answer.text}")
    print(answer.text, end="" if answer.text.endswith("\n") else "\n")
    return EXIT_FINE


def _target(release: Release, service: Service, shard: int) -> tuple[str, int]:
    if service is Service.COORDINATOR:
        return release.coordinator_pod(), COORDINATOR_PORT
    return shard_of(release, shard).name, _PORTS[service]
