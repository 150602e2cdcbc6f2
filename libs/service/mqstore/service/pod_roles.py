"""The label of a shard's pods by which Services select the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubernetes import client

from mqstore.service import logs
from mqstore.service.kube_access import BOUNDED, FAILURES, PATCH, api_client, own_namespace, why

LABEL: Final = "mqstore/role"
LEADER: Final = "leader"
FOLLOWER: Final = "follower"

log = logs.get(__name__)


class PodRoles:
    """Labels the pods of one shard. The account needs patch on them. Not thread-safe."""

    def __init__(self, pods: Sequence[str], own: str) -> None:
        """``own`` is the name of this process's pod. Raises ConfigurationError."""
        self._pods = pods
        self._own = own
        self._namespace = own_namespace()
        self._api = client.CoreV1Api(api_client())
        self._missing: dict[str, str] = {}
        """Labels that could not be set yet, by pod."""

    def lead(self) -> None:
        """Label this pod as the leader, and the others as followers. A failure is logged, and
        tried again by ``retry``."""
        self._missing = dict.fromkeys(self._pods, FOLLOWER) | {self._own: LEADER}
        self.retry()

    def follow(self) -> None:
        """Label this pod as a follower: its label outlives its containers."""
        self._missing = {self._own: FOLLOWER}
        self.retry()

    def retry(self) -> None:
        """Set the labels that are missing, the leader's first."""
        for pod, role in sorted(self._missing.items(), key=lambda each: each[1] != LEADER):
            self._set(pod, role)

    def _set(self, pod: str, role: str) -> None:
        body: Any = {"metadata": {"labels": {LABEL: role}}}
        try:
            self._api.patch_namespaced_pod(
                pod, self._namespace, body, _content_type=PATCH, **BOUNDED
            )
        except FAILURES as error:
            if getattr(error, "status", None) != 404:  # a pod that does not exist has no label
                log.warning("a pod cannot be labelled", pod=pod, role=role, reason=why(error))
                return
        del self._missing[pod]
