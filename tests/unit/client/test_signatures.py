"""The methods of the clients as people and editors see them: parameters, results, docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mqstore.client import AsyncClient, Client, NewMessage
from mqstore.client.calls import produce

METHODS = [
    pytest.param(method, id=f"{client.__name__}.{name}")
    for client in (Client, AsyncClient)
    for name, method in vars(client).items()
    if callable(method) and not name.startswith("_")
]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_shows_its_parameters_its_result_and_what_it_does(
    method: Callable[..., Any],
) -> None:
    signature = inspect.signature(method)
    kinds = {each.kind for each in signature.parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    others = list(signature.parameters.values())[1:]
    assert all(each.annotation is not inspect.Parameter.empty for each in others)
    assert str(signature.return_annotation).count("Call") == 0
    assert signature.return_annotation not in ("", "Any", inspect.Signature.empty)
    assert inspect.getdoc(method)


def test_help_of_produce_names_what_it_takes_and_returns() -> None:
    expected = (
        "(self, /, topic: 'str', messages: 'NewMessage | Sequence[NewMessage]', *, "
        "durability: 'Durability | None' = None, shard: 'int | None' = None, "
        "patience_s: 'float' = 0.0) -> 'Produced'"
    )
    assert str(inspect.signature(Client.produce)) == expected
    assert str(inspect.signature(AsyncClient.produce)) == expected
    assert Client.produce.__name__ == "produce"
    assert inspect.signature(Client.follow).return_annotation.startswith("Generator[")


def test_a_single_message_needs_no_list() -> None:
    message = NewMessage(body="one", uniq_key="k")
    assert produce("t", message) == produce("t", [message])
