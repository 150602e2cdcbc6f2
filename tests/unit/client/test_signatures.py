"""The methods of the clients as people and editors see them: parameters, results, docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mqstore import client
from mqstore.client import AsyncClient, Client, NewMessage, contract
from mqstore.client.calls import Calls
from mqstore.client.produce_calls import produce
from mqstore.wire.operation import Role, all_operations

METHODS = [
    pytest.param(method, id=f"{each.__name__}.{name}")
    for each in (Client, AsyncClient)
    for name in dir(each)
    if not name.startswith("_") and name != "from_env" and callable(method := getattr(each, name))
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


def test_each_operation_for_applications_has_a_method() -> None:
    sources = [inspect.getsource(sys.modules[each.__module__]) for each in Calls.__bases__]
    named = {name for text in sources for name in re.findall(r"contract\.(\w+)\.(\w+)", text)}
    called = [getattr(getattr(contract, module), name) for module, name in named]
    lacking = [
        each.name
        for each in all_operations()
        if each.role is not Role.SYSTEM and not each.path.startswith("/v1/internal/")
        if not any(each is one for one in called)
    ]
    assert lacking == []


def test_help_of_produce_names_what_it_takes_and_returns() -> None:
    expected = (
        "(self, /, topic: 'str', messages: 'NewMessage | Sequence[NewMessage]', *, "
        "durability: 'Durability | None' = None, shard: 'int | None' = None, "
        "patience_s: 'float' = 0.0) -> 'ProduceReply'"
    )
    assert str(inspect.signature(Client.produce)) == expected
    assert str(inspect.signature(AsyncClient.produce)) == expected
    assert Client.produce.__name__ == "produce"
    assert inspect.signature(Client.follow).return_annotation.startswith("Generator[")


def test_a_single_message_needs_no_list() -> None:
    message = NewMessage(body="one", uniq_key="k")
    assert produce("t", message) == produce("t", [message])


def test_help_of_a_new_message_names_its_fields_as_python_does() -> None:
    expected = (
        "(*, body: 'bytes | str' = b'', tags: 'str | None' = None, keys: 'Sequence[str]' = (), "
        "properties: 'Mapping[str, str] | None' = None, queue_id: 'int | None' = None, "
        "ordering_key: 'str | None' = None, "
        "flag: 'int' = 0, delay_level: 'int' = 0, delay_s: 'float | None' = None, "
        "deliver_at: 'datetime | str | int | None' = None, "
        "uniq_key: 'str | None' = None) -> 'None'"
    )
    assert str(inspect.signature(NewMessage)) == expected


def test_each_name_of_the_client_can_be_imported() -> None:
    found = {name: getattr(client, name) for name in vars(client)["__all__"]}
    assert len(found) > 120
    assert all(each.__name__ == name for name, each in found.items() if inspect.isclass(each))
    with pytest.raises(AttributeError, match="no attribute 'Topik'"):
        _ = client.Topik  # type: ignore[attr-defined]


def test_both_clients_have_the_same_methods() -> None:
    own = [
        {name for name in vars(each) if not name.startswith("_")} for each in (Client, AsyncClient)
    ]
    assert own[0] == own[1]


def test_a_body_is_sent_as_text_or_in_base64_with_its_checksum() -> None:
    assert NewMessage(body="x").as_json() == {"body": "x", "crc32c": 2839306131}
    assert NewMessage(body=b"\xff").as_json() == {"bodyBase64": "/w==", "crc32c": 4278190080}
