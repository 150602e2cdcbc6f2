"""``kubectl mqstore debug-bundle``: the state of a release in one archive, as ``mqstore debug``."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.access import Access, Given
from mqstore.cli.debug_bundle import Bundle
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.kube.commands import exit_of
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import Release
from mqstore.cli.output import Format, Output
from mqstore.cli.session import Session


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("debug-bundle")(debug_bundle)


def debug_bundle(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="New file. [default: mqstore-debug-TIME.tar.gz here]", metavar="FILE"),
    ] = None,
) -> None:
    """Write the state of all services of the release to an archive, for a report of a problem.

    It has what `mqstore debug bundle` has: no token, body, key or property of a message. Exit code
    1: a part could not be fetched, and errors.json says why; 2: refused; 3: no shard answers.

    Examples:

    \b
        kubectl mqstore debug-bundle
        kubectl mqstore debug-bundle /tmp/report.tar.gz
    """
    raise exit_of(context, lambda release: _write(release, file))


def _write(release: Release, file: Path | None) -> int:
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = file or Path(f"mqstore-debug-{now}.tar.gz")
    if path.exists():
        raise KubeError(f"{path} exists; name a new file")
    with _session(release) as session:
        bundle = Bundle(session)
        bundle.collect(now)
        session.close()
    if not bundle.replied:
        raise KubeError(f"no service of {release.name} replies: {bundle.failures[0]}")
    bundle.write(path)
    errors = len(bundle.errors)
    print(f"wrote {path}: {len(bundle.parts)} parts, {errors} could not be fetched")
    return EXIT_FINDINGS if errors else EXIT_OK


@dataclass(frozen=True)
class _ForwardedAccess(Access):
    """Access through forwarded ports, whose certificates name other hosts."""

    context: ssl.SSLContext | None = None

    def tls(self) -> ssl.SSLContext | None:
        """The context of forwarded connections; None without TLS."""
        return self.context


@contextmanager
def _session(release: Release) -> Iterator[Session]:
    """A session with the first shard that has a pod, and with a coordinator if one is ready."""
    pods = [each.name for each in release.shards() if each.pod is not None]
    if not pods:
        raise KubeError(f"no shard of {release.name} has a pod; see kubectl mqstore status")
    with ExitStack() as stack:
        writer, query, tls = stack.enter_context(release.forwarded_shard(pods[0]))
        try:
            coordinator = stack.enter_context(release.forwarded_coordinator())
        except KubeError:
            coordinator = None  # errors.json has its parts
        given = Given(writer, query, coordinator, release.admin_token)
        yield Session(_ForwardedAccess(given, context=tls), Output(Format.TABLE))
