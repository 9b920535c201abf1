"""Exit code 0 when a verifier shakes hands at an address, directly or through the link emulator; else 1 and one line.

python docker/healthcheck.py tcp://127.0.0.1:5555 [KEY_FILE]

Without the key file, a verifier with keys is healthy as far as its hand-shake says that it takes edges with keys only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from specdec.errors import KeyRefused, SpecdecError
from specdec.link.channel import connect
from specdec.link.greeting import mechanism_at


def main(arguments: list[str]) -> int:
    """Shake hands once. A key file that is not there is as good as none: the image names one that you may add."""
    address = arguments[0] if arguments else "tcp://127.0.0.1:5555"
    key = arguments[1] if len(arguments) > 1 and Path(arguments[1]).is_file() else None
    try:
        with connect(address, connect_timeout_s=3.0, reply_timeout_s=2.0, key=key) as link:
            welcome = link.ensure_connected()
    except KeyRefused as error:
        if key is not None or mechanism_at(address) != "CURVE":
            sys.stderr.write(f"unhealthy: {error}\n")
            return 1
        sys.stdout.write("healthy as far as can be told without a key: it takes edges with keys only\n")
        return 0
    except SpecdecError as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        return 1
    sys.stdout.write(f"healthy: {welcome.model}, protocol {welcome.version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
