# SPDX-License-Identifier: Apache-2.0
"""Pictures of the console on the demo and of look back, for the documentation: docs/console*, docs/lookback.png.

Starts `specnav demo --console` and a headless Chromium: python -m scripts.console_pictures --out docs.
"""

from __future__ import annotations

import argparse
import io
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.graph.browser import Browser, Tab

ROOT = Path(__file__).resolve().parents[1]

DESKTOP, PHONE = (1280, 880), (390, 844)
GIF_WIDTH, GIF_COLOURS, GIF_S, FRAME_MS = 800, 160, 30.0, 400


def small(picture: bytes, file: Path, width: int) -> None:
    """Save a screenshot as a small PNG."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.thumbnail((width, 10_000))
    image.quantize(192, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size / 1e3:.0f} kB")


def start(folder: Path, seed: int) -> tuple[subprocess.Popen[str], str]:
    """The demo with its page; returns the page's address."""
    # Taking pictures keeps the page busy, which else would stop the robot.
    program = (
        "import sys; from pathlib import Path; from specnav.demo.config import DemoConfig, PageConfig; "
        "from specnav.demo.console import run_console; "
        "sys.exit(run_console(DemoConfig(seed=int(sys.argv[1]), out=Path(sys.argv[2])), PageConfig(port=0), "
        "{'page_busy_s': 0.0}))"
    )
    argv = [sys.executable, "-u", "-c", program, str(seed), str(folder / "run")]
    demo = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert demo.stdout is not None
    for line in demo.stdout:
        if found := re.search(r"listens to you at +(\S+)", line):
            return demo, found[1]
    raise SystemExit("the demo did not start")


def walk(tab: Tab, out: Path, words: str) -> None:
    """Type an instruction, and take pictures of what follows."""
    film: list[bytes] = []  # made smaller afterwards: a page that is busy for long stops the robot

    def shoot() -> None:
        film.append(tab.film[-1])

    tab.size(*DESKTOP)
    tab.wait_text("#stands", "the robot stands", 30)
    tab.wait("document.querySelector('#offers').children.length > 0", 10)
    tab.click("#take")
    tab.wait_text("#control", "you have control")
    tab.ask("Page.startScreencast", format="jpeg", quality=90, maxWidth=DESKTOP[0], maxHeight=DESKTOP[1])
    tab.wait("true")
    time.sleep(1.0)
    for end in range(4, len(words) + 4, 4):
        tab.type("#instruction", words[:end])
        tab.run("scrollTo(0, 0)")
        time.sleep(FRAME_MS / 2000)
        shoot()
    tab.key("Enter")
    began, taken = time.monotonic(), False
    while time.monotonic() - began < GIF_S:
        time.sleep(FRAME_MS / 1000)
        shoot()
        moves = "MOVES" in tab.text("#stands")
        if moves and not taken and tab.run("document.querySelectorAll('#decisions li').length > 2"):
            taken = True
            small(film[-1], out / "console.png", 1280)
        if "NONE" in tab.text("#log"):
            break
    tab.run("document.activeElement.blur()")
    tab.key("Escape")
    for _ in range(5):
        time.sleep(FRAME_MS / 1000)
        shoot()
    tab.ask("Page.stopScreencast")
    tab.size(*DESKTOP, dark=True)
    small(tab.screenshot(), out / "console_dark.png", 1000)
    tab.size(*PHONE)
    tab.run("scrollTo(0, 0)")
    small(tab.screenshot(), out / "console_phone.png", 390)
    frames = []
    for data in film:
        frames.append(Image.open(io.BytesIO(data)).convert("RGB"))
        frames[-1].thumbnail((GIF_WIDTH, 10_000), Image.Resampling.LANCZOS)
    sample = [frames[n * (len(frames) - 1) // 5] for n in range(6)]  # colours of the whole film
    sheet = Image.new("RGB", (sample[0].width, sum(f.height for f in sample)))
    for number, frame in enumerate(sample):
        sheet.paste(frame, (0, number * frame.height))
    palette = sheet.quantize(GIF_COLOURS, dither=Image.Dither.NONE)
    made = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    file = out / "console.gif"
    made[0].save(file, save_all=True, append_images=made[1:], duration=FRAME_MS, loop=0, optimize=True)
    print(f"{file}: {file.stat().st_size / 1e3:.0f} kB, {len(made)} pictures")


def look_back(out: Path) -> None:
    """The committed bag decided again by the small model alone, at the first decision with another action."""
    argv = [sys.executable, "-m", "specnav.cli", "console", "--bag", str(ROOT / "tests/data/rooms.mcap"), "--port", "0"]
    argv += ["--labels", str(Path(tempfile.mkdtemp()) / "labels.csv")]
    argv += ["--again", "ar", "--target-model", str(ROOT / "default_models/nav-draft")]
    page = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert page.stderr is not None
    try:
        url = next(found[1] for line in page.stderr if (found := re.search(r"look back: (\S+)", line)))
        with Browser() as browser:
            tab = browser.tab(url)
            tab.size(*DESKTOP)
            tab.wait_text("#again-state", "decided again with ar", 120)
            tab.wait("document.querySelector('#cancel').hidden", 120)
            for _ in range(30):
                tab.click("#next")
                if "ANOTHER" in tab.text("#difference"):
                    break
            tab.run("scrollTo(0, 0)")
            time.sleep(0.5)
            small(tab.screenshot(), out / "lookback.png", 1000)
            assert not tab.said, tab.said
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(30)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder for the pictures")
    parser.add_argument("--seed", type=int, default=4, help="the room")
    parser.add_argument("--words", default="find the blue bottle", help="the instruction")
    parser.add_argument("--look-back", action="store_true", help="the look-back page alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    look_back(options.out)
    if options.look_back:
        return
    demo, url = start(Path(tempfile.mkdtemp()), options.seed)
    try:
        with Browser() as browser:
            walk(browser.tab(url), options.out, options.words)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(30)


if __name__ == "__main__":
    main()
