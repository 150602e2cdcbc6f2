"""The route of the roles of a request's token."""

from __future__ import annotations

from fastapi import Request

from mqstore.service.app import Api
from mqstore.service.auth import Authenticator, included_roles
from mqstore.service.endpoint import Endpoint
from mqstore.wire.access import ACCESS, Access
from mqstore.wire.operation import Role


class AccessRoute:
    """Serves ``GET /v1/access``."""

    def __init__(self, auth: Authenticator) -> None:
        self._auth = auth

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(ACCESS, self.access).add(api)

    async def access(self, request: Request) -> Access:
        """Return the roles of the token, for programs that show only what it allows."""
        roles = self._auth.roles(request.scope["headers"])
        allowed = frozenset(Role) if roles is None else included_roles(roles)
        return Access(
            token_needed=roles is not None,
            roles=tuple(sorted(roles or ())),
            allows=tuple(sorted(allowed)),
        )
