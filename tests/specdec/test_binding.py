"""Addresses as people write them: what ZeroMQ would take for another one is refused."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
import zmq

from specdec.errors import LinkLost, OptionsError
from specdec.link.binding import check_address, is_ipv6
from specdec.link.dealer import Dealer
from specdec.link.router import bind_router, new_router

GOOD = ("tcp://127.0.0.1:5555", "tcp://[::1]:1", "tcp://name:65535", "fleet://10.0.0.1:5554")


@pytest.mark.parametrize("address", GOOD)
def test_an_address_is_one(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:5555", "tcp://127.0.0.1:*"])
def test_free_ports_and_all_hosts_are_for_listening(address: str) -> None:
    check_address(address, schemes=("tcp://",), bind=True)


@pytest.mark.parametrize(("address", "is_one"), [("tcp://[::1]:0", True), ("tcp://*:0", True), ("tcp://a:5", False)])
def test_all_addresses_of_a_machine_are_those_of_both_kinds(address: str, is_one: bool) -> None:
    assert is_ipv6(address) is is_one


@pytest.mark.parametrize(
    ("bind", "hosts"),
    [
        ("tcp://*:0", {"127.0.0.1", "::1"}),
        ("tcp://[::1]:0", {"::1"}),
        ("tcp://127.0.0.1:0", {"127.0.0.1"}),
    ],
)
def test_who_listens_is_reached_by_these_addresses(bind: str, hosts: set[str]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with zmq.Context() as context, new_router(context) as router:
        bind_router(router, bind, OptionsError)
        port = int(router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        reached = set()
        for host in ("127.0.0.1", "::1"):
            with suppress(ConnectionRefusedError), socket.create_connection((host, port), timeout=5):
                reached.add(host)
        assert reached == hosts
        with new_router(context) as other, pytest.raises(LinkLost, match=r"^it cannot listen on .*: choose one$"):
            bind_router(other, router.getsockopt_string(zmq.LAST_ENDPOINT), LinkLost, "it ", "choose one")


BAD = (
    *("", "foo", "tcp://", "tcp://:5555", "tcp://a", "tcp://a:", "tcp://a:x", "tcp://a:99999", "tcp://a:-1"),
    *("tcp://a: 1", "tcp://a:٣", "udp://a:1", "tcp://a b:1", "TCP://a:1", "tcp://a:1/x", "tcp://a:0", "tcp://a:*"),
    *("tcp://a:000001", "tcp://a\x1b[2J:1", "tcp://a\0:1"),
)


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address_is_refused_with_what_one_looks_like(address: str) -> None:
    with pytest.raises(OptionsError, match=r"cannot be used: (give tcp://HOST:PORT|port 0)"):
        check_address(address)


@pytest.mark.parametrize("address", ["tcp://::1:5555", "fleet://fd00::1:5600", "tcp://[::1:1", "tcp://::1]:1"])
def test_an_ipv6_address_without_brackets_is_refused_with_how_it_is_written(address: str) -> None:
    with pytest.raises(OptionsError, match=r"an IPv6 address is written (tcp|fleet)://\[::1\]:PORT$"):
        check_address(address)


def test_a_port_that_wraps_around_is_not_connected_to() -> None:
    with pytest.raises(LinkLost, match="cannot be used"):
        Dealer("nobody", 1000).open("tcp://127.0.0.1:71091")
