"""``mqstore debug bundle``: the state of all services in one archive, without secrets or bodies.

Each part is fetched by itself: one that fails is named in ``errors.json``. No message is read, no
token is written, and addresses lose their credentials.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.access import USER_INFO
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.output import document
from mqstore.cli.session import DryRun, Session, service_command

if TYPE_CHECKING:
    from mqstore.client import Client

EVENTS_MAX: Final = 1000
METRICS_MAX: Final = 32 << 20
"""Bytes of one service's metrics."""
TIMEOUT_S: Final = 10.0
REMOVED: Final = "(removed)"
SECRET_FIELDS: Final = frozenset(
    {
        *("authorization", "body", "bodybase64", "credentials", "keys", "password", "properties"),
        *("secret", "token", "tokens", "uniqkey"),
    }
)
"""Names of fields, in lower case, whose values are removed wherever they are."""
_BEARER: Final = re.compile(r"(?i)\bbearer\s+[\w.~+/=-]+")

_OF_A_SHARD: Final[Mapping[str, Callable[[Client], Any]]] = {
    "store": lambda client: client.store(),
    "writes": lambda client: client.writes(),
    "recovery": lambda client: client.recovery(),
    "operations": lambda client: client.operations(),
    "segments": lambda client: client.segments(),
    "retention": lambda client: client.retention(),
    "delays": lambda client: client.delays(),
    "scrub": lambda client: client.scrub(),
    "replication": lambda client: client.replication(),
    "quarantine": lambda client: client.quarantine(),
    "index-rebuilds": lambda client: client.index_rebuilds(),
    "expiry-report": lambda client: client.expiry_report(),
    "backup-report": lambda client: client.backup_report(),
    "pins": lambda client: client.pins(),
    "archive": lambda client: client.archive(),
    "events": lambda client: list(_events(client)),
}
_OF_ALL: Final[Mapping[str, Callable[[Client], Any]]] = {
    "topics": lambda client: _pages(client.topics),
    "groups": lambda client: _pages(client.groups),
    "lags": lambda client: _pages(client.lags),
    "transactions": lambda client: client.transactions(),
}


@service_command
def bundle(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(help="New file. [default: mqstore-debug-TIME.tar.gz here]", metavar="FILE"),
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Write the state of all services to an archive, for a report of a problem.

    It has states, settings of topics and groups, lags, events and metrics: names of topics and
    groups, but no token, body, key or property of a message. Look at it before you send it. Exit
    code 1: a part could not be fetched, and errors.json says why; 3: no service replies.

    Examples:

    \b
        mqstore debug bundle
        mqstore debug bundle /tmp/report.tar.gz --context prod
        mqstore debug bundle --dry-run
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = file or Path(f"mqstore-debug-{now}.tar.gz")
    if path.exists():
        raise ValueError(f"{path} exists; name a new file")
    if dry_run:
        names = [*_OF_ALL, *_OF_A_SHARD, "health", "metrics"]
        session.out.done(f"would write {', '.join(names)} of {', '.join(_shown_urls(session))}")
        return EXIT_OK
    collected = Bundle(session)
    collected.collect(now)
    if not collected.replied:
        raise collected.failures[0]
    collected.write(path)
    errors = len(collected.errors)
    session.out.done(
        f"wrote {path}: {len(collected.parts)} parts, {errors} could not be fetched",
        {"file": str(path), "parts": list(collected.parts), "errors": collected.errors},
    )
    return EXIT_FINDINGS if errors else EXIT_OK


class Bundle:
    """The parts of one archive: redacted text by name."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._redact = redactor(filter(None, [session.access.token()]))
        self.parts: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.failures: list[Exception] = []
        self.replied = False

    def collect(self, now: str) -> None:
        """Fetch all parts."""
        from mqstore.client import Target

        self._add("about.json", partial(_about, self._session, now))
        for target in Target:
            self._fetch(f"{target.value}-health.json", partial(self._health, target))
        for target, url in zip(Target, self._session.access.urls, strict=True):
            self._fetch(f"{target.value}-metrics.txt", partial(self._metrics, url))
        client = self._session.client
        for name, part in _OF_ALL.items():
            self._fetch(f"{name}.json", partial(part, client))
        for number, of_shard in self._shards().items():
            for name, part in _OF_A_SHARD.items():
                self._fetch(f"shard-{number}/{name}.json", partial(part, of_shard))

    def write(self, path: Path) -> None:
        """Write the archive, readable by its owner only. It gets its name when it is complete."""
        part = path.with_name(f".{path.name}.{os.getpid()}")
        errors = json.dumps(self.errors, indent=1)
        try:
            opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with (
                os.fdopen(opened, "wb") as out,
                tarfile.open(fileobj=out, mode="w:gz") as archive,
            ):
                for name, text in {**self.parts, "errors.json": self._redact(errors)}.items():
                    _add_file(archive, name, text)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)

    def _health(self, target: Any) -> Any:
        return self._session.client.health(target)

    def _metrics(self, url: str) -> str:
        import httpx

        tls = self._session.access.tls()
        reply = httpx.get(f"{url.rstrip('/')}/metrics", verify=tls or True, timeout=TIMEOUT_S)
        return reply.raise_for_status().text[:METRICS_MAX]

    def _shards(self) -> dict[int, Client]:
        """A client for each shard, as far as they are known."""
        try:
            own = self._session.client.store()
        except Exception as error:
            self._fail("shards", error)
            return {}
        if self._session.access.shard is not None or not own.shards:
            return {own.shard: self._session.client}
        clients = {}
        for each in own.shards:
            client = replace(self._session.access, shard=each.shard).client()
            self._session.opened.append(client)
            clients[each.shard] = client
        return clients

    def _fetch(self, name: str, part: Callable[[], Any]) -> None:
        try:
            self._add(name, part)
        except Exception as error:  # the other parts are worth having
            self._fail(name, error)
        else:
            self.replied = True

    def _fail(self, name: str, error: Exception) -> None:
        self.failures.append(error)
        self.errors[name] = str(error) or type(error).__name__

    def _add(self, name: str, part: Callable[[], Any]) -> None:
        found = part()
        text = found if isinstance(found, str) else json.dumps(redacted(_plain(found)), indent=1)
        self.parts[name] = self._redact(text)


def redacted(value: Any) -> Any:
    """A plain value without the values of SECRET_FIELDS."""
    if isinstance(value, Mapping):
        return {
            name: REMOVED if str(name).lower() in SECRET_FIELDS and each else redacted(each)
            for name, each in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [redacted(each) for each in value]
    return value


def _pages(load: Callable[..., Any]) -> list[Any]:
    from mqstore.client import every_page  # slow to import

    return list(every_page(load))


def redactor(secrets: Iterator[str] | Sequence[str]) -> Callable[[str], str]:
    """A function that removes secrets, bearer tokens and credentials in URLs from text."""
    known = sorted(secrets, key=len, reverse=True)

    def redact(text: str) -> str:
        """The text without them."""
        for each in known:
            text = text.replace(each, REMOVED)
        return USER_INFO.sub(f"{REMOVED}@", _BEARER.sub(f"Bearer {REMOVED}", text))

    return redact


def _events(client: Client) -> Iterator[dict[str, Any]]:
    for number, each in enumerate(client.events(seconds=0)):
        if number == EVENTS_MAX:
            return
        yield {"id": each.id, "kind": each.kind, "atMs": each.at_ms, **each.data}


def _plain(found: Any) -> Any:
    return [document(each) for each in found] if isinstance(found, list) else document(found)


def _about(session: Session, now: str) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "made": now,
        "version": version("mqstore-cli"),
        "python": sys.version,
        "platform": platform.platform(),
        "addresses": _shown_urls(session),
        "variables": sorted(name for name in os.environ if name.upper().startswith("MQSTORE_")),
    }


def _shown_urls(session: Session) -> list[str]:
    return [USER_INFO.sub(f"{REMOVED}@", url) for url in session.access.urls]


def _add_file(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8", "replace")
    member = tarfile.TarInfo(f"mqstore-debug/{name}")
    member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
    archive.addfile(member, io.BytesIO(content))
