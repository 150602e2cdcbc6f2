"""Which processes may copy the log of a leader, and which of their copies count."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.replica_secret import ReplicaSecret
from mqstore.service.settings import Settings


class AllowedSlaves:
    """The addresses of ``haAllowedSlaves``."""

    def __init__(self, text: str) -> None:
        """Raises ConfigurationError for a part that is neither an IP address nor a block."""
        self._blocks = [_block(part.strip()) for part in text.split(",") if part.strip()]
        self._single = [each for each in self._blocks if each.num_addresses == 1]

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __contains__(self, address: str) -> bool:
        return _is_in(self._blocks, address)

    def names(self, address: str) -> bool:
        """Whether it has this very address, and not only a block with it."""
        return _is_in(self._single, address)

    @property
    def has_names(self) -> bool:
        """Whether it has an address, and not only blocks."""
        return bool(self._single)

    @property
    def allows_all(self) -> bool:
        """Whether it has all addresses of a family."""
        v4 = collapse_addresses(each for each in self._blocks if isinstance(each, IPv4Network))
        v6 = collapse_addresses(each for each in self._blocks if isinstance(each, IPv6Network))
        return 0 in {*(each.prefixlen for each in v4), *(each.prefixlen for each in v6)}


class Admission:
    """The settings that admit copies of the log.

    A slave of RocketMQ is admitted by its address. A follower of mqstore proves that it has the
    secret of the shard's replicas, where there is one, and else is admitted by its address too. A
    copy counts, for replies that wait for it and for the copies in sync, only if the settings name
    it: by its ``replicaName``, which it has proved, or by its very address.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError for settings that admit all addresses, or that need a copy that
        counts and name none."""
        self.allowed = AllowedSlaves(settings.ha_allowed_slaves)
        self.secret = ReplicaSecret.of(settings)
        self._names = settings.shard_replicas
        is_encrypted = settings.ha_tls_cert is not None
        if self.allowed.allows_all and not is_encrypted:
            raise ConfigurationError(
                "setting haAllowedSlaves: it has all addresses, so every process could copy the "
                "log: name the addresses of RocketMQ's slaves; replicas of mqstore need none with "
                "replicaSecretFile"
            )
        proves = self.secret is not None or is_encrypted
        if not (self.allowed.has_names or (proves and self._names)):
            self._refuse_need(settings)

    @staticmethod
    def _refuse_need(settings: Settings) -> None:
        """Raises ConfigurationError where settings need a copy that counts."""
        needs = "brokerRole is SYNC_MASTER" if settings.broker_role == "SYNC_MASTER" else None
        if settings.election_lease is not None:
            needs = "electionLease is set"
        if needs is not None:
            raise ConfigurationError(
                f"{needs}, and the settings name no copy: set replicaSecretFile and replicaNames, "
                "or name addresses of slaves in haAllowedSlaves one by one, not in blocks"
            )

    def __bool__(self) -> bool:
        """Whether any process may copy the log."""
        return bool(self.allowed) or self.secret is not None

    def may_connect(self, address: str) -> bool:
        """Whether a connection of this address is served until it has said who it is."""
        return self.secret is not None or address in self.allowed

    def admits_slave(self, address: str) -> bool:
        """Whether a slave of RocketMQ of this address may copy the log."""
        return address in self.allowed

    def counts(self, address: str, name: str | None) -> bool:
        """Whether a copy counts that has proved a ``replicaName``, or None."""
        return name in self._names or self.allowed.names(address)


def _is_in(blocks: Iterable[IPv4Network | IPv6Network], address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:  # the connection is lost
        return False
    mapped = found.ipv4_mapped if found.version == 6 else None
    return any((mapped or found) in block for block in blocks)


def _block(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"setting haAllowedSlaves: {error}; name IP addresses or blocks, such as 10.1.2.3 or "
            "10.1.0.0/16, joined by commas"
        ) from None
