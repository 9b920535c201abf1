# SPDX-License-Identifier: Apache-2.0
"""The cost of keys: the round trip of one round's messages over loopback, alternately plain and encrypted.

    python -m benchmarks.key_cost [--rounds 4000]

Prints medians in µs. The cloud's end is a process of its own that receives messages as the verifier does (through the
authenticator if there are keys) and answers each at once, so that only the transport is measured. With a real round
trip and real forwards, the same microseconds are added.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path

import zmq

from cloud_verifier.classes import ClientClass
from cloud_verifier.logs import EventLog
from cloud_verifier.security.authenticator import Authenticator
from cloud_verifier.security.folder import KeyFolder, new_pair
from cloud_verifier.security.keyring import Keyring, utc_now
from cloud_verifier.security.records import ClientKey
from specdec.link.keys import read_key, use_key
from specdec.link.wire import DraftUp, VerdictDown, encode

BLOCK = 100
DRAFT = encode(DraftUp(1, 300, 900, [50_000, 50_001, 50_002, 50_003]))
VERDICT = encode(VerdictDown(1, 300, 3, 50_004, 12_345, 678))
PICTURE = bytes(60_000)


def cloud(ring: Path, ready: Connection) -> None:
    """Answer on a plain and on an encrypted port until killed."""
    poller = zmq.Poller()
    ends = {}
    doors = {}
    addresses = []
    for encrypted in (False, True):
        context: zmq.Context = zmq.Context()
        router = context.socket(zmq.ROUTER)
        if encrypted:
            nothing = (lambda *_: None, lambda *_: None)
            log = EventLog(StringIO())
            door = Authenticator(context, router, Keyring(ring, log), log, *nothing)
            for socket in door.sockets:
                poller.register(socket, zmq.POLLIN)
                doors[socket] = door
            ends[router] = door.receive
        else:
            ends[router] = lambda router=router: router.recv_multipart(flags=zmq.DONTWAIT)
        router.bind("tcp://127.0.0.1:0")
        addresses.append(router.getsockopt_string(zmq.LAST_ENDPOINT))
        poller.register(router, zmq.POLLIN)
    ready.send(addresses)
    while True:
        for socket, _ in poller.poll():
            if socket in doors:
                doors[socket].work()
                continue
            identity, _ = ends[socket]()
            socket.send_multipart([identity, VERDICT], flags=zmq.DONTWAIT)


def edge(address: str, key: Path | None) -> zmq.Socket:
    """The socket of a connected edge."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    if key is not None:
        use_key(socket, read_key(key))
    socket.connect(address)
    socket.send(DRAFT)
    socket.recv()
    return socket


def block(socket: zmq.Socket, message: bytes, rounds: int) -> list[float]:
    """The duration of each of several rounds, µs."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        socket.send(message)
        socket.recv()
        times.append(1e6 * (time.perf_counter() - began))
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        ring = KeyFolder(Path(place) / "keys")
        ring.create()
        public, secret = new_pair()
        ring.new(ClientKey("edge", public, utc_now(), ClientClass.ROBOT), secret)
        mine, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(
            target=cloud, args=(ring.path, theirs), daemon=True
        )
        child.start()
        addresses = mine.recv()
        sockets = [edge(addresses[0], None), edge(addresses[1], ring.path / "edges/edge.key")]
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, libzmq {zmq.zmq_version()}")
        print(f"{'message up':>24} {'plain':>8} {'keys':>8} {'more':>8}   µs, median of {rounds} rounds each")
        for name, message, count in (("draft", DRAFT, rounds), ("picture", PICTURE, rounds // 4)):
            times: list[list[float]] = [[], []]
            for _ in range(max(1, count // BLOCK)):
                for way, socket in enumerate(sockets):
                    times[way] += block(socket, message, BLOCK)
            plain, keyed = map(statistics.median, times)
            print(f"{f'{name}, {len(message)} bytes':>24} {plain:8.0f} {keyed:8.0f} {keyed - plain:+8.0f}")
        child.kill()


if __name__ == "__main__":
    main()
