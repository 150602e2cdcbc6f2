"""Requests that the OpenAPI documents allow or forbid never cause an internal error."""

from __future__ import annotations

import random
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.services.service_processes import Run

pytestmark = pytest.mark.slow

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
KEY_QUERY = ("key", "from", "to", "limit", "cursor")
PULL = ("offset", "max", "tags", "sql", "body", "bodyMax", "inflate", "unknown")
PAGE = ("topic", "key", "limit", "cursor")
QUESTIONS = {
    "/v1/messages": ("physicalOffset", "bodyMax"),
    "/v1/messages/{text}": ("topic",),
    "/v1/messages/{text}/body": ("topic", "inflate"),
    "/v1/messages/{text}/trace": ("topic",),
    "/v1/topics/{text}/traces": PAGE,
    f"/v1/topics/{TOPIC}/traces": PAGE,
    "/v1/lag": PAGE,
    "/v1/groups/{text}/lag": ("topic",),
    "/v1/segments/{text}": ("unknown",),
    "/v1/topics/{text}/events": ("from", "tags", "sql"),
    "/v1/topics/{text}/messages": KEY_QUERY,
    f"/v1/topics/{TOPIC}/messages": KEY_QUERY,
    "/v1/topics/{text}/queues": (),
    "/v1/topics/{text}/queues/{number}/messages": PULL,
    f"/v1/topics/{TOPIC}/queues/{{number}}/messages": PULL,
    f"/v1/topics/{TOPIC}/queues/0/messages": PULL,
    f"/v1/topics/{TOPIC}/queues/0/offset": ("timestamp",),
    "/{text}": ("unknown",),
}
"""Paths, and the parameters that are sent to them."""
OF_TRANSACTIONS = {
    "/v1/transactions": ("state", "group", "olderThan", "limit", "cursor", "unknown"),
    "/v1/transactions/{text}": (),
    "/v1/transactions/0-{text}": ("unknown",),
    "/v1/producers": ("group",),
}
TO_COORDINATOR = {
    "/v1/transactions": ("producerGroup", "topic", "messages", "checkImmunitySeconds", "shard"),
    "/v1/transactions/0-{text}:commit": ("reason",),
    "/v1/transactions/0-{text}:rollback": ("reason",),
    "/v1/transactions/{text}:resolve": ("decision", "reason"),
    "/v1/checks": ("producerGroup", "max"),
}


@st.composite
def questions(draw: st.DrawFn, of: dict[str, tuple[str, ...]]) -> str:
    path, names = draw(st.sampled_from(sorted(of.items())))
    url = path.format(text=_quoted(draw(texts)), number=_quoted(draw(numbers)))
    given_names = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    return url + "?" + "&".join(f"{name}={_quoted(draw(numbers))}" for name in given_names)


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
    @given(questions(QUESTIONS))
    def evaluate(question: str) -> None:
        _assert_meant(http.get(services.query_url + question))

    with http:
        evaluate()


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


def test_no_pin_is_a_defect(services: Run, http: httpx.Client) -> None:
    @fuzzing
    @given(texts, json_values | st.fixed_dictionaries({"fromOffset": json_values}))
    def put(name: str, body: object) -> None:
        url = f"{services.writer_url}/v1/store/pins/x{_quoted(name)}"
        _assert_meant(http.put(url, json=body))
        _assert_meant(http.delete(url))

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


@pytest.mark.xdist_group("coordinator")
def test_no_question_of_transactions_is_a_defect(with_coordinator: Run) -> None:
    with httpx.Client() as http:

        @fuzzing
        @given(questions(OF_TRANSACTIONS))
        def evaluate(question: str) -> None:
            _assert_meant(http.get(with_coordinator.coordinator_url + question))

        evaluate()


@pytest.mark.xdist_group("coordinator")
def test_no_request_to_the_coordinator_is_a_defect(with_coordinator: Run) -> None:
    given_values = st.sampled_from(["orders", "commit"]) | st.lists(messages, max_size=3)

    with httpx.Client() as http:

        @fuzzing
        @given(st.sampled_from(sorted(TO_COORDINATOR)), texts, st.data())
        def send(path: str, text: str, data: st.DataObject) -> None:
            fields = dict.fromkeys(TO_COORDINATOR[path], given_values | json_values)
            body = data.draw(st.fixed_dictionaries({}, optional=fields) | json_values)
            url = with_coordinator.coordinator_url + path.format(text=_quoted(text))
            _assert_meant(http.post(url, json=body))

        send()


@pytest.mark.xdist_group("coordinator")
def test_no_registration_of_a_producer_is_a_defect(with_coordinator: Run) -> None:
    urls = texts | st.builds(
        "{}://{}:{}/{}".format, st.sampled_from(["https", "ftp"]), *[texts] * 3
    )

    with httpx.Client() as http:

        @fuzzing
        @given(texts, texts, urls | json_values, json_values)
        def register(group: str, name: str, url: object, lease_s: object) -> None:
            path = f"/v1/producers/x{_quoted(group)}/x{_quoted(name)}"
            body = {"url": url, "secret": "s" * 32, "leaseSeconds": lease_s}
            for each in (body, {**body, "leaseSeconds": 10}):
                _assert_meant(http.put(with_coordinator.coordinator_url + path, json=each))

        register()
