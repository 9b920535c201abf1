"""Who reaches what listens on an address."""

from __future__ import annotations

import ipaddress


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches tcp://HOST:PORT. A name other than localhost may be anything."""
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host in ("localhost", "lo"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
