"""An API server of Kubernetes that knows some objects, for the look-ups of a chart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

KINDS: Final = {
    "/api/v1": [
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("configmaps", "ConfigMap"),
        ("secrets", "Secret"),
    ],
    "/apis/apps/v1": [("statefulsets", "StatefulSet")],
    "/apis/coordination.k8s.io/v1": [("leases", "Lease")],
}
VERBS: Final = ["get", "list"]


def _groups() -> dict[str, Any]:
    groups = [path.split("/")[2] for path in KINDS if path.startswith("/apis")]
    versions = {name: {"groupVersion": f"{name}/v1", "version": "v1"} for name in groups}
    return {
        "kind": "APIGroupList",
        "groups": [
            {"name": name, "versions": [each], "preferredVersion": each}
            for name, each in versions.items()
        ],
    }


def _resources(path: str) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
        "resources": [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": VERBS}
            for name, kind in KINDS[path]
        ],
    }


def _answer(path: str, objects: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return _groups()
    if path in KINDS:
        return _resources(path)
    base, _, rest = path.partition("/namespaces/")
    kinds = dict(KINDS.get(base, []))
    _, _, rest = rest.partition("/")
    resource, _, name = rest.partition("/")
    found = [each for each in objects if each["kind"] == kinds.get(resource)]
    if not name:
        version = _resources(base)["groupVersion"]
        return {"kind": f"{kinds[resource]}List", "apiVersion": version, "items": found}
    return next((each for each in found if each["metadata"]["name"] == name), None)


@contextmanager
def api_server(folder: Path, objects: Sequence[dict[str, Any]]) -> Iterator[Path]:
    """Serve the objects, in any namespace; yields the path of a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(self.path.partition("?")[0], objects)
            body = json.dumps(answer or {"kind": "Status", "code": 404, "reason": "NotFound"})
            self.send_response(404 if answer is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield write_kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def write_kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig of a cluster at an address; returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
