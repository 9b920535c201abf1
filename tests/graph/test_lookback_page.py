"""The look-back page in a real Chromium: decided again, differences shown, a label by key, a clip that plays."""

from __future__ import annotations

import base64
import threading

import pytest
import uvicorn

from specnav.lookback.clip import make_clip
from specnav.lookback.config import Deciders
from specnav.lookback.replay_runner import ReplayRunner
from specnav.lookback.server import make_app
from specnav.lookback.walk import Labels, read_walk
from tests.bags.lookback_rows import rows_of, stand_in
from tests.bags.made_up import walk
from tests.graph.browser import Browser
from tests.graph.harness import wait_until

pytestmark = pytest.mark.graph


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture
def page(tmp_path, browser):
    bag = walk().save(tmp_path / "walk")
    found = read_walk(bag)
    rows = rows_of(found)
    rows[1]["action"], rows[1]["text"] = "stop", "I am there. The next action is stop."
    labels = Labels(tmp_path / "labels.csv")
    app = make_app(found, labels, ReplayRunner(bag, found, Deciders(), stand_in(rows)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 10, "the page")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield browser, f"http://127.0.0.1:{port}/", labels
    server.should_exit = True
    thread.join(5)


def test_differences_stand_side_by_side_and_a_key_labels(page):
    browser, url, labels = page
    tab = browser.tab(url)
    tab.wait("document.body?.dataset.ready !== undefined")
    assert tab.run("document.querySelector('#again-side').hidden")
    tab.run("document.querySelector('#method').value = 'sd'")
    tab.click("#again")
    tab.wait_text("#again-state", "3 of 3 decided again with sd: 1 other actions", 15)
    tab.click("#next")
    tab.wait_text("#difference", "ANOTHER ACTION")
    assert "forward 50" in tab.text("#decisions") and "stop" in tab.text("#again-decision .head")
    assert "2 of 3" in tab.text("#count") and "there" in tab.text("#again-decision mark")
    tab.run("document.activeElement.blur()")
    tab.key("y")
    tab.wait_text("#answer", "labelled: forward 50")
    assert len(labels.by_stamp) == 1
    for width in (1280, 390):
        tab.size(width, 900)
        tab.wait("document.documentElement.scrollWidth <= innerWidth")
    assert tab.said == [], "nothing was missing or refused"


def test_a_clip_as_mp4_plays_in_a_browser(browser, tmp_path):
    tab = browser.tab("about:blank")
    clip = make_clip(read_walk(walk().save(tmp_path / "walk")), 0, 9, ".mp4")
    tab.run(
        "(() => { const film = document.createElement('video'); film.muted = true; document.body.append(film);"
        f" film.src = 'data:video/mp4;base64,{base64.b64encode(clip).decode()}'; film.play(); }})()"
    )
    tab.wait("document.querySelector('video').currentTime > 0.2", 15)
    shown = tab.run("(() => { const f = document.querySelector('video'); return [f.videoWidth, f.duration]; })()")
    assert shown[0] == 448 and shown[1] > 2
