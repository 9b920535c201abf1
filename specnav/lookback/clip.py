# SPDX-License-Identifier: Apache-2.0
"""Writes a part of a walk as a GIF or an MP4: the pictures in real time, with the decisions below them."""

from __future__ import annotations

import io
import itertools
import tempfile
from fractions import Fraction
from pathlib import Path

from PIL import Image, ImageFont

from specnav.bags.contents import FrameEntry
from specnav.lookback.walk import Walk
from specnav.report.media import GIF_WIDTH, INK, PAPER, CaptionLine, captioned, gif_of
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic
from specnav.results.identity import every_nth

CAPTION = 40
MOST_FRAMES = {".gif": 240, ".mp4": 9000}
SHORTEST_MS, LONGEST_MS, LAST_MS = 40, 2000, 1500
MEDIA_TYPES = {".gif": "image/gif", ".mp4": "video/mp4"}
# Browsers play H.264, and the wheels of av include it. No B-frames: with them the file's duration was too short.
CODEC, QUALITY = "libx264", {"crf": "23", "preset": "veryfast", "bf": "0"}


def make_clip(walk: Walk, begin_s: float, end_s: float, kind: str = ".gif") -> bytes:
    """The pictures from `begin_s` to `end_s` as a file of type `kind`, .gif or .mp4.

    Raises EvaluationError if there is no picture in between.
    """
    if kind not in MEDIA_TYPES:
        raise EvaluationError(f"{kind or 'no suffix'}: a clip must be a .gif or .mp4 file")
    chosen = [
        f for f in walk.frames if f.number in walk.pictures and begin_s <= walk.seconds(f.time_ns) <= end_s
    ]
    if not chosen:
        raise EvaluationError(f"no picture between {begin_s:g} and {end_s:g} s")
    chosen = every_nth(chosen, MOST_FRAMES[kind])
    times = [round((b.time_ns - a.time_ns) / 1e6) for a, b in itertools.pairwise(chosen)] + [LAST_MS]
    times = [max(SHORTEST_MS, min(LONGEST_MS, ms)) for ms in times]
    if kind == ".mp4":
        return _mp4(walk, chosen, times)
    return gif_of([_page(walk, f.number, walk.seconds(f.time_ns)) for f in chosen], times)


def _mp4(walk: Walk, chosen: list[FrameEntry], times: list[int]) -> bytes:
    import av

    first = _page(walk, chosen[0].number, 0.0)
    size = (GIF_WIDTH, first.height + first.height % 2)  # H.264 with subsampled colours needs even sides
    try:
        # A file, not a buffer, because "faststart" reads the output again to put the index first.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "clip.mp4"
            with av.open(str(file), "w", format="mp4", options={"movflags": "faststart"}) as film:
                stream = film.add_stream(CODEC, rate=1000, options=QUALITY)
                assert isinstance(stream, av.VideoStream)
                stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
                stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
                at = 0
                # The last picture is written twice, because a picture is shown until the next one.
                for entry, ms in [*zip(chosen, times, strict=True), (chosen[-1], 0)]:
                    page = Image.new("RGB", size, PAPER)
                    page.paste(_page(walk, entry.number, walk.seconds(entry.time_ns)))
                    frame = av.VideoFrame.from_image(page)
                    frame.pts, frame.time_base = at, Fraction(1, 1000)
                    film.mux(stream.encode(frame))
                    at += ms
                film.mux(stream.encode(None))
            return file.read_bytes()
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise EvaluationError(f"no MP4 can be made here ({CODEC}: {error}): save a .gif") from error


def _page(walk: Walk, number: int, t: float) -> Image.Image:
    try:
        frame = Image.open(io.BytesIO(walk.pictures[number])).convert("RGB")
    except Exception:  # Pillow raises almost anything for a broken or an enormous picture
        frame = Image.new("RGB", (GIF_WIDTH, GIF_WIDTH * 3 // 4), PAPER)
    font, lines = ImageFont.load_default(13), []
    if before := [d for d in walk.decisions if d["t"] <= t]:
        lines.append(CaptionLine(4, before[-1]["reasoning"], font))
        lines.append(CaptionLine(21, before[-1]["action"], font, INK, GIF_WIDTH - 90))
    return captioned(frame, CAPTION, lines, CaptionLine(21, f"{t:.1f} s", font))


def check_clip_name(out: Path) -> None:
    """Check the file name of a clip. Raises EvaluationError."""
    if out.suffix.lower() not in MEDIA_TYPES:
        raise EvaluationError(f"--clip {out}: a clip must be a .gif or .mp4 file")


def write_clip(walk: Walk, out: Path, begin_s: float, end_s: float) -> None:
    """Write a clip to a file, atomically. Raises EvaluationError."""
    check_clip_name(out)
    data = make_clip(walk, begin_s, end_s, out.suffix.lower())
    try:
        write_bytes_atomic(out, data)
    except OSError as error:
        raise EvaluationError(f"{out} cannot be written: {error.strerror or error}") from error
