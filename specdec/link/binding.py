# SPDX-License-Identifier: Apache-2.0
"""Checks of network addresses: their form, and whether only this machine can reach them."""

from __future__ import annotations

import ipaddress

from specdec.errors import OptionsError

SCHEMES = ("tcp://", "fleet://")
HIGHEST_PORT = 65_535


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach tcp://HOST:PORT. Names other than localhost count as reachable."""
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host in ("localhost", "lo"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_ipv6(address: str) -> bool:
    """Whether tcp://HOST:PORT names an IPv6 address, or * for all addresses of both kinds. ZeroMQ uses IPv6 only where
    it is told to, and would then prefer it for names, too. Without IPv6 on the machine, * is all IPv4 addresses.
    """
    return "[" in address or "//*:" in address


def is_port(text: str) -> bool:
    """Whether a text is the number of a port, 0 included."""
    return text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= HIGHEST_PORT


def _is_plain(host: str) -> bool:
    return host.isprintable() and not any(map(str.isspace, host))


def check_address(
    address: str,
    what: str = "address",
    error: type[Exception] = OptionsError,
    *,
    schemes: tuple[str, ...] = SCHEMES,
    bind: bool = False,
) -> None:
    """Raise `error` unless the address is SCHEMEHOST:PORT. ZeroMQ itself wraps ports above 65535 silently.

    bind: an address to listen on, where port 0 or * means any free port.
    """
    scheme = next((one for one in schemes if address.startswith(one)), None)
    host, _, port = address[len(scheme or "") :].rpartition(":")
    named = is_port(port) or (bind and port == "*")
    if scheme is None or not host or not _is_plain(host) or not named:
        raise error(f"{what} {address!r} cannot be used: give {' or '.join(f'{one}HOST:PORT' for one in schemes)}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise error(f"{what} {address!r} cannot be used: an IPv6 address is written {scheme}[::1]:PORT")
    if not bind and not int(port):
        raise error(f"{what} {address!r} cannot be used: port 0 is for listening, give the server's port")
