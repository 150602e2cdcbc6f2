"""Access to the API server of the cluster of this pod, or of the cluster that KUBECONFIG names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from mqstore.service.configuration_error import ConfigurationError

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory in which Kubernetes mounts the token and the namespace of the pod's service account."""
TIMEOUT_S: Final = 1.0
"""Limit for the connection and for the reply of one call: a fraction of a leader's renewal time."""
BOUNDED: Final[dict[str, Any]] = {"_request_timeout": (TIMEOUT_S, TIMEOUT_S)}
PATCH: Final = "application/merge-patch+json"
FAILURES: Final = (ApiException, HTTPError)
"""Exceptions of calls of the API server."""


def api_client() -> client.ApiClient:
    """Connect by the pod's service account, outside a pod by KUBECONFIG.

    Raises ConfigurationError.
    """
    access = client.Configuration()
    load: Any = config  # its functions have no types
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            load.load_incluster_config(access)
        else:
            load.load_kube_config(client_configuration=access)
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"shardStatefulSet needs a cluster: {error}") from None
    access.retries = 0
    return client.ApiClient(access)


def own_namespace() -> str:
    """Return the namespace of the pod; outside a pod `default`."""
    try:
        return (ACCOUNT_FOLDER / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


def why(error: Exception) -> str:
    """Return the reason of one of FAILURES: the message of the API server, if it sent one."""
    if not isinstance(error, ApiException):
        return str(error)
    try:
        return msgspec.json.decode(error.body or b"", type=_Status).message or str(error.reason)
    except msgspec.MsgspecError:
        return str(error.reason)


class _Status(msgspec.Struct):
    message: str = ""
