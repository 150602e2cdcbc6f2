"""An installed release, read from its Kubernetes objects: shards, tokens and connections.

The names are those of the chart (docs/concepts/kubernetes.md). Helm is not called.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import httpx

from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.client import Client

WRITER: Final = "store-writer"
QUERY: Final = "query"
STORE_VOLUME: Final = "store"
WRITER_PORT: Final = 8081
QUERY_PORT: Final = 8082
COORDINATOR_PORT: Final = 8083
_PRODUCT: Final = "app.kubernetes.io/name=mqstore"
_COMPONENT: Final = "app.kubernetes.io/component"
_INSTANCE: Final = "app.kubernetes.io/instance"
_SHARD: Final = "mqstore/shard"
"""Label of the pods of a shard with replicas."""
_ROLE: Final = "mqstore/role"


@dataclass(frozen=True, slots=True)
class Shard:
    """The pod of a shard, with replicas that of its leader; ``pod`` is None if there is none."""

    number: int
    name: str
    pod: Any

    @property
    def state(self) -> str:
        """A word for a table: ``Running``, the reason why a container waits, or ``missing``."""
        if self.pod is None:
            return "missing"
        if "deletionTimestamp" in self.pod["metadata"]:
            return "Terminating"
        for each in self._containers:
            waiting = each.get("state", {}).get("waiting")
            if waiting:
                return str(waiting.get("reason", "Waiting"))
        return str(self.pod["status"].get("phase", "Unknown"))

    @property
    def ready(self) -> str:
        """Number of ready containers and of all, as ``2/2``."""
        done = sum(each.get("ready", False) for each in self._containers)
        return f"{done}/{len(self._containers)}"

    @property
    def is_ready(self) -> bool:
        """Whether the pod exists and has the condition Ready."""
        return self.pod is not None and _is_ready(self.pod)

    @property
    def role(self) -> str:
        """The role with which a replica labels itself; empty without a label."""
        labels = {} if self.pod is None else self.pod["metadata"].get("labels", {})
        return str(labels.get(_ROLE, ""))

    @property
    def restarts(self) -> int:
        """Number of restarts of all containers."""
        return sum(each.get("restartCount", 0) for each in self._containers)

    @property
    def _containers(self) -> list[Any]:
        if self.pod is None:
            return []
        return list(self.pod["status"].get("containerStatuses", ()))


@dataclass(frozen=True)
class Release:
    """A release in the namespace of ``kubectl``."""

    kubectl: Kubectl
    instance: str
    stateful_sets: tuple[Any, ...]
    """One StatefulSet with a pod for each shard; with replicas one for each shard, by number."""

    @property
    def stateful_set(self) -> Any:
        """The StatefulSet of all shards; with replicas that of the first shard."""
        return self.stateful_sets[0]

    @property
    def name(self) -> str:
        """The full name: the prefix of the names of all objects of the release."""
        name = str(self.stateful_set["metadata"]["name"])
        return (name.rpartition("-")[0] if self.has_replicas else name).removesuffix("-shard")

    @property
    def has_replicas(self) -> bool:
        """Whether each shard has several replicas, which elect their leader."""
        return _is_of_replicas(self.stateful_set)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the shards for which the StatefulSets specify pods."""
        if self.has_replicas:
            sets = [each for each in self.stateful_sets if each["spec"]["replicas"]]
            return [_number(each["metadata"]["name"]) for each in sets]
        return list(range(int(self.stateful_set["spec"]["replicas"])))

    def selector(self, component: str) -> str:
        """The label selector of a component of the release."""
        return f"{_PRODUCT},{_INSTANCE}={self.instance},{_COMPONENT}={component}"

    def shards(self) -> list[Shard]:
        """The specified shards, with or without a pod, and surplus pods, by number."""
        if self.has_replicas:
            return [self._led(number) for number in self.numbers]
        pods = {
            pod["metadata"]["name"]: pod
            for pod in self.kubectl.items("pods", self.selector("shard"))
        }
        there = {_number(name) for name in pods}
        return [
            Shard(number, name := self.first_pod(number), pods.get(name))
            for number in sorted(there | set(self.numbers))
        ]

    def _led(self, number: int) -> Shard:
        """A shard with the pod of its leader."""
        selector = f"{self.selector('shard')},{_SHARD}={number},{_ROLE}=leader"
        pods = self.kubectl.items("pods", selector)
        if not pods:
            return Shard(number, self.first_pod(number), None)
        return Shard(number, str(pods[0]["metadata"]["name"]), pods[0])

    def replicas(self, number: int) -> list[Shard]:
        """A shard's pods: of one replica its pod, else those of all replicas, also absent ones."""
        if not self.has_replicas:
            return [each for each in self.shards() if each.number == number]
        selector = f"{self.selector('shard')},{_SHARD}={number}"
        pods = {pod["metadata"]["name"]: pod for pod in self.kubectl.items("pods", selector)}
        names = dict.fromkeys([*self.pods(number), *sorted(pods)])
        return [Shard(number, name, pods.get(name)) for name in names]

    def set_name(self, shard: int) -> str:
        """Name of the StatefulSet of a shard."""
        return self.lease_name(shard) if self.has_replicas else f"{self.name}-shard"

    def lease_name(self, shard: int) -> str:
        """Name of the Lease by which the replicas of a shard elect their leader."""
        return f"{self.name}-shard-{shard}"

    def pods(self, shard: int) -> list[str]:
        """Names of a shard's pods, as its StatefulSet specifies them: with replicas several."""
        if not self.has_replicas:
            return [f"{self.name}-shard-{shard}"]
        name = self.set_name(shard)
        (found,) = (each for each in self.stateful_sets if each["metadata"]["name"] == name)
        return [f"{name}-{replica}" for replica in range(int(found["spec"]["replicas"]))]

    def first_pod(self, shard: int) -> str:
        """Name of the pod of a shard's first replica."""
        return f"{self.name}-shard-{shard}" + ("-0" if self.has_replicas else "")

    def claim_name(self, pod: str) -> str:
        """Name of a pod's claim: the StatefulSet's, or ``persistence.existingClaim``."""
        for volume in self.template["spec"].get("volumes", ()):
            if volume["name"] == STORE_VOLUME:
                return str(volume["persistentVolumeClaim"]["claimName"])
        return f"{STORE_VOLUME}-{pod}"

    def scale(self, shard: int, pods: int) -> str:
        """Set the number of pods of a shard's StatefulSet; returns what kubectl said."""
        return self.kubectl.run(
            "scale", f"statefulset/{self.set_name(shard)}", f"--replicas={pods}"
        )

    @property
    def claims_go_with_pods(self) -> bool:
        """Whether scaling down deletes the claims (``persistence.retain: false``)."""
        spec = self.stateful_set["spec"]
        policy = spec.get("persistentVolumeClaimRetentionPolicy", {})
        return bool(spec.get("volumeClaimTemplates")) and policy.get("whenScaled") == "Delete"

    def restore_name(self, shard: int) -> str:
        """Name of the objects that exist only while a shard is restored."""
        return f"{self.name}-restore-{shard}"

    @contextmanager
    def client(self, shard: Shard) -> Iterator[Client]:
        """Connect a client to the two services of one shard for the context.

        Of several shards the client sends its requests to this one only. Raises KubeError.
        """
        if shard.pod is None:
            raise KubeError(self._why_no_pod(shard.number))
        own = shard.number if len(self.numbers) > 1 else None
        with (
            self._forwarded(shard.name, WRITER_PORT, QUERY_PORT) as ((writer, query), tls),
            Client(writer, query, token=self.admin_token, tls=tls, shard=own) as client,
        ):
            yield client

    def _why_no_pod(self, shard: int) -> str:
        """Why no pod serves a shard; with replicas why none leads, as far as objects say it."""
        if not self.has_replicas:
            return f"shard {shard} has no pod; see kubectl mqstore status"
        lease = self.lease_name(shard)
        if self.kubectl.run("get", "lease", lease, "--ignore-not-found", "-o", "name").strip():
            missing = ""
        else:
            missing = f", and the Lease {lease} does not exist"
        return (
            f"no replica of shard {shard} leads{missing}; the reason of each is in its log, "
            f"`no leader of this shard is known`: kubectl logs {self.first_pod(shard)} store-writer"
        )

    @contextmanager
    def http(self, pod: str, port: int, timeout_s: float) -> Iterator[httpx.Client]:
        """Yield an HTTP client of one port of a pod, which sends the admin token."""
        headers = {"authorization": f"Bearer {self.admin_token}"}
        with (
            self._forwarded(pod, port) as ([url], tls),
            httpx.Client(
                base_url=url, headers=headers, verify=tls or True, timeout=timeout_s
            ) as http,
        ):
            yield http

    def coordinator_pod(self) -> str:
        """Name of a coordinator pod that is ready. Raises KubeError if none is."""
        for pod in self.kubectl.items("pods", self.selector("coordinator")):
            if _is_ready(pod):
                return str(pod["metadata"]["name"])
        raise KubeError(f"no coordinator of {self.name} is ready; see kubectl get pods")

    @contextmanager
    def _forwarded(
        self, pod: str, *ports: int
    ) -> Iterator[tuple[list[str], ssl.SSLContext | None]]:
        """Forward ports of a pod; yields their URLs and the TLS context, None without TLS."""
        with self.kubectl.forwarded(pod, *ports) as local:
            scheme, tls = ("https", _forwarded_tls()) if self._has_tls else ("http", None)
            yield [f"{scheme}://127.0.0.1:{local[port]}" for port in ports], tls

    @property
    def template(self) -> Any:
        """The pod template of the shards."""
        return self.stateful_set["spec"]["template"]

    @property
    def _has_tls(self) -> bool:
        probe = self.container(WRITER).get("livenessProbe", {}).get("httpGet", {})
        return bool(probe.get("scheme") == "HTTPS")

    def container(self, name: str) -> Any:
        """A container of the pod template. Raises KubeError if it has none of this name."""
        for each in self.template["spec"]["containers"]:
            if each["name"] == name:
                return each
        raise KubeError(f"statefulset {self.name}-shard has no container {name}; is it mqstore's?")

    @contextmanager
    def forwarded_shard(self, pod: str) -> Iterator[tuple[str, str, ssl.SSLContext | None]]:
        """Forward a shard's services; yields the URLs of store-writer and query, and the context
        of TLS, None without."""
        with self._forwarded(pod, WRITER_PORT, QUERY_PORT) as ((writer, query), tls):
            yield writer, query, tls

    @contextmanager
    def forwarded_coordinator(self) -> Iterator[str]:
        """Forward a coordinator that is ready; yields its URL. Raises KubeError if none is."""
        with self._forwarded(self.coordinator_pod(), COORDINATOR_PORT) as ([url], _):
            yield url

    @cached_property
    def admin_token(self) -> str:
        """The admin token, from the release's Secret. Raises KubeError."""
        secret = self.kubectl.json("get", "secret", self._secret_name)
        try:
            return base64.b64decode(secret["data"]["admin"]).decode().strip()
        except KeyError:
            raise KubeError(f"secret {self._secret_name} has no key admin") from None

    @property
    def _secret_name(self) -> str:
        """Name of the secret with the tokens: the chart's own, or ``auth.existingSecret``."""
        for volume in self.template["spec"].get("volumes", ()):
            if volume["name"] == "tokens":
                return str(volume["secret"]["secretName"])
        return f"{self.name}-auth"


def find(kubectl: Kubectl, instance: str | None) -> Release:
    """The release ``instance``, or the only release in the namespace if it is None.

    Raises KubeError if there is no such release, or if there are several.
    """
    chosen = "" if instance is None else f",{_INSTANCE}={instance}"
    found = kubectl.items("statefulsets", f"{_PRODUCT},{_COMPONENT}=shard{chosen}")
    if not found:
        named = "" if instance is None else f" {instance}"
        raise KubeError(f"no release{named} of mqstore in this namespace; name it with -n")
    names = sorted(each["metadata"]["labels"][_INSTANCE] for each in found)
    if len(set(names)) > 1:
        several = ", ".join(sorted(set(names)))
        raise KubeError(f"several releases here: {several}; choose one with --release")
    running = [each for each in found if each["spec"].get("replicas")] or found
    kind = _is_of_replicas(running[0])
    sets = [each for each in found if _is_of_replicas(each) == kind]
    if kind:
        sets.sort(key=lambda each: _number(each["metadata"]["name"]))
    return Release(kubectl, names[0], tuple(sets))


def _is_of_replicas(stateful_set: Any) -> bool:
    """Whether its pods are the replicas of one shard, and not one pod for each shard."""
    return _SHARD in stateful_set["spec"].get("selector", {}).get("matchLabels", {})


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _number(pod: str) -> int:
    return int(pod.rpartition("-")[2])


def _forwarded_tls() -> ssl.SSLContext:
    """A context without checks: the API server authenticates the pod, and the certificate of the
    pod does not name 127.0.0.1."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
