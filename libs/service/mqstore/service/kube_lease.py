"""Leader election by a Lease of Kubernetes: the storage of the record, and a thread that renews it.

LeaderElection of the package ``kubernetes`` is not used: it compares wall clocks, keeps no
leaseTransitions, waits for the API server without a limit and never releases a lease.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from mqstore.service import logs
from mqstore.service.election import (
    DURATION_S,
    Candidate,
    ElectionError,
    Lease,
    LeaseConflict,
    LeaseUnavailable,
)
from mqstore.service.kube_access import (
    BOUNDED,
    PATCH,
    api_client,
    own_account,
    own_namespace,
    why,
)

URL_ANNOTATION: Final = "mqstore/url"

log = logs.get(__name__)


class KubeLease:
    """An ``election.LeaseStore``: one Lease, replaced only at the resourceVersion that was read.

    The Lease is owned by the service account, so that it is deleted with the release. The account
    needs get, create, patch and, where the cluster restricts owner references, delete on leases of
    its namespace. Not thread-safe.
    """

    def __init__(self, name: str, namespace: str | None) -> None:
        """Connect by the pod's service account, outside a pod by KUBECONFIG.

        Raises ConfigurationError.
        """
        self._api = client.CoordinationV1Api(api_client())
        self._name = name
        self._namespace = namespace or own_namespace()
        account = own_account()
        self._owners = [] if account is None else [account]

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
            raise _unavailable(error) from error
        except HTTPError as error:
            raise _unavailable(error) from error

    def _send(self, lease: Lease) -> Any:
        body = _body(lease)
        if self._owners:
            body["metadata"]["ownerReferences"] = self._owners
        if not lease.version:
            body["metadata"]["name"] = self._name
            made: Any = client.V1Lease.from_dict(body)
            return self._api.create_namespaced_lease(self._namespace, made, **BOUNDED)
        body["metadata"]["resourceVersion"] = lease.version
        return self._api.patch_namespaced_lease(
            self._name, self._namespace, body, _content_type=PATCH, **BOUNDED
        )


class LeaseElection:
    """A ``Candidate`` for a Lease, with a thread that renews it or waits until it expires."""

    def __init__(self, name: str, namespace: str | None, url: str) -> None:
        """``url`` is this process's address, for the others. Raises ConfigurationError."""
        identity = f"{os.uname().nodename}_{uuid.uuid4().hex[:12]}"
        self._candidate = Candidate(KubeLease(name, namespace), identity, url, time.monotonic)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self.give_up = self._candidate.give_up
        self.term = self._candidate.term
        self.next_epoch = self._candidate.next_epoch
        self.leader_url = self._candidate.leader_url

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and release the lease."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(ElectionError):  # the lease then expires
            self._candidate.give_back()

    def _run(self) -> None:
        while not self._stopping.wait(self._candidate.step()):
            pass


def _lease(found: Any) -> Lease:
    """Convert a V1Lease; one without a holder counts as released."""
    metadata, spec = found.metadata, found.spec or client.V1LeaseSpec()
    return Lease(
        holder=spec.holder_identity or "",
        url=(metadata.annotations or {}).get(URL_ANNOTATION, ""),
        epoch=spec.lease_transitions or 0,
        duration_s=spec.lease_duration_seconds or DURATION_S,
        version=metadata.resource_version,
    )


def _body(lease: Lease) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "metadata": {"annotations": {URL_ANNOTATION: lease.url}},
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": lease.duration_s if lease.holder else 1,
            "leaseTransitions": lease.epoch,
            "renewTime": now,
        },
    }


def _unavailable(error: Exception) -> LeaseUnavailable:
    return LeaseUnavailable(f"the lease cannot be reached: {why(error)}")
