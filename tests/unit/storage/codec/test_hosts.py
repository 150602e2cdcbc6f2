from __future__ import annotations

import pytest
from hypothesis import given

from mqstore.storage.codec.hosts import Host
from mqstore.storage.errors import MessageInvalid
from tests.unit.storage.record_examples import hosts


def test_an_ipv4_host_is_printed_with_its_port() -> None:
    assert str(Host.parse("127.0.0.1", 10911)) == "127.0.0.1|10911"


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("::1", "0:0:0:0:0:0:0:1|10911"),
        ("fdf6:8534:ea1e:6cbe::912c", "fdf6:8534:ea1e:6cbe:0:0:0:912c|10911"),
        ("::ffff:1.2.3.4", "0:0:0:0:0:ffff:102:304|10911"),
    ],
)
def test_an_ipv6_host_is_printed_as_java_prints_it(address: str, printed: str) -> None:
    assert str(Host.parse(address, 10911)) == printed


def test_a_host_is_packed_with_a_port_of_4_bytes() -> None:
    assert Host.parse("127.0.0.1", 10911).packed.hex() == "7f00000100002a9f"
    assert Host.parse("::1", 1).packed.hex() == "0" * 31 + "1" + "00000001"


@given(hosts)
def test_unpacking_gives_back_what_was_packed(host: Host) -> None:
    assert Host.unpack(host.packed) == host
    assert host.is_v6 == (len(host.packed) == 20)


@pytest.mark.parametrize("size", [0, 7, 9, 16, 21])
def test_another_length_is_no_host(size: int) -> None:
    with pytest.raises(ValueError):
        Host.unpack(bytes(size))


@pytest.mark.parametrize(
    ("address", "port"),
    [("localhost", 1), ("1.2.3", 1), ("", 1), ("1.2.3.4", -1), ("1.2.3.4", 65536)],
)
def test_what_is_no_address_or_port_is_refused(address: str, port: int) -> None:
    with pytest.raises(MessageInvalid):
        Host.parse(address, port)
