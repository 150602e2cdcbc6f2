"""How this process stands for election: by a Lease of Kubernetes, or by the lock of a file."""

from __future__ import annotations

import ipaddress

from mqstore.coordinator.leader_lock import LeaderLock
from mqstore.coordinator.leadership import Leadership
from mqstore.service.refusal import Refused
from mqstore.service.settings import Settings


def leadership_of(settings: Settings) -> Leadership:
    """Raises Refused."""
    url = own_url(settings)
    if settings.lease_name is None:
        return LeaderLock(settings.leader_lock, url)
    from mqstore.coordinator.kube_lease import LeaseElection  # a large package, for clusters only

    return LeaseElection(settings.lease_name, settings.lease_namespace, url)


def own_url(settings: Settings) -> str:
    """Where other coordinators reach this one. Raises Refused."""
    if settings.advertise_url is not None:
        return settings.advertise_url.rstrip("/")
    host = settings.host
    if _is_unspecified(host):
        if settings.lease_name is not None:
            raise Refused(
                f"listening on {host} with leaseName needs advertiseUrl: "
                "where other coordinators reach this one"
            )
        host = "127.0.0.1"
    scheme = "http" if settings.tls_cert is None else "https"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{settings.coordinator_port}"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
