"""To which addresses a name may lead."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.runtime.security.networks import METADATA, Networks


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::5e"])
def test_public_addresses_are_allowed(address):
    assert Networks().allowed(address) == address


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "0.0.0.0"),
        *("169.254.169.254", "169.254.1.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:0808:0808::"),
        *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "fec0::1", "100::1"),
    ],
)
def test_others_are_not(address):
    assert Networks().allowed(address) is None


def test_a_listed_network_is_allowed():
    assert Networks(["::1/128"]).allowed("::1") == "::1"
    networks = Networks(["10.1.0.0/16", "fd12::/16"])
    assert networks.allowed("10.1.2.3") == "10.1.2.3"
    assert networks.allowed("::ffff:10.1.2.3") == "10.1.2.3"
    assert networks.allowed("fd12::1") == "fd12::1"
    assert networks.allowed("10.2.0.1") is None


def test_a_translator_leads_only_where_its_inner_address_may():
    networks = Networks(["64:ff9b::/96", "2002::/16"])
    assert networks.allowed("64:ff9b::8.8.8.8") == "64:ff9b::808:808"
    assert networks.allowed("2002:0808:0808::1") == "2002:808:808::1"
    for inner in ("127.0.0.1", "10.0.0.1", "169.254.169.254"):
        low = int(ipaddress.IPv4Address(inner))
        assert networks.allowed(f"64:ff9b::{low >> 16:x}:{low & 0xFFFF:x}") is None
        assert networks.allowed(f"2002:{low >> 16:x}:{low & 0xFFFF:x}::1") is None


@pytest.mark.parametrize("address", sorted(map(str, METADATA)))
def test_no_setting_allows_a_metadata_service(address):
    networks = Networks(["0.0.0.0/0", "::/0"])
    assert networks.allowed(address) is None
    if "." in address:
        low = int(ipaddress.IPv4Address(address))
        high, last = low >> 16, low & 0xFFFF
        for form in (
            f"::ffff:{address}",
            f"::{address}",
            f"::ffff:0:{address}",
            f"64:ff9b::{address}",
            f"64:ff9b:1::{address}",
            f"64:ff9b:1:{high:x}:{last >> 8:x}:{(last & 0xFF) << 8:x}::",
            f"fe80::5efe:{address}",
            f"2001:4860::200:5efe:{address}",
            f"2002:{high:x}:{last:x}::1",
        ):
            assert networks.allowed(form) is None, form


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_allowed(address):
    allowed = Networks().allowed(str(address))
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert allowed is None
