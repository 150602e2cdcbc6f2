"""Mutual proof of a leader and a follower that both have the secret of their replicas.

It comes between the follower's request of a hand-over and the leader's introduction
(``ha_handover``), in messages of the same form. The leader sends a challenge: its store id and a
random nonce. The follower sends its name, its store id, a nonce of its own and its proof; the
leader checks it, and sends its own. A proof is the HMAC-SHA256, under the secret, of the side that
makes it and of all these values: it has no use on another connection, for another name or another
store. Before the proofs a leader sends nothing else, and a follower changes nothing.

A proof does not protect the bytes behind it on their way: that takes TLS (``ha_tls``).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

import msgspec

from mqstore.storage.replication import ha_handover
from mqstore.storage.replication.ha_handover import LeaderIntroduction

NONCE_SIZE: Final = 32
"""Random bytes of each side."""
MESSAGE_SIZE_MAX: Final = 4 << 10
"""Maximum bytes of a message of a proof: those of a peer that is not known yet."""
_NONCE_LENGTH: Final = 2 * NONCE_SIZE
Keys = tuple[bytes, ...]
"""The secret of the shard's replicas, or during a change the new one and the old one: a follower
proves itself by the first, and a leader accepts each."""


class ProofRefused(Exception):
    """The other side has no proof, or a wrong one."""


class Challenge(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The first message of a leader that has a secret."""

    challenge: str
    """Its nonce, in hexadecimal digits."""
    store_id: str


class _FirstMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    challenge: str | None = None


def decode_first(text: bytes) -> Challenge | LeaderIntroduction:
    """Return the first message of a leader: its challenge, or of one without a secret its
    introduction. Raises FrameInvalid."""
    if ha_handover.decode(text, _FirstMessage).challenge is None:
        return ha_handover.decode_introduction(text, LeaderIntroduction)
    return ha_handover.decode(text, Challenge)


class _FollowerMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    name: str
    store_id: str
    nonce: str
    proof: str


class _LeaderMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    proof: str


class Proven(NamedTuple):
    """Name and store that a follower has proved."""

    name: str
    store_id: str


class _Exchange(NamedTuple):
    """All that both proofs are of."""

    leader_nonce: str
    leader_store: str
    nonce: str
    store: str
    name: str

    def proof(self, key: bytes, side: str) -> str:
        """Return the proof of a side. The JSON of the fields is unambiguous."""
        return hmac.new(key, msgspec.json.encode((side, *self)), hashlib.sha256).hexdigest()

    def key_of(self, keys: Keys, side: str, proof: str) -> bytes | None:
        """Return the key with which the proof of a side was made, or None."""
        for key in keys:
            if hmac.compare_digest(self.proof(key, side).encode(), proof.encode()):
                return key
        return None


class LeaderProof:
    """The leader's side of a proof."""

    def __init__(self, keys: Keys, store_id: str, nonce: str) -> None:
        self._keys = keys
        self._challenge = Challenge(challenge=nonce, store_id=store_id)

    @property
    def challenge(self) -> bytes:
        """The message with which it begins."""
        return ha_handover.encode(self._challenge)

    def check(self, text: bytes) -> tuple[Proven, bytes]:
        """Return what a follower's message proves, and the leader's message. Raises ProofRefused,
        FrameInvalid."""
        found = ha_handover.decode(text, _FollowerMessage)
        own = self._challenge
        fields = _Exchange(own.challenge, own.store_id, found.nonce, found.store_id, found.name)
        key = fields.key_of(self._keys, "follower", found.proof)
        if key is None or len(found.nonce) != _NONCE_LENGTH:
            raise ProofRefused("its proof is not made with the secret of this shard's replicas")
        message = ha_handover.encode(_LeaderMessage(proof=fields.proof(key, "leader")))
        return Proven(found.name, found.store_id), message


class FollowerProof:
    """The follower's side of a proof."""

    def __init__(self, keys: Keys, challenge: Challenge, of: Proven, nonce: str) -> None:
        self._key = keys[0]
        self.leader_store = challenge.store_id
        """Store id of the leader, which is to prove itself."""
        self._fields = _Exchange(
            *(challenge.challenge, challenge.store_id, nonce, of.store_id, of.name)
        )

    @property
    def message(self) -> bytes:
        """The message by which the follower proves itself."""
        own = self._fields
        proof = own.proof(self._key, "follower")
        return ha_handover.encode(
            _FollowerMessage(name=own.name, store_id=own.store, nonce=own.nonce, proof=proof)
        )

    def check(self, text: bytes) -> None:
        """Raise ProofRefused unless the leader's message proves it; FrameInvalid."""
        found = ha_handover.decode(text, _LeaderMessage)
        if self._fields.key_of((self._key,), "leader", found.proof) is None:
            raise ProofRefused("the leader's proof is not made with the secret of this replica")
