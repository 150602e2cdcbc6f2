"""Replies of services: models, downloads, and problems as errors. Does no input or output."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from mqstore.client.checksums import crc32c
from mqstore.client.errors import ClientError, ProblemError, Unreachable
from mqstore.client.models import Download
from mqstore.client.requests import Call
from mqstore.client.streams import Stream

REDIRECT_CONNECT_S: Final = 2.0
"""Seconds to connect to the address of a shard, which may be known inside a cluster only."""

Answer = TypeVar("Answer", bound=BaseModel)


def redirect(request: dict[str, Any], response: httpx.Response) -> dict[str, Any] | None:
    """Return the request to the shard that a reply 421 names; None for other replies."""
    if response.status_code != httpx.codes.MISDIRECTED_REQUEST:
        return None
    url, target = httpx.URL(request["url"]), _problem(response).get("url")
    if not isinstance(target, str) or not target.startswith(f"{url.scheme}://"):
        return None  # a token for https is not sent by http
    given = httpx.Timeout(request["timeout"])
    connect = min(REDIRECT_CONNECT_S, given.connect or REDIRECT_CONNECT_S)
    timeout = httpx.Timeout(connect=connect, read=given.read, write=given.write, pool=given.pool)
    return request | {"url": target.rstrip("/") + str(url.raw_path, "ascii"), "timeout": timeout}


def answer(call: Call[Answer], response: httpx.Response) -> Answer:
    """Decode the reply of a call. Raises ProblemError, or ClientError if it cannot be decoded."""
    if response.is_success or (call.errors_are_answers and response.status_code == 503):
        try:
            if issubclass(call.answer, Download):
                return call.answer.model_validate(_download_fields(call, response))
            return call.answer.model_validate_json(response.content or b"{}")
        except ValidationError as error:
            raise ClientError(f"{call.path}: this client cannot decode the reply") from error
    raise problem_error(response)


def _download_fields(call: Call[Any], response: httpx.Response) -> dict[str, Any]:
    """Return the fields of a Download. Raises ClientError if the checksum does not match."""
    content, headers = response.content, response.headers
    digest = headers.get("content-digest")
    if digest not in (None, f"crc32c=:{b64encode(crc32c(content).to_bytes(4)).decode()}:"):
        raise ClientError(f"{call.path}: the bytes do not match their checksum; retry")
    total = headers.get("content-range", "").rpartition("/")[2]
    return {"content": content, "total": total or len(content), "tag": headers.get("etag")}


def problem_error(response: httpx.Response) -> ProblemError:
    """Return the error of a reply that is no success."""
    text = response.headers.get("retry-after", "")
    retry_after_s = float(text) if text.isascii() and text.isdigit() else None
    return ProblemError(response.status_code, _problem(response), retry_after_s=retry_after_s)


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return problem
    status = f"{response.status_code} {response.reason_phrase}".strip()
    return {"detail": response.text[:200].strip() or f"{response.url} replied {status}, no more"}


def unreachable(call: Call[Any] | Stream[Any], error: httpx.HTTPError) -> Unreachable:
    """Return the error of a request without a complete reply."""
    was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    why = f"{call.target.value} at {call.path}: {error or type(error).__name__}"
    return Unreachable(why, was_sent=was_sent)
