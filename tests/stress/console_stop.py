"""How long STOP takes from a page's socket, or POST /stop, to the topic, while others abuse the console.

A console_node of its own and loopback alone: python -m tests.stress.console_stop --seconds 6. The figures are in
docs/notebook/measurements.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

MANY, AHEAD = 8, 15
Abuse = Callable[[str], None]


def behind() -> None:
    """Be no more important than other processes are."""
    os.nice(-os.nice(0))


def run(abuse: Abuse, url: str) -> None:
    """In a process of its own."""
    behind()
    abuse(url)


def page(url: str, name: str = "x", **given: object):
    """A page that was let in."""
    from websockets.sync.client import connect

    one = connect(url.replace("http", "ws") + "socket", origin=url.rstrip("/"), max_queue=None, **given).__enter__()
    one.send(json.dumps({"name": name}))
    one.recv(10)
    return one


def sends(*texts: str, pause_s: float = 0.0) -> Abuse:
    """A page that sends texts as fast as it may, and reads."""

    def abuse(url: str) -> None:
        one = page(url)
        threading.Thread(target=lambda: [None for _ in one], daemon=True).start()
        one.send('{"t": "take", "force": true}')
        while True:
            for text in texts:
                one.send(text)
                time.sleep(pause_s)

    return abuse


def raw(*parts: bytes, pause_s: float = 0.0, count: int = 1, again: bool = False) -> Abuse:
    """Connections that send bytes and wait."""

    def abuse(url: str) -> None:
        host, port = re.findall(r"//(.*):(\d+)/", url)[0]
        kept = []
        while True:
            for _ in range(count):
                try:
                    one = socket.create_connection((host, int(port)), 5)
                    for part in parts:
                        one.sendall(part)
                        time.sleep(pause_s)
                    kept.append(one)
                except OSError:
                    time.sleep(0.05)
            if not again:
                time.sleep(3600)
            for one in kept:
                one.close()
            kept.clear()

    return abuse


def does_not_read(url: str) -> None:
    """A page that asks for much and reads nothing."""
    one = page(url)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    while True:
        os.write(one.socket.fileno(), b"")
        time.sleep(1)


def mission(text: str) -> str:
    """A message with a mission."""
    return json.dumps({"t": "mission", "text": text})


UNICODE = "ﷺѕtор s t 停 " * 150
ABUSES: dict[str, list[Abuse]] = {
    "nothing": [],
    "mission of 5000 brackets": [sends(mission("[" * 5000), pause_s=0.1)],
    "mission of 38,000 steps": [sends(mission("steps:\n" + "- go\n" * 38_000), pause_s=0.1)],
    "8 pages flood, short": [sends('{"t": "drawn"}')] * MANY,
    "8 pages flood, 250 kB": [sends(json.dumps({"t": "mission", "text": "x" * 250_000}))] * MANY,
    "8 pages flood, 250 kB numbers": [sends("[" + "1," * 120_000 + "1]")] * MANY,
    "8 pages flood words": [sends(*(json.dumps({"t": "say", "text": f"{i} {UNICODE}"}) for i in range(50)))] * MANY,
    "8 pages ask for files": [sends('{"t": "files"}')] * MANY,
    "8 pages that do not read": [does_not_read] * MANY,
    "15 pages": [sends('{"t": "beat"}', pause_s=0.15)] * 14,
    "300 silent connections": [raw(count=300)],
    "endless headers": [raw(b"GET / HTTP/1.1\r\n", *[b"x: " + b"y" * 60_000] * 1000)] * 4,
    "headers, a byte at a time": [raw(*[b"G"] * 10_000, pause_s=0.01)] * MANY,
    "uploads": [raw(b"POST /stop HTTP/1.1\r\ncontent-length: 1000000000\r\n\r\n", *[b"z" * 65_536] * 9999)] * 4,
    "connections come and go": [raw(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", count=20, again=True)] * 2,
}


def main() -> None:
    """Measure, and print a table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seconds", type=float, default=6.0)
    given.add_argument("--only", default="")
    asked = given.parse_args()
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from std_msgs.msg import Empty

    os.environ.setdefault("ROS_DOMAIN_ID", "77")
    with contextlib.suppress(PermissionError):
        os.nice(-AHEAD)  # what measures is not what is measured
    rclpy.init()
    node, heard = rclpy.create_node("listener"), queue.Queue[float]()
    node.create_subscription(Empty, "/stop", lambda message: heard.put(time.monotonic()), 100)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    heads = f"{'socket p50':>10} {'p99':>8} {'max':>8} {'POST p50':>10} {'p99':>8} {'max':>8}"
    print(f"{'abuse':32} {heads}  ms", flush=True)
    for name, abuses in ABUSES.items():
        if asked.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
            arguments = ["port:=0", f"audit_file:={folder}/audit", "page_timeout_s:=10.0", "max_pages:=24"]
            console = subprocess.Popen(
                [sys.executable, "-m", "spec_vlm_nav.ros.nodes.console_node", "--ros-args"]
                + [word for each in arguments for word in ("-p", each)],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=behind,
            )
            try:
                until = time.monotonic() + 60
                while not (found := re.findall(r"ready: (\S+)", (Path(folder) / "log").read_text())):
                    assert time.monotonic() < until and console.poll() is None, (Path(folder) / "log").read_text()
                    time.sleep(0.1)
                print(f"{name:32} {measured(found[0], abuses, asked.seconds, heard)}", flush=True)
            finally:
                console.terminate()
                console.wait()


def measured(url: str, abuses: list[Abuse], seconds: float, heard: queue.Queue[float]) -> str:
    """A line of the table."""
    stopping = page(url, "operator")
    threading.Thread(target=lambda: [None for _ in stopping], daemon=True).start()
    time.sleep(1.0)
    started = [multiprocessing.Process(target=run, args=(each, url), daemon=True) for each in abuses]
    for each in started:
        each.start()
    time.sleep(2.0)
    host, port = re.findall(r"//(.*):(\d+)/", url)[0]

    def by_post() -> None:
        head = f"POST /stop HTTP/1.1\r\nhost: {host}:{port}\r\norigin: {url.rstrip('/')}\r\n\r\n"
        with socket.create_connection((host, int(port)), 10) as one:
            one.sendall(head.encode())
            one.settimeout(20)
            one.recv(100)

    told = []
    for how in (lambda: stopping.send('{"t": "stop"}'), by_post):
        times, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            while not heard.empty():
                heard.get()
            at = time.monotonic()
            try:
                threading.Thread(target=how, daemon=True).start()
                times.append(1000 * (heard.get(timeout=20) - at))
            except (queue.Empty, OSError):
                times.append(20_000.0)
            time.sleep(0.03)
        times.sort()
        told += [times[len(times) // 2], times[min(len(times) - 1, int(0.99 * len(times)))], times[-1]]
    for each in started:
        each.kill()
    stopping.close()
    return f"{told[0]:10.1f} {told[1]:8.1f} {told[2]:8.1f} {told[3]:10.1f} {told[4]:8.1f} {told[5]:8.1f}"


if __name__ == "__main__":
    main()


