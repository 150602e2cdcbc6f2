"""One release for all tests that leave it as it was; it is installed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Release, namespace, small_values


@pytest.fixture(scope="session")
def release() -> Iterator[Release]:
    with namespace() as name:
        installed = Release(name, "shop", small_values())
        installed.install()
        yield installed
