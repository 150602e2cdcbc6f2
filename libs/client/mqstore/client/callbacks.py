"""What a producer that is called back about its transactions needs: is it the coordinator?

Its requests carry ``x-mqstore-signature: t=SECONDS,v1=HEX``: HMAC-SHA-256, under the secret that
the producer registered, over ``SECONDS``, a full stop, and the body as it was sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from mqstore.client.errors import ClientError

SIGNATURE_HEADER: Final = "x-mqstore-signature"
REPLAY_WINDOW_S: Final = 300
"""A request that was signed longer ago, or so far ahead, is somebody's copy of one."""
_FORM: Final = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})")


class SignatureRefused(ClientError):
    """The request is not the coordinator's, or too old."""


def signature(secret: str, body: bytes, at_s: int) -> str:
    """The header's value, for a body that is sent at so many seconds since the epoch."""
    return f"t={at_s},v1={_digest(secret, body, at_s)}"


def check_signature(secret: str, body: bytes, header: str, now_s: float) -> None:
    """Raises SignatureRefused unless the body was signed with the secret, and lately."""
    found = _FORM.fullmatch(header)
    if found is None:
        raise SignatureRefused(f"there is no signature in {header[:100]!r}")
    at_s = int(found[1])
    if not hmac.compare_digest(found[2], _digest(secret, body, at_s)):
        raise SignatureRefused("the signature is another one: the secret or the body differs")
    if abs(now_s - at_s) > REPLAY_WINDOW_S:
        raise SignatureRefused(f"it was signed {now_s - at_s:.0f} s ago; compare the clocks")


def _digest(secret: str, body: bytes, at_s: int) -> str:
    return hmac.new(secret.encode(), b"%d." % at_s + body, hashlib.sha256).hexdigest()
