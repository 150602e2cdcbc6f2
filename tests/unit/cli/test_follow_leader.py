"""The progress of ``mqstore follow``, and the address that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from mqstore.cli.follow_leader import _address_of, print_progress, progress_line
from mqstore.cli.main import app
from mqstore.client import Client, Following, Replication
from mqstore.wire.examples.replication import FOLLOWER, PROMOTED


def following(**changes: object) -> Following:
    return Following.model_validate(FOLLOWER["following"] | changes)


@pytest.mark.parametrize(
    ("broker", "address"),
    [
        ("10.1.2.3", ("10.1.2.3", 10911)),
        ("broker-a:30911", ("broker-a", 30911)),
        ("[fd00::1]", ("[fd00::1]", 10911)),
        ("[fd00::1]:30911", ("[fd00::1]", 30911)),
    ],
)
def test_the_port_of_a_broker_is_rocketmqs_unless_it_is_given(
    broker: str, address: tuple[str, int]
) -> None:
    assert _address_of(broker) == address


@pytest.mark.parametrize("broker", ["broker:", "broker:x", "broker:0", "broker:65535"])
def test_what_is_no_address_is_refused(broker: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        _address_of(broker)


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_what_is_no_port_is_refused_and_makes_no_store(port: str, tmp_path: Path) -> None:
    words = ["follow", "broker", "--ha-port", port, "--store", str(tmp_path / "store")]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert not (tmp_path / "store").exists()


def test_a_line_says_how_far_the_copy_is_and_how_fast() -> None:
    assert progress_line(following(), 3 << 20) == (
        "following 10.1.2.3:10912: 1024.0 MiB of 1024.0 MiB, lag 1024 bytes, 3.0 MiB/s"
    )
    assert progress_line(following(tablesReason="no reply"), 0.0).endswith(
        "lag 1024 bytes; topics, groups and offsets are not copied: no reply"
    )


def test_the_progress_ends_with_the_promotion(capsys: pytest.CaptureFixture[str]) -> None:
    class Leading:
        def replication(self) -> Replication:
            return Replication.model_validate(PROMOTED)

    print_progress(cast(Client, Leading()), lambda: False)
    assert capsys.readouterr().err == "mqstore: promoted: the store takes messages\n"


def test_a_line_says_why_the_leader_is_not_followed() -> None:
    found = following(state="refused", reason="another log")
    assert progress_line(found, 0.0) == "refused: another log"
