from __future__ import annotations

import itertools
from functools import cached_property

import pytest

from mqstore.service import problems
from mqstore.service.auth import RELOAD_INTERVAL_S, Authenticator, OwnToken, check_binding
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.problems import Problem
from mqstore.service.settings import Tokens
from mqstore.wire.operation import Role

TOKENS: Tokens = {role.value: (f"{role.value}-token-of-enough-length",) for role in Role}
OLD, NEW = "the-old-token-of-a-role", "the-new-token-of-a-role"


def _authenticator(tokens: Tokens) -> Authenticator:
    return Authenticator(lambda: tokens)


def _headers(token: str | None = None, host: str = "localhost") -> list[tuple[bytes, bytes]]:
    headers = [(b"host", host.encode())]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    return headers


@pytest.mark.parametrize(
    ("role", "granted"),
    [
        (Role.PRODUCE, {Role.PRODUCE}),
        (Role.CONSUME, {Role.CONSUME}),
        (Role.ADMIN, {Role.PRODUCE, Role.CONSUME, Role.ADMIN}),
        (Role.SYSTEM, set(Role)),
    ],
)
def test_each_role_may_do_what_it_is_for(role: Role, granted: set[Role]) -> None:
    auth = _authenticator(TOKENS)
    allowed = set()
    for needed in Role:
        try:
            auth.check(_headers(TOKENS[role.value][0]), needed)
        except Problem as problem:
            assert problem.kind is problems.FORBIDDEN
        else:
            allowed.add(needed)
    assert allowed == granted


@pytest.mark.parametrize("token", [None, "wrong", ""])
def test_without_a_valid_token_it_is_401(token: str | None) -> None:
    with pytest.raises(Problem) as caught:
        _authenticator(TOKENS).check(_headers(token), Role.PRODUCE)
    assert caught.value.kind is problems.UNAUTHENTICATED
    assert caught.value.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("host", ["localhost", "localhost:8081", "127.0.0.1:1", "[::1]:8081", ""])
def test_without_tokens_loopback_names_need_none(host: str) -> None:
    _authenticator({}).check(_headers(host=host), Role.SYSTEM)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8081", "localhost.x"])
def test_without_tokens_a_rebound_name_is_refused(host: str) -> None:
    with pytest.raises(Problem) as caught:
        _authenticator({}).check(_headers(host=host), Role.CONSUME)
    assert caught.value.kind is problems.MISDIRECTED


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "store.example"])
def test_a_network_address_without_tokens_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="needs tokens"):
        check_binding(host, {})
    check_binding(host, TOKENS)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_no_tokens(host: str) -> None:
    check_binding(host, {})


class _Source:
    """Tokens that change, and a clock that moves by RELOAD_INTERVAL_S at each look."""

    def __init__(self, *given: Tokens | ConfigurationError) -> None:
        self._given = iter(given)
        self.clock = itertools.count(0, RELOAD_INTERVAL_S).__next__

    @cached_property
    def auth(self) -> Authenticator:
        return Authenticator(self.read, self.clock)

    def read(self) -> Tokens:
        found = next(self._given)
        if isinstance(found, ConfigurationError):
            raise found
        return found

    def allows(self, token: str) -> bool:
        try:
            self.auth.check(_headers(token), Role.ADMIN)
        except Problem:
            return False
        return True


def test_during_a_rotation_both_tokens_are_valid_and_then_one() -> None:
    both: Tokens = {"admin": (OLD, NEW)}
    source = _Source({"admin": (OLD,)}, both, both, {"admin": (NEW,)})
    assert [source.allows(OLD), source.allows(NEW)] == [True, True]
    assert not source.allows(OLD)


@pytest.mark.parametrize("broken", [ConfigurationError("too short"), {}])
def test_tokens_that_cannot_be_used_change_nothing(broken: Tokens | ConfigurationError) -> None:
    source = _Source({"admin": (OLD,)}, broken, {"admin": (NEW,)})
    assert source.allows(OLD)
    assert source.allows(NEW)


def test_a_token_to_show_others_changes_with_its_file_unless_that_cannot_be_used() -> None:
    assert OwnToken(lambda: {"admin": (OLD,)})() is None
    source = _Source(
        {"system": (OLD, NEW)}, ConfigurationError("too short"), {}, {"system": (NEW,)}
    )
    shown = OwnToken(source.read, itertools.count(0, 2 * RELOAD_INTERVAL_S).__next__)
    assert [shown() for _ in range(3)] == [OLD, OLD, NEW]
