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

import asyncio
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mqstore.service import ha_handover
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.ha_handover import LeaderIntroduction
from mqstore.service.settings import Settings, split_secrets

NONCE_SIZE: Final = 32
"""Random bytes of each side."""
MESSAGE_SIZE_MAX: Final = 4 << 10
"""Maximum bytes of a message of a proof: those of a peer that is not known yet."""
_NONCE_LENGTH: Final = 2 * NONCE_SIZE


class ProofRefused(Exception):
    """The other side has no proof, or a wrong one."""


class Challenge(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The first message of a leader that has a secret."""

    challenge: str
    """Its nonce, in hexadecimal digits."""
    store_id: str


class _FirstMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    challenge: str | None = None


async def read_first(reader: asyncio.StreamReader) -> Challenge | LeaderIntroduction:
    """Read the first message of a leader: its challenge, or of one without a secret its
    introduction. Raises FrameInvalid, EOFError, OSError."""
    text = await ha_handover.read_text(reader)
    if ha_handover.decode(text, _FirstMessage).challenge is None:
        return ha_handover.decode_introduction(text, LeaderIntroduction)
    return ha_handover.decode(text, Challenge)


class _FollowerProof(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    name: str
    store_id: str
    nonce: str
    proof: str


class _LeaderProof(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
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

    def key_of(self, keys: tuple[bytes, ...], side: str, proof: str) -> bytes | None:
        """Return the key with which the proof of a side was made, or None."""
        for key in keys:
            if hmac.compare_digest(self.proof(key, side).encode(), proof.encode()):
                return key
        return None


class ReplicaSecret:
    """The secret of the replicas of a shard, read again for each connection.

    The file has one secret, or during a change the new one and the old one, a line each: a follower
    proves itself by the first, and a leader accepts both.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError for a file that is unreadable or has no secret."""
        self._path = path
        self._keys()

    @classmethod
    def of(cls, settings: Settings) -> ReplicaSecret | None:
        """Build it from the settings; None without one. Raises ConfigurationError."""
        path = settings.replica_secret_file
        return None if path is None else cls(path)

    async def require_proof(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, store_id: str
    ) -> Proven:
        """Challenge a follower, and prove this leader to it.

        Raises ProofRefused, FrameInvalid, EOFError, OSError.
        """
        keys = await asyncio.to_thread(self._keys_or_refuse)
        challenge = Challenge(challenge=secrets.token_hex(NONCE_SIZE), store_id=store_id)
        writer.write(ha_handover.encode(challenge))
        found = ha_handover.decode(await self._read(reader), _FollowerProof)
        fields = _Exchange(
            *(challenge.challenge, store_id, found.nonce, found.store_id, found.name)
        )
        key = fields.key_of(keys, "follower", found.proof)
        if key is None or len(found.nonce) != _NONCE_LENGTH:
            raise ProofRefused("its proof is not made with the secret of this shard's replicas")
        writer.write(ha_handover.encode(_LeaderProof(proof=fields.proof(key, "leader"))))
        return Proven(found.name, found.store_id)

    async def prove(
        self,
        challenge: Challenge,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        of: Proven,
    ) -> None:
        """Prove this follower to a leader that has sent a challenge, and have it prove itself.

        Raises ProofRefused, FrameInvalid, OSError.
        """
        keys = await asyncio.to_thread(self._keys_or_refuse)
        nonce = secrets.token_hex(NONCE_SIZE)
        fields = _Exchange(*(challenge.challenge, challenge.store_id, nonce, of.store_id, of.name))
        proof = fields.proof(keys[0], "follower")
        writer.write(
            ha_handover.encode(
                _FollowerProof(name=of.name, store_id=of.store_id, nonce=nonce, proof=proof)
            )
        )
        try:
            found = ha_handover.decode(await self._read(reader), _LeaderProof)
        except EOFError:
            raise ProofRefused(
                "the leader closed the connection when this replica proved itself: do both have "
                "the same secret in replicaSecretFile? The log of the leader has the reason"
            ) from None
        if fields.key_of(keys[:1], "leader", found.proof) is None:
            raise ProofRefused("the leader's proof is not made with the secret of this replica")

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        return await ha_handover.read_text(reader, MESSAGE_SIZE_MAX)

    def _keys_or_refuse(self) -> tuple[bytes, ...]:
        try:
            return self._keys()
        except ConfigurationError as error:
            raise ProofRefused(str(error)) from None

    def _keys(self) -> tuple[bytes, ...]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"replicaSecretFile cannot be read: {error}") from None
        return tuple(each.encode() for each in split_secrets("replica secret", text))
