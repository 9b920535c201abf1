"""The console's web server and its front over made-up robots, and pages that speak to it."""

import contextlib
import json
import os
import socket
from pathlib import Path

from websockets.sync.client import connect

from spec_vlm_nav.console.access import AccessTokens
from spec_vlm_nav.console.web import Web, WebConfig
from tests.robot.console_world import World

STAND_IN = (str(Path(__file__).parent / "front_stand_in.py"),)


class Served(World):
    """A console that is served; `stopped()` waits for the next STOP that the front publishes."""

    def __init__(self, tmp_path, names=("",), tokens="none", **given):
        super().__init__(tmp_path, names=names)
        self.said = []
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.bind(str(tmp_path / "stops"))
        os.environ["FRONT_SAYS_TO"] = str(tmp_path / "stops")
        self.tokens = AccessTokens(tokens, tmp_path / "default.json")
        self.web = Web(WebConfig(front=STAND_IN, **given), self.pages, self.tokens, self.said.append)
        self.origin, self.port = self.web.url.rstrip("/"), self.web.port

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.web.close()
        self._heard.close()

    def stopped(self, timeout=5.0):
        """The next STOP of the front: robot, kind, when."""
        self._heard.settimeout(timeout)
        return json.loads(self._heard.recv(1000))

    @contextlib.contextmanager
    def page(self, **hello):
        """A page that was let in."""
        with connect(
            self.web.url.replace("http", "ws") + "socket", origin=self.origin, max_queue=None
        ) as one:
            one.send(json.dumps(hello or {"name": "anna"}))
            self.until(one, "state")
            yield one

    @staticmethod
    def until(page, kind, timeout=5.0):
        """The next message of a kind."""
        while True:
            said = page.recv(timeout)
            if isinstance(said, str) and (message := json.loads(said))["t"] == kind:
                return message

    def post_stop(self, robot="", **headers):
        """The status of a STOP without a socket, and what is said."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as asked:
            told = {"host": f"127.0.0.1:{self.port}", "origin": self.origin, "x-robot": robot, **headers}
            lines = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value)
            asked.sendall(f"POST /stop HTTP/1.1\r\n{lines}\r\n".encode())
            answer = b""
            while data := asked.recv(4096):
                answer += data
        return int(answer.split()[1]), answer
