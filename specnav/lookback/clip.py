"""A part of a walk as a GIF: the pictures in their own time, with what was decided below them."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from evaluation.errors import EvaluationError
from evaluation.files import write_bytes_atomic
from evaluation.report.media import every_nth, montage, shorten
from specnav.lookback.walk import Walk

WIDTH, CAPTION, MOST_FRAMES = 448, 40, 240
SHORTEST_MS, LONGEST_MS = 40, 2000
PAPER, INK, SOFT = (20, 23, 27), (238, 240, 243), (164, 171, 180)


def make_clip(walk: Walk, begin_s: float, end_s: float) -> bytes:
    """A GIF of the pictures from `begin_s` to `end_s`. Raises EvaluationError when there is none in between."""
    chosen = [
        f for f in walk.frames if f.number in walk.pictures and begin_s <= walk.seconds(f.time_ns) <= end_s
    ]
    if not chosen:
        raise EvaluationError(f"no picture between {begin_s:g} and {end_s:g} s")
    chosen = every_nth(chosen, MOST_FRAMES)
    pages = [_page(walk, f.number, walk.seconds(f.time_ns)) for f in chosen]
    times = [round((b.time_ns - a.time_ns) / 1e6) for a, b in itertools.pairwise(chosen)] + [1500]
    palette = montage(every_nth(pages, 12)).quantize(128, method=Image.Quantize.MEDIANCUT)
    flat = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    buffer = io.BytesIO()
    times = [max(SHORTEST_MS, min(LONGEST_MS, ms)) for ms in times]
    flat[0].save(buffer, "GIF", save_all=True, append_images=flat[1:], duration=times, loop=0, optimize=False)
    return buffer.getvalue()


def _page(walk: Walk, number: int, t: float) -> Image.Image:
    try:
        frame = Image.open(io.BytesIO(walk.pictures[number])).convert("RGB")
    except OSError:
        frame = Image.new("RGB", (WIDTH, WIDTH * 3 // 4), PAPER)
    height = round(frame.height * WIDTH / frame.width)
    page = Image.new("RGB", (WIDTH, height + CAPTION), PAPER)
    page.paste(frame.resize((WIDTH, height), Image.Resampling.BICUBIC), (0, 0))
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(13)
    before = [d for d in walk.decisions if d["t"] <= t]
    if before:
        pen.text((8, height + 4), shorten(before[-1]["reasoning"], font, WIDTH - 16), font=font, fill=SOFT)
        pen.text((8, height + 21), shorten(before[-1]["action"], font, WIDTH - 90), font=font, fill=INK)
    pen.text((WIDTH - 8, height + 21), f"{t:.1f} s", font=font, fill=SOFT, anchor="ra")
    return page


def write_clip(walk: Walk, out: Path, begin_s: float, end_s: float) -> None:
    """Write one to a file. Raises EvaluationError."""
    if out.suffix != ".gif":
        raise EvaluationError(f"{out} is no .gif: clips are GIFs")
    write_bytes_atomic(out, make_clip(walk, begin_s, end_s))
