"""Signatures of the coordinator's requests to producers that it calls back about transactions.

A request has the header ``x-mqstore-signature: t=SECONDS,v1=HEX``. ``HEX`` is the HMAC-SHA-256,
with the secret that the producer registered, of ``SECONDS``, a full stop and the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from mqstore.client.errors import ClientError

SIGNATURE_HEADER: Final = "x-mqstore-signature"
REPLAY_WINDOW_S: Final = 300
"""Largest difference between the time of a signature and the clock: an older request may be a
replay."""
_FORM: Final = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})")


class SignatureRefused(ClientError):
    """The request was not signed with the secret, or its signature is too old."""


def signature(secret: str, body: bytes, at_s: int) -> str:
    """Return the header's value for a body sent at ``at_s`` seconds since the epoch."""
    return f"t={at_s},v1={_digest(secret, body, at_s)}"


def check_signature(secret: str, body: bytes, header: str, now_s: float) -> None:
    """Raise SignatureRefused unless the body was signed with the secret within REPLAY_WINDOW_S.

    ``now_s`` is in seconds since the epoch.
    """
    found = _FORM.fullmatch(header)
    if found is None:
        raise SignatureRefused(f"the header has no signature: {header[:100]!r}")
    at_s = int(found[1])
    if not hmac.compare_digest(found[2], _digest(secret, body, at_s)):
        raise SignatureRefused("the signature does not match: the secret or the body differs")
    if abs(now_s - at_s) > REPLAY_WINDOW_S:
        raise SignatureRefused(
            f"the signature is {now_s - at_s:.0f} s old, {REPLAY_WINDOW_S} s are allowed; "
            "compare the clocks"
        )


def _digest(secret: str, body: bytes, at_s: int) -> str:
    return hmac.new(secret.encode(), b"%d." % at_s + body, hashlib.sha256).hexdigest()
