# SPDX-License-Identifier: Apache-2.0
"""How fast the console is: from key to zero velocity, from camera to page, to the first picture; and the page's size.

    python -m benchmarks.console_times --stops 50

Runs the real graph (verifier, simulator, robot nodes) and a headless Chromium on this machine. The figures are in
docs/notebook/measurements.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from specnav.paths import ROOT
from specnav.results.demo import percentile
from specnav.supervise.children import console_spec, mission_spec
from specnav.supervise.robot_stack import Stack, speed
from tests.graph.browser import Browser, Tab


def stop_times(stack: Stack, tab: Tab, count: int) -> tuple[list[float], list[float]]:
    """Times from the key to the last non-zero velocity, and to standing as the page reports it; ms."""
    zero, stood = [], []
    while len(zero) < count:
        since = time.monotonic()
        tab.type("#instruction", stack.instruction)
        tab.key("Enter")
        try:
            stack.wait_until_moving(since, 20)
        except Exception:
            stack.reset()
            continue
        time.sleep(0.25)
        at = tab.key("Escape", wait=False)
        time.sleep(0.7)
        moved = [h.at for h in stack.probe.heard("cmd_vel", at) if speed(h) > 0]
        zero.append(1000 * (max(moved, default=at) - at))
        said = re.search(r"(\d+) ms after STOP", tab.text("#stands"))
        if said:
            stood.append(float(said[1]))
        if len(zero) % 10 == 0:
            print(f"{len(zero)} of {count}", file=sys.stderr, flush=True)
            stack.reset()
    return zero, stood


def delays(tabs: list[Tab], seconds: float) -> tuple[list[float], float]:
    """Sampled times from a camera message to its picture drawn, ms; and pictures per second of the first page."""
    found: list[float] = []
    first, began = tabs[0].run("Number(document.querySelector('#camera').dataset.frames)"), time.monotonic()
    while time.monotonic() - began < seconds:
        found += [tab.run("Number(document.querySelector('#camera').dataset.delay)") for tab in tabs]
        time.sleep(0.07)
    drawn = tabs[0].run("Number(document.querySelector('#camera').dataset.frames)") - first
    return found, drawn / (time.monotonic() - began)


def first_pictures(browser: Browser, url: str, count: int = 5) -> list[float]:
    """Times from navigation to the first picture drawn, ms, on freshly opened pages."""
    found = []
    for _ in range(count):
        tab = browser.tab("about:blank")
        at = time.monotonic()
        tab.go(url)
        tab.wait("Number(document.querySelector('#camera')?.dataset.frames || 0) > 0")
        found.append(1000 * (time.monotonic() - at))
        tab.close()
    return found


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=50, help="how many times to press STOP in mid-motion")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    with Stack(folder) as stack, Browser() as browser:
        given = {"port": 0, "audit_file": str(folder / "audit.jsonl")}
        node = stack.start_child(console_spec((), stack.environment, given))
        node.wait_for("ready: ")
        stack.start_child(mission_spec((), stack.environment, folder / "m.json"))
        stack.make_ready()
        url = re.findall(r"ready: (\S+)", node.text)[-1]
        tab = browser.tab(url)
        tab.wait_text("#link", "connected", 40)
        tab.click("#take")
        tab.wait_text("#control", "you have control")
        tab.wait("Number(document.querySelector('#camera').dataset.frames) > 3")
        for pages in (1, 3):
            tabs = [tab] + [browser.tab(url) for _ in range(pages - 1)]
            for each in tabs:
                each.wait("Number(document.querySelector('#camera').dataset.frames) > 10")
            late, rate = delays(tabs, 8.0)
            print(
                f"{pages} page(s): camera to picture p50 {statistics.median(late):.0f} ms, "
                f"p99 {percentile(late, 99):.0f} ms, {rate:.1f} pictures a second, n = {len(late)}"
            )
            for each in tabs[1:]:
                each.close()
        first = first_pictures(browser, url)
        print(f"time to first picture: p50 {statistics.median(first):.0f} ms, n = {len(first)} (asked every 20 ms)")
        if options.stops:
            zero, stood = stop_times(stack, tab, options.stops)
            print(
                f"key to zero: p50 {statistics.median(zero):.0f} ms, p99 {percentile(zero, 99):.0f} ms, n = {len(zero)}"
            )
            print(f"STOP to standing, as the page says: p50 {statistics.median(stood):.0f} ms, n = {len(stood)}")
    page = ROOT / "ros2_ws/src/spec_vlm_nav/spec_vlm_nav/console/page"
    print(f"page: {sum(f.stat().st_size for f in page.iterdir())} bytes in {len(list(page.iterdir()))} files")


if __name__ == "__main__":
    main()
