"""A real Chromium, headless, spoken to over its own protocol (CDP): keys reach it as a person's do, busy or not.

(Drivers of the WebDriver kind wait until a page answers before they press a key: what a busy page does cannot be
tested with them.)
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import deque
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--window-size=1280,900",
    "--ignore-certificate-errors",
]
KEYS = {
    "y": ("KeyY", 89),
    "ArrowRight": ("ArrowRight", 39),
    " ": ("Space", 32),
    "Escape": ("Escape", 27),
    "Enter": ("Enter", 13),
    "Tab": ("Tab", 9),
}


def chromium() -> str:
    """Where Chromium is; skips the test with the reason where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium here: apt-get install chromium (scripts/setup.sh --dev does)")


class Tab:
    """One page."""

    def __init__(self, address: str, domains: tuple[str, ...] = ("Page", "Runtime", "Log")) -> None:
        from websockets.sync.client import connect

        self._socket = connect(address, max_size=50_000_000, compression=None)
        self._numbers, self._answers = itertools.count(1), {}
        self.said: list[str] = []
        self.film: deque[bytes] = deque(maxlen=2)  # after Page.startScreencast: JPEG
        self.asked: list[str] = []  # addresses, after Network.enable
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        for domain in domains:
            self.ask(f"{domain}.enable")

    def _listen(self) -> None:
        try:
            for text in self._socket:
                message = json.loads(text)
                with self._news:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif message["method"] == "Runtime.exceptionThrown":
                        self.said.append(str(message["params"]["exceptionDetails"]))
                    elif message["method"] == "Page.screencastFrame":
                        self.film.append(base64.b64decode(message["params"]["data"]))
                        self.tell("Page.screencastFrameAck", sessionId=message["params"]["sessionId"])
                    elif message["method"] == "Network.requestWillBeSent":
                        self.asked.append(message["params"]["request"]["url"])
                    elif message["method"] == "Network.webSocketCreated":
                        self.asked.append(message["params"]["url"])
                    elif message["method"] == "Log.entryAdded":
                        self.said.append(message["params"]["entry"]["text"])
                    self._news.notify_all()
        except Exception:
            return

    def tell(self, method: str, **given: Any) -> int:
        """Ask without waiting for the answer."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": given}))
        return number

    def ask(self, method: str, timeout_s: float = 15.0, **given: Any) -> Any:
        """Ask, and wait for the answer."""
        number = self.tell(method, **given)
        with self._news:
            assert self._news.wait_for(lambda: number in self._answers, timeout_s), f"no answer to {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def go(self, url: str) -> None:
        """Open an address."""
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression."""
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def text(self, selector: str) -> str:
        """The words of an element; "" when it is not there."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def wait(self, script: str, timeout_s: float = 10.0) -> float:
        """Wait until an expression is true; returns when."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.run(script):
                return time.monotonic()
            time.sleep(0.02)
        raise AssertionError(
            f"not within {timeout_s:g} s: {script}\n{self.run('document.body.innerText')}\n{self.said}"
        )

    def wait_text(self, selector: str, words: str, timeout_s: float = 10.0) -> float:
        """Wait until an element holds words; returns when."""
        find = f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"
        return self.wait(f"({find}).includes({json.dumps(words)})", timeout_s)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str, wait: bool = True) -> float:
        """Press and release a key; returns when it was pressed."""
        code, number = KEYS[name]
        at = time.monotonic()
        for kind in ("keyDown", "keyUp"):
            given = {"type": kind, "key": name, "code": code, "windowsVirtualKeyCode": number}
            if name in (" ", "Enter") and kind == "keyDown":
                given["text"] = "\r" if name == "Enter" else name
            (self.ask if wait else self.tell)("Input.dispatchKeyEvent", **given)
        return at

    def type(self, selector: str, words: str) -> None:
        """Type into a field in the place of what is there, as a person does."""
        self.click(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).value = ''")
        self.ask("Input.insertText", text=words)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """The window, and whether it is dark."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)

    def screenshot(self) -> bytes:
        """What is in the window, PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def picture(self, file: Path) -> None:
        """A screenshot in a file."""
        file.write_bytes(self.screenshot())

    def leave(self) -> None:
        """Let go of the page."""
        self._socket.close()

    def close(self) -> None:
        """Close the page, as a person does."""
        self.tell("Page.close")


class Browser:
    """Headless Chromium with an empty profile; use it as a context manager."""

    def __enter__(self) -> Browser:
        path = chromium()
        self._profile = tempfile.mkdtemp(prefix="console-test-")
        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port = Path(self._profile) / "DevToolsActivePort"
        until = time.monotonic() + 30
        while not (port.is_file() and port.read_text().count("\n")):
            assert time.monotonic() < until and self._process.poll() is None, "Chromium does not start"
            time.sleep(0.05)
        self._port = int(port.read_text().splitlines()[0])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self._profile, ignore_errors=True)

    def tab(self, url: str) -> Tab:
        """A new page, in a window of its own: one behind another would be hidden."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json/version", timeout=10) as answer:
            whole = Tab(json.load(answer)["webSocketDebuggerUrl"], ())
        target = whole.ask("Target.createTarget", url="about:blank", newWindow=True)["targetId"]
        whole.leave()
        tab = Tab(f"ws://127.0.0.1:{self._port}/devtools/page/{target}")
        tab.go(url)
        return tab
