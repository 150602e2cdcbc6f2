"""Addresses that callbacks may call; all others are refused in any notation."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.coordinator.targets import Allowed, Target, TargetRefused
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings

PUBLIC = "93.184.216.34"


def allowed(**settings: object) -> Allowed:
    given = {"callback_hosts": "billing.example.org, *.shop.example.org", **settings}
    return Allowed.of(Settings.model_validate(given))


def target(text: str, *addresses: str, rules: Allowed | None = None) -> Target:
    async def lookup(host: str, port: int) -> list[str]:
        return list(addresses)

    return asyncio.run((rules or allowed()).target(text, lookup))


def test_a_host_that_the_operator_named_is_called_at_the_address_that_was_found() -> None:
    found = target("https://billing.example.org/checks?x=1", PUBLIC)
    assert str(found.pinned) == f"https://{PUBLIC}/checks?x=1"
    assert found.host == "billing.example.org"
    assert target("https://BILLING.example.org./", PUBLIC).address == PUBLIC
    assert target("https://a.shop.example.org/", PUBLIC).address == PUBLIC


def test_an_address_of_ipv6_is_pinned_too() -> None:
    rules = allowed(callback_hosts="fd00::/8", callback_ports="8443")
    found = target("https://[fd00::7]:8443/c", "fd00::7", rules=rules)
    assert str(found.pinned) == "https://[fd00::7]:8443/c"


@pytest.mark.parametrize(
    "text",
    [
        "http://billing.example.org/",
        "https://billing.example.org:8080/",
        "https://other.example.org/",
        "https://shop.example.org/",
        "https://a.b.shop.example.org/",
        "https://billing.example.org@evil.org/",
        "https://user:password@billing.example.org/",
        "https://billing.example.org#evil.org",
        "https://billing.example.org.evil.org/",
        "https://93.184.216.34/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://[::ffff:127.0.0.1]/",
        "ftp://billing.example.org/",
        "file:///etc/passwd",
        "billing.example.org",
        "https://",
        "https://billing.example.org:0/",
        "https://billing.example.org:99999/",
        "https://billing.example.org\n.evil.org/",
        "https://billing.example.org/" + "x" * 1_000,
        "",
    ],
)
def test_what_the_operator_did_not_name_is_refused(text: str) -> None:
    with pytest.raises(TargetRefused):
        target(text, PUBLIC)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1"),
        *("::1", "::", "fe80::1", "fe80::1%lo", "fd00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1"),
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        *("192.0.0.192", "192.0.0.1", "192.88.99.1", "168.63.129.16", "100.100.100.200"),
        *("fec0::1", "3fff::1", "5f00::1", "64:ff9b:1::1", "2001:db8::1", "::7f00:1", "100::1"),
    ],
)
def test_a_name_that_leads_to_an_address_within_is_refused(address: str) -> None:
    with pytest.raises(TargetRefused, match="which callbackHosts does not allow"):
        target("https://billing.example.org/", PUBLIC, address)


@given(st.ip_addresses())
def test_only_public_addresses_and_allowed_blocks_are_ever_called(
    address: IPv4Address | IPv6Address,
) -> None:
    block = ip_network("10.1.0.0/16")
    rules = allowed(callback_hosts="billing.example.org,10.1.0.0/16")
    try:
        target("https://billing.example.org/", str(address), rules=rules)
    except TargetRefused:
        assert address not in block
    else:
        assert address.is_global or address in block


def test_a_block_allows_what_is_not_public() -> None:
    rules = allowed(
        callback_hosts="billing.svc,10.1.0.0/16", callback_http=True, callback_ports="80,8080"
    )
    assert target("http://billing.svc:8080/", "10.1.2.3", rules=rules).address == "10.1.2.3"
    assert target("http://10.1.2.3/", "10.1.2.3", rules=rules).address == "10.1.2.3"
    with pytest.raises(TargetRefused):
        target("http://billing.svc:8080/", "10.2.0.1", rules=rules)


def test_without_any_host_nothing_may_be_called() -> None:
    with pytest.raises(TargetRefused):
        target("https://billing.example.org/", PUBLIC, rules=allowed(callback_hosts=""))


def test_a_host_that_is_not_found_is_refused() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(TargetRefused, match="cannot be found"):
        asyncio.run(allowed().target("https://billing.example.org/", lookup))
    with pytest.raises(TargetRefused, match="no address"):
        target("https://billing.example.org/")


def test_ports_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        allowed(callback_ports="443,https")


def test_a_target_that_another_coordinator_looked_up_is_checked_again() -> None:
    url = "https://billing.example.org/checks"
    assert allowed().known(url, PUBLIC) == target(url, PUBLIC)
    for rules, address in ((allowed(), "10.0.0.1"), (allowed(callback_hosts=""), PUBLIC)):
        with pytest.raises(TargetRefused):
            rules.known(url, address)
