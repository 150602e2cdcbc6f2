"""Each distribution works when it is installed alone, with nothing of the others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.services.fresh_installs import Installation, build_wheel
from tests.unit.storage.stores import CONFIG, open_store, put_some

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("fresh-installs"),  # they install the same wheels
]

SERVER_PACKAGES: Final = {
    *("fastapi", "starlette", "uvicorn", "uvloop", "kubernetes", "pyspark", "pyarrow"),
    *("mqstore-storage", "mqstore-service", "mqstore-writer", "mqstore-query"),
    *("mqstore-coordinator", "mqstore-jobs"),
}


def test_the_client_installs_alone_and_without_server_packages(tmp_path: Path) -> None:
    wheels = [build_wheel(folder) for folder in ("libs/wire", "libs/client")]
    installation = Installation(tmp_path / "venv", *wheels)

    installed = installation.distributions()
    assert installed >= {"mqstore-client", "httpx", "pydantic"}
    assert installed & SERVER_PACKAGES == set()
    assert installation.licenses("mqstore-client").endswith("dist-info/licenses/LICENSE")

    code = "from mqstore.client import Client; print(Client.produce.__name__)"
    assert installation.run("python", "-c", code).stdout == "produce\n"
    found = installation.run("python", "-c", "import mqstore.storage")
    assert "No module named 'mqstore.storage'" in found.stderr
    assert not [each for each in installed if each.startswith("opentelemetry")]
    found = installation.run("python", "-c", "import mqstore.client.otel")
    assert found.stderr.endswith("pip install 'mqstore-client[otel]'\n")


def test_the_command_installs_alone_and_names_the_extras_that_it_lacks(tmp_path: Path) -> None:
    wheels = [build_wheel(folder) for folder in ("libs/wire", "libs/client", "libs/cli")]
    installation = Installation(tmp_path / "venv", *wheels)
    assert installation.distributions() & SERVER_PACKAGES == set()

    for program in ("mqstore", "kubectl-mqstore"):
        assert installation.run(program, "--help").returncode == 0

    with refusing_port() as port:
        address = f"http://127.0.0.1:{port}"
        trace = ["message", "trace", "order-1", "--topic", "orders", "--query-url", address]
        found = installation.run("mqstore", *trace)
    assert found.returncode == 3
    assert f"{address} does not answer" in found.stderr

    for extra, words in {"store": ["store", "verify", "x"], "run": ["run"]}.items():
        found = installation.run("mqstore", *words)
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr.endswith(f"pip install 'mqstore-cli[{extra}]'\n")


def test_the_tools_of_a_store_need_the_engine_alone(tmp_path: Path) -> None:
    folders = ("libs/wire", "libs/client", "libs/cli", "libs/storage")
    wheels = [build_wheel(folder) for folder in folders]
    installation = Installation(tmp_path / "venv", *wheels)
    assert installation.distributions() & SERVER_PACKAGES == {"mqstore-storage"}

    directory = tmp_path / "store"
    with open_store(directory) as store:
        put_some(store, 10)
    sizes = [f"--hash-slots={CONFIG.max_hash_slot_num}", f"--index-num={CONFIG.max_index_num}"]
    found = installation.run("mqstore", "store", "verify", str(directory), *sizes)
    assert (found.returncode, found.stderr) == (0, "")

    found = installation.run("mqstore", "run")
    assert (found.returncode, found.stdout) == (2, "")
    assert "mqstore.service is not installed" in found.stderr


@contextmanager
def refusing_port() -> Iterator[int]:
    """A loopback port that is bound and does not listen, so that connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
