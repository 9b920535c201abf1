"""Exit code 0 when what is at an address makes progress; else 1 and one line.

python docker/healthcheck.py tcp://127.0.0.1:5555 [KEY_FILE]      a verifier, directly, through the link emulator, or fleet://
python docker/healthcheck.py http://127.0.0.1:8080/healthz        the operator's console, with a robot that speaks
python docker/healthcheck.py ros:/motion_status                    motion_node, by what its control loop publishes

A verifier is asked for one token: its engine has to work, not only the thread that greets. Without the key file, a
verifier with keys is healthy as far as its hand-shake says that it takes edges with keys only.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

from specdec.errors import KeyRefused, LinkLost, SpecdecError, VerifierBusy
from specdec.link.channel import Link, connect
from specdec.link.greeting import mechanism_at
from specdec.link.wire import Close, ErrorDown, Open, Opened, Sampling, Tokens

TOKEN_S = 8.0
"""Behind the forwards of other sessions it may take a while."""


def ask_for_a_token(link: Link) -> None:
    """Open a session of one token and wait for it. Raises LinkLost when none comes."""
    session = link.next_session()
    link.send(Open(session, True, Sampling(1, 0.0, 0, 0, 1.0, 0.0), [1]))
    until = time.monotonic() + TOKEN_S
    while (left := until - time.monotonic()) > 0:
        received = link.receive(left)
        if received is None:
            break
        message = received[0]
        if isinstance(message, Opened | Tokens):
            link.send(Close(session))
            return
        if isinstance(message, ErrorDown):
            if message.code == "busy":
                return  # it works, for others
            raise LinkLost(f"a token was refused: {message.message}")
    raise LinkLost(f"it greets, and no token came within {TOKEN_S:g} s")


def check_verifier(address: str, key: str | None) -> str:
    """What is well with a verifier. Raises SpecdecError."""
    try:
        with connect(address, connect_timeout_s=3.0, reply_timeout_s=2.0, key=key) as link:
            welcome = link.ensure_connected()
            ask_for_a_token(link)
    except VerifierBusy as error:
        return f"it works, for others: {error}"
    except KeyRefused:
        if key is not None or mechanism_at(address) != "CURVE":
            raise
        return "as far as can be told without a key: it takes edges with keys only"
    return f"{welcome.model}, protocol {welcome.version}"


def check_console(address: str) -> str:
    """What is well with a console. Raises OSError, ValueError or HTTPException."""
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # Docker may give containers a proxy
    with without_proxy.open(address, timeout=3.0) as reply:
        robots = json.load(reply)["robots"]
    if not robots:
        raise ValueError("the console answers, and no robot speaks to it")
    return f"{robots} robot{'s' if robots > 1 else ''}"


def check_motion(topic: str) -> str:
    """What is well with a motion_node. Raises ValueError."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from spec_vlm_nav_interfaces.msg import MotionStatus

    heard: list[MotionStatus] = []
    rclpy.init()
    node = rclpy.create_node("healthcheck")
    node.create_subscription(MotionStatus, topic, heard.append, qos_profile_sensor_data)
    until = time.monotonic() + TOKEN_S
    while not heard and time.monotonic() < until:
        rclpy.spin_once(node, timeout_sec=0.2)
    node.destroy_node()
    rclpy.shutdown()
    if not heard:
        raise ValueError(f"nothing came on {topic} within {TOKEN_S:g} s")
    return f"motion_node speaks on {topic}"


def check(address: str, key: str | None) -> str:
    """What is well at an address. Raises SpecdecError, OSError, ValueError, KeyError or HTTPException."""
    if address.startswith("ros:"):
        return check_motion(address.removeprefix("ros:"))
    return check_console(address) if address.startswith("http:") else check_verifier(address, key)


def main(arguments: list[str]) -> int:
    """Look once. A key file that is not there is as good as none: the image names one that you may add."""
    address = arguments[0] if arguments else "tcp://127.0.0.1:5555"
    key = arguments[1] if len(arguments) > 1 and Path(arguments[1]).is_file() else None
    try:
        well = check(address, key)
    except (SpecdecError, OSError, ValueError, KeyError, HTTPException) as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        return 1
    sys.stdout.write(f"healthy: {well}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
