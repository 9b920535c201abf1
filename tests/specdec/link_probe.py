"""Two ends of a link, to measure what is between them: `python link_probe.py serve ADDRESS` and `... measure ADDRESS`.

Run as processes of their own, so that each can live in a network namespace. The server answers a message with as many
bytes as it asks for; the client prints what it measured as one JSON line. The best of several trips counts: what a
trip takes longer than that is the machine's doing, not the link's.
"""

from __future__ import annotations

import json
import sys
import time

import zmq

PINGS = 21
PING_BYTES = 40
LOADED = 7
LOADED_BYTES = 40_000
BULK_BYTES = 1_000_000
TIMEOUT_MS = 10_000


def serve(address: str) -> None:
    """Answer until killed."""
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(address)
    print(json.dumps({"bind": socket.getsockopt_string(zmq.LAST_ENDPOINT)}), flush=True)
    while True:
        identity, data = socket.recv_multipart()
        socket.send_multipart([identity, bytes(int.from_bytes(data[:4], "little"))])


def measure(address: str) -> dict[str, float]:
    """rtt_ms: of small messages; loaded_ms: of LOADED_BYTES each way; mbps: of BULK_BYTES up, after a warm-up."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)

    def trip(up: int, down: int) -> float:
        started = time.perf_counter()
        socket.send(down.to_bytes(4, "little") + bytes(up - 4))
        socket.recv()
        return time.perf_counter() - started

    trip(PING_BYTES, PING_BYTES)  # connects
    small = min(trip(PING_BYTES, PING_BYTES) for _ in range(PINGS))
    trip(BULK_BYTES, PING_BYTES)  # opens TCP's window
    bulk = min(trip(BULK_BYTES, PING_BYTES) for _ in range(2))
    trip(LOADED_BYTES, LOADED_BYTES)
    loaded = min(trip(LOADED_BYTES, LOADED_BYTES) for _ in range(LOADED))
    # A round trip without load is not part of the sending time.
    return {"rtt_ms": small * 1e3, "loaded_ms": loaded * 1e3, "mbps": BULK_BYTES * 8e-6 / (bulk - small)}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(json.dumps(measure(sys.argv[2])))
