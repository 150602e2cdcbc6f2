"""The secret by which the replicas of a shard prove themselves, in a file."""

from __future__ import annotations

from pathlib import Path

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings, split_secrets
from mqstore.storage.replication import Keys, ProofRefused


class ReplicaSecret:
    """The secret of the replicas of a shard, read again for each connection.

    The file has one secret, or during a change the new one and the old one, a line each: a follower
    proves itself by the first, and a leader accepts both.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError for a file that is unreadable or has no secret."""
        self._path = path
        self._read()

    @classmethod
    def of(cls, settings: Settings) -> ReplicaSecret | None:
        """Build it from the settings; None without one. Raises ConfigurationError."""
        path = settings.replica_secret_file
        return None if path is None else cls(path)

    def keys(self) -> Keys:
        """Return the secrets as the file has them now. Raises ProofRefused."""
        try:
            return self._read()
        except ConfigurationError as error:
            raise ProofRefused(str(error)) from None

    def _read(self) -> Keys:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"replicaSecretFile cannot be read: {error}") from None
        return tuple(each.encode() for each in split_secrets("replica secret", text))
