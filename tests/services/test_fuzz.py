"""Whatever the OpenAPI documents allow or forbid: no answer is a defect of ours."""

from __future__ import annotations

import random
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.services.service_processes import Run

EXAMPLES = 60
TOPIC = "fuzz"

texts = st.text(max_size=40)
numbers = st.integers(-(2**70), 2**70).map(str) | st.floats().map(str) | texts
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
FIELDS = ("body", "bodyBase64", "tags", "keys", "properties", "queueId", "flag", "delayLevel")
messages = st.fixed_dictionaries(
    {}, optional=dict.fromkeys((*FIELDS, "uniqKey", "unknown"), json_values)
)
paths = st.sampled_from(
    [
        "/v1/messages/{text}",
        "/v1/topics/{text}/messages",
        f"/v1/topics/{TOPIC}/messages",
        "/v1/topics/{text}/queues",
        "/v1/topics/{text}/queues/{number}/messages",
        f"/v1/topics/{TOPIC}/queues/{{number}}/messages",
        f"/v1/topics/{TOPIC}/queues/0/messages",
        f"/v1/topics/{TOPIC}/queues/0/offset",
        "/{text}",
    ]
)
parameters = st.dictionaries(
    st.sampled_from(
        ["key", "from", "to", "limit", "cursor", "offset", "max", "timestamp", "topic"]
    ),
    numbers,
    max_size=4,
)
fuzzing = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def http(services: Run) -> httpx.Client:
    with services.client() as client:
        client.create_topic(TOPIC, queues=2)
    return httpx.Client()


def _assert_meant(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["detail"]


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def test_no_question_is_a_defect(services: Run, http: httpx.Client) -> None:
    @fuzzing
    @given(paths, texts, numbers, parameters)
    def ask(path: str, text: str, number: str, query: dict[str, str]) -> None:
        url = path.format(text=_quoted(text), number=_quoted(number))
        pairs = "&".join(f"{name}={_quoted(value)}" for name, value in query.items())
        _assert_meant(http.get(f"{services.query_url}{url}?{pairs}"))

    with http:
        ask()


def test_no_produce_is_a_defect(services: Run, http: httpx.Client) -> None:
    @fuzzing
    @given(st.lists(messages, max_size=3), json_values | st.sampled_from(["sync", "async"]))
    def produce(batch: list[dict[str, object]], durability: object) -> None:
        body = {"messages": batch, "durability": durability}
        _assert_meant(http.post(f"{services.writer_url}/v1/topics/{TOPIC}/messages", json=body))

    with http:
        produce()


def test_no_topic_is_a_defect(services: Run, http: httpx.Client) -> None:
    @fuzzing
    @given(texts, json_values)
    def put(name: str, body: object) -> None:
        _assert_meant(http.put(f"{services.writer_url}/v1/topics/{_quoted(name)}x", json=body))

    with http:
        put()


def test_no_bytes_as_a_body_are_a_defect(services: Run, http: httpx.Client) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    url = f"{services.writer_url}/v1/topics/{TOPIC}/messages"
    types = ("application/json", "application/x-rocketmq-batch", "application/JSON; charset=x", "")
    with http:
        for _ in range(EXAMPLES):
            body = source.randbytes(source.randrange(200))
            headers = {"content-type": source.choice(types)}
            _assert_meant(http.post(url, content=body, headers=headers))
