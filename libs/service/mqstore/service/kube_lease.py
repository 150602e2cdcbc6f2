"""The shared record of a leader election in a Lease of Kubernetes.

LeaderElection of the package ``kubernetes`` is not used: it compares wall clocks, keeps no
leaseTransitions, waits for the API server without a limit and never releases a lease.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from mqstore.service.kube_access import BOUNDED, PATCH, api_client, own_namespace, why
from mqstore.storage.replication import (
    DURATION_S,
    Addresses,
    Lease,
    LeaseConflict,
    LeaseUnavailable,
)

URL: Final = "mqstore/url"
LOG: Final = "mqstore/log"
IN_SYNC: Final = "mqstore/in-sync"
SUCCESSOR: Final = "mqstore/successor"
FORMER: Final = "mqstore/former"
PROVES: Final = "mqstore/proves"
"""Annotations of the Lease; names of replicas are separated by spaces. PROVES has the epoch of a
leader that proves itself: one of an earlier release leaves it unchanged."""


class KubeLease:
    """An ``election.LeaseStore``: one Lease, replaced only at the resourceVersion that was read.

    The account needs get and patch on the Lease, and create where the Lease does not exist. Not
    thread-safe.
    """

    def __init__(self, name: str, namespace: str | None) -> None:
        """Connect by the pod's service account, outside a pod by KUBECONFIG.

        Raises ConfigurationError.
        """
        self._api = client.CoordinationV1Api(api_client())
        self._name = name
        self._namespace = namespace or own_namespace()

    def read(self) -> Lease | None:
        """Return the record; None if there is no Lease. Raises LeaseUnavailable."""
        try:
            return _lease(self._api.read_namespaced_lease(self._name, self._namespace, **BOUNDED))
        except ApiException as error:
            if error.status == 404:
                return None
            raise _unavailable(error) from error
        except HTTPError as error:
            raise _unavailable(error) from error

    def write(self, lease: Lease) -> Lease:
        """Create or replace the record. Raises LeaseConflict, LeaseUnavailable."""
        try:
            return _lease(self._send(lease))
        except ApiException as error:
            if error.status == 409:
                raise LeaseConflict("the lease was written by another candidate") from error
            if not lease.version:
                raise LeaseUnavailable(
                    f"the Lease {self._name} does not exist in the namespace {self._namespace}, "
                    f"and cannot be created: {why(error)}; create it, or allow the pods' service "
                    "account to create leases"
                ) from error
            raise _unavailable(error) from error
        except HTTPError as error:
            raise _unavailable(error) from error

    def _send(self, lease: Lease) -> Any:
        body = _body(lease)
        if not lease.version:
            body["metadata"]["name"] = self._name
            made: Any = client.V1Lease.from_dict(body)
            return self._api.create_namespaced_lease(self._namespace, made, **BOUNDED)
        body["metadata"]["resourceVersion"] = lease.version
        return self._api.patch_namespaced_lease(
            self._name, self._namespace, body, _content_type=PATCH, **BOUNDED
        )


def _lease(found: Any) -> Lease:
    """Convert a V1Lease; one without a holder counts as released."""
    metadata, spec = found.metadata, found.spec or client.V1LeaseSpec()
    given = metadata.annotations or {}
    return Lease(
        holder=spec.holder_identity or "",
        epoch=spec.lease_transitions or 0,
        addresses=Addresses(
            given.get(URL, ""), given.get(LOG, ""), given.get(PROVES) == str(spec.lease_transitions)
        ),
        in_sync=tuple(given.get(IN_SYNC, "").split()),
        successor=given.get(SUCCESSOR, ""),
        former=given.get(FORMER, ""),
        duration_s=spec.lease_duration_seconds or DURATION_S,
        version=metadata.resource_version,
    )


def _body(lease: Lease) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "metadata": {
            "annotations": {
                URL: lease.addresses.url,
                LOG: lease.addresses.log,
                IN_SYNC: " ".join(lease.in_sync),
                SUCCESSOR: lease.successor,
                FORMER: lease.former,
                PROVES: str(lease.epoch) if lease.addresses.proves else "",
            }
        },
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": math.ceil(lease.duration_s),
            "leaseTransitions": lease.epoch,
            "renewTime": now,
        },
    }


def _unavailable(error: Exception) -> LeaseUnavailable:
    return LeaseUnavailable(f"the lease cannot be reached: {why(error)}")
