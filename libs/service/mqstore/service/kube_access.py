"""The API server of the cluster that this process is in, or that KUBECONFIG names."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from mqstore.service.configuration_error import ConfigurationError

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the token and the namespace of the pod's service account."""
TIMEOUT_S: Final = 1.0
"""To connect, and to be answered: several calls fit into the time in which a leader must renew."""
BOUNDED: Final[dict[str, Any]] = {"_request_timeout": (TIMEOUT_S, TIMEOUT_S)}
PATCH: Final = "application/merge-patch+json"
FAILURES: Final = (ApiException, HTTPError)
"""What calls raise."""


def api_client() -> client.ApiClient:
    """Within a pod by its service account, elsewhere by KUBECONFIG. Raises ConfigurationError."""
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
    """The pod's, elsewhere `default`."""
    try:
        return (ACCOUNT_FOLDER / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


def own_account() -> dict[str, str] | None:
    """The pod's service account as an owner reference, from the claims of its token; None where
    there is no such token. An object with this owner is deleted after the account is."""
    try:
        _, claims, _ = (ACCOUNT_FOLDER / "token").read_text(encoding="ascii").split(".")
        padded = claims + "=" * (-len(claims) % 4)
        account = json.loads(base64.urlsafe_b64decode(padded))["kubernetes.io"]["serviceaccount"]
        named = {"name": str(account["name"]), "uid": str(account["uid"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"apiVersion": "v1", "kind": "ServiceAccount", **named}


def why(error: Exception) -> str:
    """In a word or two, for one of FAILURES."""
    return str(error.reason if isinstance(error, ApiException) else error)
