"""Exit code 0 when a verifier shakes hands at an address, directly or through the link emulator; else 1 and one line.

python docker/healthcheck.py tcp://127.0.0.1:5555
"""

from __future__ import annotations

import sys

from specdec.errors import SpecdecError
from specdec.link.channel import connect


def main(arguments: list[str]) -> int:
    """Shake hands once."""
    address = arguments[0] if arguments else "tcp://127.0.0.1:5555"
    try:
        with connect(address, connect_timeout_s=3.0, reply_timeout_s=2.0) as link:
            welcome = link.ensure_connected()
    except SpecdecError as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        return 1
    sys.stdout.write(f"healthy: {welcome.model}, protocol {welcome.version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
