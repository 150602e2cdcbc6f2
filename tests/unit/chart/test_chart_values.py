"""Each value of the chart arrives as it was given, whatever YAML makes of its text.

The values are those of ``values.schema.json``: a further one is tested without a change here.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest

from mqstore.storage.java_properties import parse
from tests.unit.chart.settings_schema import SCHEMA
from tests.unit.chart.test_chart import _run, load_all, needs_helm

pytestmark = needs_helm

Place = tuple[str | int, ...]
TEXTS: Final = (
    *("yes", "no", "null", "~", "true", "1e3", "0123", "0x1f", "1_000", "12:30:45", "2024-01-01"),
    *(
        "a: b",
        "a #b",
        "- a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        ">",
        "|",
        "?",
        "{a",
        "[a",
        "a, b}",
    ),
    *('"', "'", "'a'", '"a"', "\\", "a\\nb", "{{ .Values.shards }}", "$(A)", "${a}", "a\nb", "é"),
    *(" a", "a ", "-", ".inf", "NaN", "0o17", "1.0", "+1", "$1", "a\tb", "# a", "on"),
)
NUMBER: Final = 1_073_741_824
"""Go prints it as 1.073741824e+09."""
ROUNDS: Final = range(0, len(TEXTS), 12)
"""Rounds of the fast tests: in each one each value has another text."""
_ELEMENT: Final = 0
_KEY: Final = "example.org/key"
_ON: Final[dict[str, Any]] = {
    "backup": {"schedule": "0 1 * * *"},
    "gateway": {"enabled": True, "parentRefs": [{"name": "x"}]},
    "ingress": {"enabled": True},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
_WITHOUT: Final[dict[str, tuple[Place, ...]]] = {
    "claims": (
        *(("replicaSecret",), ("replicaTlsSecret",), ("backup", "url")),
        *(("jobs", "output", "uri"), ("jobs", "archive", "uri")),
        *(("persistence", "storageClass"), ("persistence", "annotations", _KEY)),
        ("persistence", "size"),
    ),
    "replicas": (
        *(("persistence", "existingClaim"), ("backup", "existingClaim")),
        *(("jobs", "output", "existingClaim"), ("jobs", "archive", "existingClaim")),
    ),
}
"""Values that exclude others."""
_FREE: Final[dict[Place, object]] = {
    ("jobs", "driver", "envFrom"): [{"secretRef": {"name": "TEXT"}}],
    ("imagePullSecrets",): [{"name": "TEXT"}],
    ("tolerations",): [{"key": "TEXT", "tolerationSeconds": NUMBER}],
    ("affinity",): {"a": {"weight": NUMBER, "values": ["TEXT"]}},
    ("networkPolicy", "clients"): [{"podSelector": {"matchLabels": {"a": "TEXT"}}}],
    ("networkPolicy", "metrics"): [{"podSelector": {"matchLabels": {"b": "TEXT"}}}],
    ("networkPolicy", "driverEgress"): [{"to": [{"a": "TEXT"}]}],
    ("networkPolicy", "coordinatorEgress"): [{"to": [{"a": "TEXT"}]}],
    ("backup", "egress"): [{"to": [{"a": "TEXT"}]}],
}
"""Values whose form the schema leaves to Kubernetes."""
_NOT_COMPARED: Final = frozenset(
    {
        *(("nameOverride",), ("fullnameOverride",), ("global",)),
        *(("jobs", "expiryReport", "alertAfterHours"), ("backup", "alertAfterHours")),
    }
)
"""Names, which have a test below, and hours, of which alerts make seconds."""
schema: Final = json.loads(SCHEMA.read_text())


def _leaves(path: Place, node: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the path and schema of each value; one element of a list, one key of a map."""
    if "$ref" in node:
        target = schema
        for step in node["$ref"].split("/")[1:]:
            target = target[step]
        node = target
    for name, inner in node.get("properties", {}).items():
        yield from _leaves((*path, name), inner)
    if node.get("type") == "array" and node["items"].get("type") != "object":
        yield from _leaves((*path, _ELEMENT), node["items"])
    elif isinstance(node.get("additionalProperties"), dict):
        yield (*path, _KEY), node["additionalProperties"]
    elif "properties" not in node and "enum" not in node:
        yield path, node


VALID: Final = {
    path: jsonschema_rs.validator_for(node).is_valid
    for path, node in _leaves((), schema)
    if path not in _NOT_COMPARED
}


def _put(values: dict[str, Any], path: Place, value: object) -> None:
    inner: Any = values
    for step, following in itertools.pairwise(path):
        if isinstance(inner, dict):
            inner = inner.setdefault(step, [None] if following == _ELEMENT else {})
        else:
            inner = inner[step]
    inner[path[-1]] = value


def _rendered(values: dict[str, Any], release: str = "shop", *words: str) -> dict[Place, object]:
    """Every scalar of the rendered objects, by place."""
    done = _run("template", release, *words, values=values)
    assert done.returncode == 0, done.stderr
    found: dict[Place, object] = {}
    for document in filter(None, load_all(done.stdout)):
        found.update(_scalars((document["kind"], document["metadata"]["name"]), document))
    return found


def _scalars(place: Place, node: object) -> Iterator[tuple[Place, object]]:
    """Yield each scalar, also those of files in a ConfigMap."""
    name = place[-1]
    if isinstance(node, dict):
        for key, value in node.items():
            assert isinstance(key, str), place
            yield from _scalars((*place, key), value)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _scalars((*place, index), value)
    elif isinstance(node, str) and isinstance(name, str) and name.endswith(".yaml"):
        for document in load_all(node):
            yield from _scalars((*place, "content"), document)
    elif isinstance(node, str) and isinstance(name, str) and name.endswith(".conf"):
        for each in parse(node.encode()):
            yield (*place, each.name), each.value
    else:
        yield place, node


def _base(kind: str) -> tuple[dict[str, Any], dict[Place, object]]:
    """Values with a marker in each place that may have one, and the markers."""
    values = copy.deepcopy(_ON)
    values |= {"shards": 2, "replicas": 3} if kind == "replicas" else {}
    markers: dict[Place, object] = {}
    for number, (path, is_valid) in enumerate(VALID.items(), 100):
        choices: tuple[object, ...] = (
            f"m{number}x.example",
            f"m{number}x",
            7_000_000 + 100 * number,
        )
        marker = next((each for each in choices if is_valid(each)), None)
        if marker is not None and path not in _WITHOUT[kind] and path not in _FREE:
            markers[path] = marker
            _put(values, path, marker)
    for path, value in _FREE.items():
        _put(values, path, value)
    return values, markers


def _chosen(path: Place, marker: object, number: int) -> object:
    """The value number ``number`` that may be in place of a marker; the marker without one."""
    if isinstance(marker, int):
        return NUMBER if VALID[path](NUMBER) else marker
    texts = [text for text in TEXTS if VALID[path](text) and not _is_refused(path, text)]
    return texts[number % len(texts)] if texts else marker


def _is_refused(path: Place, text: str) -> bool:
    return path[0] in ("store", "settings") and not (text.isascii() and text.isprintable())


def _check(kind: str, round_number: int) -> set[Place]:
    """Compare values as they arrive in one round; returns the values that arrived nowhere."""
    values, markers = _base(kind)
    before = _rendered(values)
    free = TEXTS[round_number % len(TEXTS)]
    chosen = {
        path: _chosen(path, marker, round_number + at)
        for at, (path, marker) in enumerate(markers.items())
    }
    changed = json.loads(json.dumps(values).replace('"TEXT"', json.dumps(free)))
    for path, value in chosen.items():
        _put(changed, path, value)
    after = _rendered(changed)
    shutdown = str(int(str(markers["terminationGracePeriodSeconds",])) - 5)
    seen: set[Place] = set()
    for place, value in before.items():
        expected = free if value == "TEXT" else value
        for path, marker in markers.items():
            if str(marker) in str(value):
                seen.add(path)
                plain = value == marker
                expected = (
                    chosen[path] if plain else str(expected).replace(str(marker), str(chosen[path]))
                )
        is_calculated = value == shutdown or place[1] == "shop-mqstore-auth"
        if not is_calculated and not str(place[-1]).startswith("checksum"):
            assert (place, after.get(place)) == (place, expected)
            assert type(after[place]) is type(expected), place
    return markers.keys() - seen


@pytest.mark.parametrize("kind", _WITHOUT)
@pytest.mark.parametrize("round_number", ROUNDS)
def test_each_value_arrives_as_it_was_given(kind: str, round_number: int) -> None:
    assert _check(kind, round_number) == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", _WITHOUT)
@pytest.mark.parametrize("round_number", set(range(len(TEXTS))) - set(ROUNDS))
def test_each_value_arrives_with_every_text(kind: str, round_number: int) -> None:
    assert _check(kind, round_number) == set()


@pytest.mark.parametrize("name", ["null", "yes", "1e3", "0123"])
def test_names_and_labels_are_text(name: str) -> None:
    """Those of a release, a namespace, and of everything that has the release's name."""
    values = {**_ON, "backup": {}, "ingress": {"enabled": True, "writerHost": "w.example.org"}}
    values |= {"fullnameOverride": name if name[0].isalpha() else "shop", "gateway": {}}
    found = _rendered(values, name, "--namespace", name)
    labels = {place: value for place, value in found.items() if "labels" in place[-2:]}
    names = {place: value for place, value in found.items() if place[-1] in ("name", "namespace")}
    assert labels
    for place, value in {**labels, **names}.items():
        assert isinstance(value, str), place
    instance = {v for place, v in found.items() if place[-1] == "app.kubernetes.io/instance"}
    assert instance == {name}


@pytest.mark.parametrize("text", ["a\nb = c", "é", "\t"])
def test_a_setting_that_no_settings_file_has_is_refused(text: str) -> None:
    done = _run("template", "shop", values={"store": {"keepForGroups": text}})
    assert "setting keepForGroups has a character that is not printable ASCII" in done.stderr
