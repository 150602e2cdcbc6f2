"""The pod's service account, as the claims of its token name it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from mqstore.service import kube_access


def token_of(claims: object) -> str:
    coded = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{coded}.signature"


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kube_access, "ACCOUNT_FOLDER", tmp_path)
    return tmp_path / "token"


def test_the_owner_of_a_lease_is_the_account_of_the_token(token: Path) -> None:
    account = {"name": "shop-coordinator", "uid": "8f0e"}
    token.write_text(token_of({"kubernetes.io": {"serviceaccount": account}}))
    assert kube_access.own_account() == {"apiVersion": "v1", "kind": "ServiceAccount", **account}


@pytest.mark.parametrize("text", ["", "no token", "a.b.c", token_of({}), token_of([])])
def test_a_token_that_names_no_account_gives_no_owner(token: Path, text: str) -> None:
    token.write_text(text)
    assert kube_access.own_account() is None


def test_without_a_token_there_is_no_owner(token: Path) -> None:
    assert not token.exists()
    assert kube_access.own_account() is None
