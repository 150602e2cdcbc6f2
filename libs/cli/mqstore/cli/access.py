"""Addresses and credentials of a command's requests: from options, a context or the environment.

An option has precedence, then the context of ``--context``, then environment variables, then the
context in use, then the defaults. Credentials go together: those of the first that has some.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mqstore.cli.contexts import Context, contexts_path, load
from mqstore.wire.environment import (
    CA_VARIABLE,
    CONTEXT_VARIABLE,
    COORDINATOR_URL,
    COORDINATOR_URL_VARIABLE,
    QUERY_URL,
    QUERY_URL_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    WRITER_URL,
    WRITER_URL_VARIABLE,
)

if TYPE_CHECKING:
    from mqstore.client import Client

# httpx imports its own command, with click, rich and pygments, unless that module is missing.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
# pydantic searches the metadata of every installed package for plugins, unless they are disabled.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]+@")
"""Credentials in an address."""
_TOKEN_FIELDS: Final = ("token", "token_file", "token_env")


@dataclass(frozen=True, slots=True)
class Given:
    """Addresses and credentials from one source; None is not given."""

    writer_url: str | None = None
    query_url: str | None = None
    coordinator_url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    token_env: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The addresses and credentials that a command uses."""

    given: Given
    shard: int | None = None
    timeout_s: float | None = None
    """None: the client's default."""

    @property
    def urls(self) -> tuple[str, str, str]:
        """The addresses of store-writer, query and coordinator."""
        found = self.given
        return (
            found.writer_url or WRITER_URL,
            found.query_url or QUERY_URL,
            found.coordinator_url or COORDINATOR_URL,
        )

    def client(self) -> Client:
        """A client of the services. Raises ValueError for an address, a token or a CA bundle that
        is unusable."""
        from mqstore.client import Client  # slow to import
        from mqstore.client.base_client import TIMEOUT_S

        writer_url, query_url, coordinator_url = map(check_address, self.urls)
        token, tls = self.token(), self.tls()
        return Client(
            writer_url,
            query_url,
            coordinator_url=coordinator_url,
            token=token,
            tls=tls,
            shard=self.shard,
            timeout_s=TIMEOUT_S if self.timeout_s is None else self.timeout_s,
        )

    def tls(self) -> ssl.SSLContext | None:
        """The context of the CA bundle; None without one. Raises ValueError."""
        from mqstore.client import make_tls_context

        try:
            return None if self.given.ca is None else make_tls_context(self.given.ca)
        except OSError as error:
            raise ValueError(f"--ca {error}") from error

    def token(self) -> str | None:
        """The token; None without one. Raises ValueError, which does not show it."""
        found = self._token()
        if found is not None and not (found.isascii() and found.isprintable()):
            raise ValueError("the token has characters that no token has; give it as it was made")
        return found

    def _token(self) -> str | None:
        if self.given.token is not None:
            return self.given.token
        if self.given.token_env is not None:
            found = os.environ.get(self.given.token_env)
            if not found:
                raise ValueError(
                    f"the variable {self.given.token_env} of the context is not set; put the token"
                    " into it, or change the context"
                )
            return found
        return None if self.given.token_file is None else _token_in(Path(self.given.token_file))


def check_address(url: str) -> str:
    """Return the address of a service. Raises ValueError for anything else."""
    try:
        found = urlsplit(url)
        is_address = found.scheme in ("http", "https") and found.hostname and found.port != 0
    except ValueError:  # no number, or too large a one, as the port
        is_address = False
    if not is_address:
        raise ValueError(f"{url!r} is no address of a service; write it as http://HOST:PORT")
    return url


def find(
    options: Given, context: str | None, environment: Mapping[str, str] | None = None
) -> Given:
    """Join the sources of addresses and credentials. ``context`` is that of the option,
    ``environment`` by default that of the process.

    Raises ValueError for an unknown context, and OSError if the contexts cannot be read.
    """
    environment = os.environ if environment is None else environment
    sources = [options, _variables(environment)]
    contexts = load(contexts_path(environment))
    if context is not None:
        sources.insert(1, _of_context(contexts.get(context)))
    else:
        name = environment.get(CONTEXT_VARIABLE) or contexts.current
        if name is not None:
            sources.append(_of_context(contexts.get(name)))
    joined = {
        each.name: next(
            (value for source in sources if (value := getattr(source, each.name)) is not None), None
        )
        for each in fields(Given)
        if each.name not in _TOKEN_FIELDS
    }
    tokens = (
        {name: value for name in _TOKEN_FIELDS if (value := getattr(source, name)) is not None}
        for source in sources
    )
    return Given(**joined, **next(filter(None, tokens), {}))


def _variables(environment: Mapping[str, str]) -> Given:
    return Given(
        environment.get(WRITER_URL_VARIABLE) or None,
        environment.get(QUERY_URL_VARIABLE) or None,
        environment.get(COORDINATOR_URL_VARIABLE) or None,
        token=environment.get(TOKEN_VARIABLE) or None,
        token_file=environment.get(TOKEN_FILE_VARIABLE) or None,
        ca=environment.get(CA_VARIABLE) or None,
    )


def _of_context(found: Context) -> Given:
    names = (each.name for each in fields(Context))
    return Given(**{name: getattr(found, name) for name in names})


def _token_in(path: Path) -> str:
    from mqstore.client.environment import read_token

    try:
        return read_token(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(
            f"--token-file {path} cannot be read ({why}); name a file with a token"
        ) from error
    except ValueError as error:
        raise ValueError(f"--token-file {error}") from error
