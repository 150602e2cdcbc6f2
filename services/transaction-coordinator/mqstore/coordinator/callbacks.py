"""Transaction checks over HTTP: one signed request to the pinned address of a producer.

Time and size of the exchange are limited. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from enum import StrEnum
from typing import Annotated, Final

import httpx
from pydantic import BaseModel, Field, ValidationError

from mqstore.client.callbacks import SIGNATURE_HEADER, signature
from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.targets import Target
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings
from mqstore.wire.transactions import WHY_LENGTH_MAX

ANSWER_SIZE_MAX: Final = 8 << 10
CONNECT_TIMEOUT_S: Final = 2.0


class NotSent(CoordinatorError):
    """The producer could not be reached; it received no check."""


class Unanswered(CoordinatorError):
    """The producer received a check and gave no answer that can be used."""


class Wanted(StrEnum):
    """A producer's answer to a check."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class CheckAnswer(BaseModel):
    """A producer's decision about its transaction; other fields are ignored."""

    decision: Wanted
    reason: Annotated[str, Field(max_length=WHY_LENGTH_MAX)] = ""


class Caller:
    """Calls producers. Used on the event loop only.

    It goes by no proxy of the environment, keeps no connections or cookies, follows no redirects.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError."""
        self._timeout_s = settings.callback_timeout_s
        self._transport = httpx.AsyncHTTPTransport(
            verify=_trusted(settings),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close the connections to producers."""
        await self._transport.aclose()

    async def send(self, target: Target, secret: str, body: bytes) -> CheckAnswer:
        """Send a check, signed with ``secret``, and return the producer's answer.

        Raises NotSent if the producer cannot be reached, Unanswered if it sends no valid answer.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                status, answer = await self._sent(self._request(target, secret, body))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotSent(f"it cannot be reached: {error or type(error).__name__}") from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unanswered(f"it did not answer: {error or type(error).__name__}") from None
        if status != 200:
            raise Unanswered(f"it answered {status}, not 200")
        try:
            return CheckAnswer.model_validate_json(answer)
        except ValidationError:
            raise Unanswered('it answered no {"decision": "commit|rollback|unknown"}') from None

    def _request(self, target: Target, secret: str, body: bytes) -> httpx.Request:
        timeout = httpx.Timeout(
            self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s / 2)
        )
        return httpx.Request(
            "POST",
            target.pinned,
            headers={
                "host": target.url.netloc.decode(),
                "content-type": "application/json",
                "accept-encoding": "identity",
                "connection": "close",
                "user-agent": "mqstore",
                SIGNATURE_HEADER: signature(secret, body, int(time.time())),
            },
            content=body,
            extensions={"timeout": timeout.as_dict(), "sni_hostname": target.host},
        )

    async def _sent(self, request: httpx.Request) -> tuple[int, bytes]:
        response = await self._transport.handle_async_request(request)
        try:
            answer = b""
            async for part in response.aiter_raw():
                answer += part
                if len(answer) > ANSWER_SIZE_MAX:
                    raise Unanswered(f"its answer is longer than {ANSWER_SIZE_MAX} bytes")
            return response.status_code, answer
        finally:
            await response.aclose()


def _trusted(settings: Settings) -> ssl.SSLContext:
    """The system's authorities, and the operator's own. Raises ConfigurationError."""
    if settings.callback_ca is None:
        return _system_authorities()
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(settings.callback_ca)
    except OSError as error:
        raise ConfigurationError(f"callbackCa cannot be used: {error}") from None
    return context


@functools.cache
def _system_authorities() -> ssl.SSLContext:
    """Made once in a process, as their reading takes 25 ms of CPU: do not change it."""
    return ssl.create_default_context()
