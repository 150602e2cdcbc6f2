"""The OpenAPI documents hold: what they allow is answered as they say, the rest is refused.

Whatever route is added is tested by being in the document.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.schemas import OpenApiSchema

from mqstore.client import Client, NewMessage, Target
from mqstore.wire.operation import all_operations
from tests.long_runs import few_first
from tests.services.service_processes import Run, running

TOPIC: Final = "orders"
"""The examples' topic: it is there, so that generated requests get somewhere."""
SEED: Final = 20261122
FEW: Final = 1
MANY: Final = 60
# Rules between fields are documented in words only; so are limits of whole requests.
ACCEPTED: Final = ["2xx", "400", "404", "409", "412", "413", "422", "431"]
CONFIG: Final = SchemathesisConfig.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
            "negative_data_rejection": {
                "expected-statuses": ["400", "404", "409", "413", "415", "422", "431"]
            },
        },
        "operations": [
            {  # which addresses may be called is the operator's choice
                "include-name": "PUT /v1/producers/{group}/{name}",
                "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "403"]}},
            }
        ],
    }
)
COORDINATOR: Final = "transaction-coordinator"
TARGETS: Final = {
    "store-writer": Target.WRITER,
    "query": Target.QUERY,
    COORDINATOR: Target.COORDINATOR,
}
SERVICES: Final = (
    "store-writer",
    "query",
    pytest.param(COORDINATOR, marks=pytest.mark.xdist_group("coordinator")),
)


@dataclass(frozen=True)
class Documented:
    """A running service with its document."""

    name: str
    run: Run
    url: str

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/openapi.json").json()
        return found

    def schema(self) -> OpenApiSchema:
        return schemathesis.openapi.from_dict(self.document(), config=CONFIG)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A store of its own: what is sent here may delete or change anything."""
    with running(tmp_path_factory.mktemp("store") / "store") as found:
        with found.client() as client:
            _provide(client)
        yield found


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Documented:
    if request.param == COORDINATOR:
        run = request.getfixturevalue("with_coordinator")
        return Documented(COORDINATOR, run, run.coordinator_url)
    run = request.getfixturevalue("run")
    url = run.writer_url if request.param == "store-writer" else run.query_url
    return Documented(request.param, run, url)


def _provide(client: Client) -> None:
    """Create the objects that the examples name, whatever earlier requests did to them."""
    client.put_writes(paused=False)
    client.create_topic(TOPIC)
    client.produce(TOPIC, [NewMessage(body="hello", keys=("order-1",))])


def test_the_document_has_the_operations_of_the_contract_and_no_others(
    service: Documented,
) -> None:
    found = {
        (method.upper(), path, operation["operationId"])
        for path, operations in service.document()["paths"].items()
        for method, operation in operations.items()
        if operation["tags"] != ["operations"]
    }
    expected = {
        (each.method, each.path.replace(":path}", "}"), each.name)
        for each in all_operations()
        if TARGETS[service.name] in each.targets
    }
    assert found == expected


@pytest.mark.slow
def test_each_operation_refuses_a_compressed_body(service: Documented) -> None:
    content = gzip.compress(b"{}")
    for each in all_operations():
        if TARGETS[service.name] in each.targets:
            path = re.sub(r"\{\w+(:path)?\}", "1", each.path)
            kind = next(iter(each.request_content), "application/json")
            headers = {"content-encoding": "gzip", "content-type": kind}
            found = httpx.request(each.method, service.url + path, content=content, headers=headers)
            assert found.status_code == 415, each.name
            assert found.json()["type"].endswith(":unsupported-media-type")
            assert "is not read; send the body" in found.json()["detail"]


@pytest.mark.slow
def test_lists_are_compressed_on_request(run: Run) -> None:
    with run.client() as client:
        for number in range(100):
            client.create_topic(f"compressed-{number}", queues=1)
            client.put_group(f"compressed-{number}")
            client.commit(f"compressed-{number}", TOPIC, {0: 0})
        client.produce(TOPIC, [NewMessage(body="x" * 99, keys=("listed",)) for _ in range(99)])
    found = f"/v1/topics/{TOPIC}/messages?key=listed&limit=99"
    doors = [(run.writer_url, "/v1/topics"), (run.writer_url, "/v1/groups")]
    doors += [(run.query_url, "/v1/lag"), (run.query_url, found)]
    for url, path in doors:
        for accepts, coding in (("gzip", "gzip"), ("identity", None)):
            reply = httpx.get(url + path, headers={"accept-encoding": accepts})
            assert reply.status_code == 200, path
            assert reply.headers.get("content-encoding") == coding, path


def _never_ends(operation: APIOperation[Any, Any, Any, Any]) -> bool:
    """Streams of events have tests of their own."""
    answers = operation.definition.raw["responses"].values()
    return any("text/event-stream" in each.get("content", {}) for each in answers)


def _wait_not(case: Case[Any]) -> None:
    """A poll that may wait is answered at once, whether anything comes or not."""
    body: Any = case.body
    wait = body.get("wait") if isinstance(body, dict) else None
    if isinstance(wait, int | float) and 0 < wait <= 30:
        body["wait"] = 0


def _hold(service: Documented, mode: GenerationMode, examples: int) -> None:
    bounded = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with service.run.client() as client:
        for result in service.schema().get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if _never_ends(operation):
                continue
            if mode is GenerationMode.NEGATIVE and not any(
                (operation.query, operation.path_parameters, operation.body)
            ):
                continue  # nothing that could be wrong

            @seed(SEED)
            @bounded
            @given(operation.as_strategy(generation_mode=mode))
            def check(case: Case[Any]) -> None:
                _wait_not(case)
                case.call_and_validate(base_url=service.url)
                if case.method != "GET":
                    client.put_writes(paused=False)

            check()
            _provide(client)


@pytest.mark.parametrize("mode", few_first([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
@pytest.mark.slow
def test_service_keeps_to_its_document(service: Documented, mode: GenerationMode) -> None:
    _hold(service, mode, FEW)


@pytest.mark.timeout(900)
@pytest.mark.nightly
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_service_keeps_to_its_document_for_long(service: Documented, mode: GenerationMode) -> None:
    _hold(service, mode, MANY)


def test_half_a_surrogate_pair_in_a_body_path_or_query_is_no_defect(service: Documented) -> None:
    document = service.document()
    sent = 0
    with service.run.client() as client, httpx.Client(base_url=service.url, timeout=60) as http:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if "text/event-stream" in str(operation["responses"]):
                    continue
                for url, body in _with_half_pairs(document, path, operation):
                    headers = {"content-type": "application/json"}
                    content = None if body is None else json.dumps(body)
                    answer = http.request(method, url, content=content, headers=headers)
                    assert answer.status_code != 500, (method, url, content, answer.text)
                    sent += 1
        client.put_writes(paused=False)
        _provide(client)
    assert sent > 50


HALF: Final = "\ud800"
HALF_QUOTED: Final = "%ED%A0%80"
_Json = Any


def _with_half_pairs(
    document: dict[str, Any], path: str, operation: dict[str, Any]
) -> Iterator[tuple[str, _Json]]:
    """Requests of an operation, with half a pair in one place each."""
    parameters = [_resolved(document, each) for each in operation.get("parameters", ())]
    names = [each["name"] for each in parameters if each["in"] == "path"]
    plain = path.format(**dict.fromkeys(re.findall(r"{(\w+)", path), "1"))
    bodies = [None]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        made = _made(document, content["schema"])
        bodies = list(_broken(made)) or [made]
        for body in bodies:
            yield plain, body
    for name in names:
        values = {each: HALF_QUOTED if each == name else "1" for each in names}
        yield path.replace(":path}", "}").format(**values), bodies[0]
    for each in parameters:
        if each["in"] == "query":
            yield f"{plain}?{each['name']}={HALF_QUOTED}", bodies[0]


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _made(document: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> _Json:
    """A value with every field; it satisfies types, constants, enums and minimums."""
    schema = _resolved(document, schema)
    for choices in ("anyOf", "oneOf", "allOf"):
        if choices in schema:
            return _made(document, schema[choices][0], depth)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {}) if depth < 6 else {}
        made = {name: _made(document, each, depth + 1) for name, each in fields.items()}
        extra = schema.get("additionalProperties")
        return made | ({"a": _made(document, extra, depth + 1)} if isinstance(extra, dict) else {})
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        return [_made(document, each, depth + 1) for each in items] if depth < 6 else []
    values = {"integer": int(schema.get("minimum", 1)), "number": 1, "boolean": False, "null": None}
    return values.get(str(kind), "a")


def _broken(value: _Json) -> Iterator[_Json]:
    """The value with half a pair in one of its strings or names of fields, for each of these."""
    if isinstance(value, str):
        yield value + HALF
        yield HALF
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from ([*value[:number], other, *value[number + 1 :]] for other in _broken(each))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from ({**value, name: other} for other in _broken(each))
            yield {**value, name + HALF: each}


def test_document_says_all_that_a_reader_needs(service: Documented) -> None:
    ids = []
    for path, operations in service.document()["paths"].items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation["summary"], place
            assert operation["tags"], place
            if path.startswith("/v1/"):
                assert {"401", "403", "421", "429", "503"} <= operation["responses"].keys(), place
            for status, response in operation["responses"].items():
                if int(status) >= 400 and not path.startswith("/healthz/"):
                    assert "application/problem+json" in response["content"], (place, status)
    assert len(ids) == len(set(ids))


def test_the_idempotency_key_is_documented_where_it_is_honoured(service: Documented) -> None:
    documented = {
        (method, path)
        for path, operations in service.document()["paths"].items()
        for method, operation in operations.items()
        for each in operation.get("parameters", ())
        if each["name"] == "Idempotency-Key"
    }
    honoured = {
        "store-writer": {("post", "/v1/topics/{topic}/messages"), ("post", "/v1/transactions")},
        COORDINATOR: {("post", "/v1/transactions")},
    }
    assert documented == honoured.get(service.name, set())


def test_each_route_of_query_is_shown_by_an_example(run: Run) -> None:
    document = httpx.get(f"{run.query_url}/openapi.json").json()
    lacking = [
        f"{path}: {name}"
        for path, operations in document["paths"].items()
        if path.startswith("/v1/")
        for operation in operations.values()
        for name in _without_example(operation)
    ]
    assert lacking == []


def _without_example(operation: dict[str, Any]) -> Iterator[str]:
    """Required parameters, and answers that are text."""
    for each in operation.get("parameters", ()):
        if each.get("required") and not {"example", "examples"} & each.keys():
            yield each["name"]
    for media, content in operation["responses"]["200"].get("content", {}).items():
        if media in ("application/json", "text/event-stream") and "example" not in content:
            yield media
