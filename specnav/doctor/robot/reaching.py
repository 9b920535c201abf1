# SPDX-License-Identifier: Apache-2.0
"""Is the verifier reachable, and how far away is it? Uses a handshake and a few pings, and opens no session."""

from __future__ import annotations

import time

from specdec.errors import SpecdecError
from specdec.link.channel import connect
from specdec.link.wire import Ping, Pong
from specnav.doctor.robot.facts import VerifierFacts
from specnav.results.errors import one_line

PINGS, CONNECT_S, REPLY_S = 5, 2.0, 1.0


def reach(address: str, key: str = "") -> VerifierFacts:
    """Connect to the verifier at an address. Never raises: problems are in `error`. Takes 3 s at most.

    key: file of an edge's key, "" for a verifier without keys.
    """
    try:
        with connect(address, CONNECT_S, REPLY_S, key=key or None) as link:
            model = link.ensure_connected().model
            times = []
            for _ in range(PINGS):
                asked = time.monotonic()
                link.send(Ping(0))
                while not isinstance((link.receive(REPLY_S) or (None,))[0], Pong):
                    if time.monotonic() - asked >= REPLY_S:
                        raise link.silent(REPLY_S)
                times.append(1e3 * (time.monotonic() - asked))
    except SpecdecError as error:
        return VerifierFacts(address, one_line(error))
    return VerifierFacts(address, "", model, sorted(times)[PINGS // 2], max(times))
