"""Bearer tokens with roles. A service on loopback needs none; one on a network does not start
without them."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from mqstore.service import logs, problems
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.problems import Problem
from mqstore.service.settings import Tokens
from mqstore.wire.operation import Role

log = logs.get(__name__)


_INCLUDED_ROLES: Final = {
    Role.PRODUCE: frozenset({Role.PRODUCE}),
    Role.CONSUME: frozenset({Role.CONSUME}),
    Role.ADMIN: frozenset({Role.PRODUCE, Role.CONSUME, Role.ADMIN}),
    Role.SYSTEM: frozenset(Role),
}
_SCHEME: Final = b"bearer "
RELOAD_INTERVAL_S: Final = 1.0
"""Longest time until a removed or new token takes effect."""


class Authenticator:
    """Decides whether a request's headers allow a role. Used on the event loop only."""

    def __init__(
        self, read: Callable[[], Tokens], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the tokens. ``read`` is called again, at most once in RELOAD_INTERVAL_S.

        Raises the error of the first call.
        """
        self._read = read
        self._clock = clock
        self._given = read()
        self._tokens = _listed(self._given)
        self._generation = 0
        self._reread_at = clock() + RELOAD_INTERVAL_S

    @property
    def generation(self) -> int:
        """Number that changes with the tokens: results of earlier checks are then invalid."""
        if self._clock() >= self._reread_at:
            self._reload_if_changed()
        return self._generation

    @property
    def enabled(self) -> bool:
        """Whether tokens are configured."""
        return bool(self._tokens)

    def _reload_if_changed(self) -> None:
        """Read the tokens again; keep the old ones if the new ones are invalid or none are left."""
        self._reread_at = self._clock() + RELOAD_INTERVAL_S
        try:
            given = self._read()
        except ConfigurationError as error:
            log.error("changed tokens are invalid; the old ones stay in use", error=str(error))
            return
        if given == self._given:
            return
        if not given:
            log.error("all tokens were removed; the old ones stay valid until a restart")
            return
        self._given, self._tokens = given, _listed(given)
        self._generation += 1
        log.info("tokens read again", roles=sorted(given))

    def check(self, headers: list[tuple[bytes, bytes]], needed: Role | None) -> None:
        """Raise Problem (401, 403, 421) unless the headers allow ``needed``; None: any role."""
        roles = self.roles(headers)
        if roles is None or needed is None or needed in included_roles(roles):
            return
        held = ", ".join(sorted(role.value for role in roles))
        raise Problem(
            problems.FORBIDDEN, f"this needs the role {needed.value}; the token has {held}"
        )

    def allows(self, headers: list[tuple[bytes, bytes]], needed: Role | None) -> bool:
        """Whether ``check`` passes; for a reply that lasts, whose token may have been removed."""
        try:
            self.check(headers, needed)
        except Problem:
            return False
        return True

    def roles(self, headers: list[tuple[bytes, bytes]]) -> set[Role] | None:
        """Return the roles of a request's token; None where no token is needed.

        Raises Problem (401, 421).
        """
        if self._clock() >= self._reread_at:
            self._reload_if_changed()
        if not self._tokens:
            _check_host(headers)
            return None
        roles = self._roles(_header(headers, b"authorization"))
        if not roles:
            raise Problem(
                problems.UNAUTHENTICATED,
                "this service needs a token: send `Authorization: Bearer TOKEN`",
                headers={"www-authenticate": "Bearer"},
            )
        return roles

    def is_system(self, token: bytes) -> bool:
        """Whether a token is one of role system."""
        known = [each for role, each in self._tokens if role is Role.SYSTEM]
        return any(hmac.compare_digest(each, token) for each in known)

    def _roles(self, authorization: bytes) -> set[Role]:
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return set()
        given = authorization[len(_SCHEME) :].strip()
        return {role for role, token in self._tokens if hmac.compare_digest(token, given)}


class OwnToken:
    """The ``system`` token that this process sends to other services. Thread-safe.

    Its file is read again as those of ``Authenticator``.
    """

    def __init__(
        self, read: Callable[[], Tokens], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the token; the arguments are as for ``Authenticator``."""
        self._read = read
        self._clock = clock
        self._token = self._first()
        self._reread_at = clock() + RELOAD_INTERVAL_S

    def __call__(self) -> str | None:
        """Return the token; None if none is configured."""
        if self._clock() >= self._reread_at:
            self._reread_at = self._clock() + RELOAD_INTERVAL_S
            with suppress(ConfigurationError):  # the authenticator logs it
                self._token = self._first() or self._token
        return self._token

    def _first(self) -> str | None:
        return next(iter(self._read().get(Role.SYSTEM, ())), None)


def included_roles(roles: Iterable[Role]) -> frozenset[Role]:
    """Return the roles whose operations a token with ``roles`` allows."""
    return frozenset().union(*(_INCLUDED_ROLES[role] for role in roles))


def _listed(tokens: Tokens) -> list[tuple[Role, bytes]]:
    return [(Role(role), token.encode()) for role, each in tokens.items() for token in each]


def check_binding(host: str, tokens: Tokens) -> None:
    """Check that a service reachable over a network has tokens. Raises ConfigurationError."""
    if tokens or is_loopback(host):
        return
    raise ConfigurationError(
        f"listening on {host} needs tokens: set MQSTORE_TOKENS_DIR or MQSTORE_TOKEN_ADMIN "
        "(and _PRODUCE, _CONSUME, _SYSTEM), or listen on 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is ``localhost`` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host(headers: list[tuple[bytes, bytes]]) -> None:
    """Reject host names that a web page could have resolved to loopback (DNS rebinding)."""
    host = _header(headers, b"host")
    if not _names_an_address(host):
        shown = host.decode("latin-1")[:100]
        raise Problem(
            problems.MISDIRECTED,
            f"without tokens only localhost and addresses are answered, not host {shown!r}",
        )


@lru_cache(maxsize=256)
def _names_an_address(host: bytes) -> bool:
    name = host[1:].partition(b"]")[0] if host[:1] == b"[" else host.partition(b":")[0]
    if name in (b"", b"localhost"):
        return True
    try:
        ipaddress.ip_address(name.decode("latin-1"))
    except ValueError:
        return False
    return True


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes:
    for key, value in headers:
        if key == name:
            return value
    return b""
