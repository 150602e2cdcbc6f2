"""Events of Kubernetes on a shard's pod: core v1, as ``kubectl describe pod`` shows them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.pod_notes import Note
from mqstore.service.kube_access import (
    BOUNDED,
    FAILURES,
    PATCH,
    api_client,
    own_namespace,
    why,
)

COMPONENT: Final = "mqstore"
_NO_SUCH_POD: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN})
_REFUSALS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY}
)


class NotWritten(CoordinatorError):
    """The API server did not take the Event; ``is_final``: nor would it later."""

    def __init__(self, reason: str, *, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class PodEvents:
    """Writes notes as Events of pods. Its account needs create and patch on events, and get on the
    pods. Calls block, for a second each; they may come from any thread."""

    def __init__(self, stateful_set: str, namespace: str | None) -> None:
        """Raises ConfigurationError where there is no cluster."""
        self._api = client.CoreV1Api(api_client())
        self._stateful_set = stateful_set
        self._namespace = namespace or own_namespace()

    def pod_of(self, shard: int, leader: str | None) -> Any:
        """Return the reference to the shard's present pod for Events: that of the StatefulSet, or
        of the elected ``leader``. Raises NotWritten."""
        name = leader or f"{self._stateful_set}-{shard}"
        pod: Any = client.V1ObjectReference(
            api_version="v1", kind="Pod", name=name, namespace=self._namespace
        )
        try:
            found: Any = self._api.read_namespaced_pod(name, self._namespace, **BOUNDED)
        except FAILURES as error:
            if isinstance(error, ApiException) and error.status in _NO_SUCH_POD:
                return pod  # kubectl get events shows it all the same
            raise _not_written(error) from error
        pod.uid, pod.resource_version = found.metadata.uid, found.metadata.resource_version
        return pod

    def write(self, pod: Any, note: Note) -> bool:
        """Make the Event, or count on in the one that is there. False: another coordinator
        made it before. Raises NotWritten."""
        try:
            if note.count > 1 and self._is_counted_on(pod, note):
                return True
            self._api.create_namespaced_event(self._namespace, _event(pod, note), **BOUNDED)
        except FAILURES as error:
            if isinstance(error, ApiException) and error.status == HTTPStatus.CONFLICT:
                return False
            raise _not_written(error) from error
        return True

    def _is_counted_on(self, pod: Any, note: Note) -> bool:
        """False: it is not there any more. Raises FAILURES."""
        body = {
            "count": note.count,
            "lastTimestamp": _time(note.last_ms).isoformat(),
            "message": note.message,
            "type": note.severity.value,
        }
        try:
            self._api.patch_namespaced_event(
                _name(pod, note), self._namespace, body, _content_type=PATCH, **BOUNDED
            )
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True


def _event(pod: Any, note: Note) -> Any:
    source: Any = client.V1EventSource(component=COMPONENT)
    return client.CoreV1Event(
        metadata=client.V1ObjectMeta(name=_name(pod, note), namespace=pod.namespace),
        involved_object=pod,
        reason=note.reason,
        message=note.message,
        type=note.severity.value,
        count=note.count,
        first_timestamp=_time(note.first_ms),
        last_timestamp=_time(note.last_ms),
        source=source,
        reporting_component=COMPONENT,
        reporting_instance=os.uname().nodename,
    )


def _name(pod: Any, note: Note) -> str:
    """The Event's name; every coordinator computes the same."""
    return f"{pod.name}.{note.name}"


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _not_written(error: Exception) -> NotWritten:
    is_final = isinstance(error, ApiException) and error.status in _REFUSALS
    return NotWritten(why(error), is_final=is_final)
