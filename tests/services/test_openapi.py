"""Both OpenAPI documents hold: what they allow is answered as they say, the rest is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests.services.service_processes import Run

TOPIC: Final = "orders"
"""The examples' topic: it is there, so that generated requests get somewhere."""
CONFIG: Final = SchemathesisConfig.from_dict(
    {
        "checks": {
            # Rules between fields are told in words only; so are limits of whole requests.
            "positive_data_acceptance": {"expected-statuses": ["2xx", "400", "404", "422", "431"]},
            "negative_data_rejection": {"expected-statuses": ["400", "404", "415", "422", "431"]},
        }
    }
)
bounded = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _schema(services: Run, service: str) -> OpenApiSchema:
    with services.client() as client:
        client.create_topic(TOPIC)
    url = services.writer_url if service == "store-writer" else services.query_url
    return schemathesis.openapi.from_url(f"{url}/openapi.json", config=CONFIG)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("service", ["store-writer", "query"])
def test_service_keeps_to_its_document(services: Run, service: str, mode: GenerationMode) -> None:
    for result in _schema(services, service).get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not any(
            (operation.query, operation.path_parameters, operation.body)
        ):
            continue  # nothing that could be wrong

        @bounded
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Case[Any]) -> None:
            case.call_and_validate()

        check()
