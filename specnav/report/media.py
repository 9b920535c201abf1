# SPDX-License-Identifier: Apache-2.0
"""Pictures of the report: embedded JPEGs and a captioned GIF of the camera that keeps to a size budget."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from specnav.results.identity import every_nth
from specnav.results.trace import EpisodeTrace, episode_folder

GIF_WIDTH = 448
CAPTION_HEIGHT = 58
PALETTE_PAGES, COLOURS = 12, 128
SHOWN_FRAME_MS, LAST_FRAME_MS = 160, 1600
PAPER, INK, SOFT, POLICY_INK = (20, 23, 27), (238, 240, 243), (164, 171, 180), (227, 171, 101)


def embed(data: bytes, kind: str) -> str:
    """A data URI, so that the report needs no other file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def embed_file(path: Path) -> str:
    """A JPEG or PNG file as a data URI, or "" if it cannot be read or is no such picture."""
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as picture:
            kind = (picture.format or "").lower()
    except OSError:
        return ""
    return embed(data, f"image/{kind}") if kind in ("jpeg", "png") else ""


def shorten(content: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    """Cut text to a pixel width, with an ellipsis."""
    if font.getlength(content) <= width:
        return content
    while content and font.getlength(content + "…") > width:
        content = content[:-1]
    return content.rstrip() + "…"


def compose(data: bytes, trace: EpisodeTrace, t_s: float) -> Image.Image:
    """A camera frame with the instruction, the reasoning and the action written below it."""
    small, normal = ImageFont.load_default(12), ImageFont.load_default(13)
    lines = [CaptionLine(5, f"“{trace.result.instruction}”", small, room=GIF_WIDTH - 76)]
    decision = next((one for one in reversed(trace.decisions) if one.t_s <= t_s), None)  # then carried out
    if decision is not None:
        policy = decision.source == "policy"
        done = (
            f"exploration policy: {decision.action} ({decision.note})"
            if policy
            else decision.action or f"stopped: {decision.note}"
        )
        lines.append(CaptionLine(21, decision.reasoning, small))
        lines.append(CaptionLine(37, done, normal, POLICY_INK if policy else INK))
    frame = Image.open(io.BytesIO(data)).convert("RGB")
    return captioned(frame, CAPTION_HEIGHT, lines, CaptionLine(5, f"{t_s:.1f} s", small))


class CaptionLine(NamedTuple):
    """A line below a picture. top: pixels below it. room: width, to which it is cut."""

    top: int
    text: str
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont
    fill: tuple[int, int, int] = SOFT
    room: int = GIF_WIDTH - 16


def captioned(frame: Image.Image, caption: int, lines: Sequence[CaptionLine], clock: CaptionLine) -> Image.Image:
    """A frame with lines written below it, and the time at the right. caption: its height in pixels."""
    height = round(frame.height * GIF_WIDTH / frame.width)
    page = Image.new("RGB", (GIF_WIDTH, height + caption), PAPER)
    page.paste(frame.resize((GIF_WIDTH, height), Image.Resampling.BICUBIC), (0, 0))
    pen = ImageDraw.Draw(page)
    for one in lines:
        pen.text((8, height + one.top), shorten(one.text, one.font, one.room), font=one.font, fill=one.fill)
    pen.text((GIF_WIDTH - 8, height + clock.top), clock.text, font=clock.font, fill=clock.fill, anchor="ra")
    return page


def gif_of(pages: Sequence[Image.Image], times: Sequence[int]) -> bytes:
    """The pages as a GIF with one palette, made from every third pixel of some pages. times: milliseconds of each."""
    sampled = np.vstack([np.asarray(page)[1::3, 1::3] for page in every_nth(pages, PALETTE_PAGES)])
    palette = Image.fromarray(sampled).quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    flat = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    buffer = io.BytesIO()
    flat[0].save(buffer, "GIF", save_all=True, append_images=flat[1:], duration=times, loop=0, optimize=False)
    return buffer.getvalue()


def make_gif(run: Path, traces: Sequence[EpisodeTrace], budget_bytes: int) -> bytes:
    """A GIF of the episodes in sequence, of at most `budget_bytes`; b"" if no frame was kept or it does not fit.

    The number of frames is reduced until the GIF fits, from the bytes per frame of the previous attempt.
    """
    known = [trace for trace in traces if trace.video]
    if not known:
        return b""
    per_episode = 90
    for _ in range(5):
        pages, times = [], []
        for trace in known:
            folder = episode_folder(run, trace.result.index)
            chosen = [one for one in every_nth(trace.video, per_episode) if (folder / one.file).is_file()]
            for place, frame in enumerate(chosen):
                pages.append(compose((folder / frame.file).read_bytes(), trace, frame.t_s))
                times.append(LAST_FRAME_MS if place == len(chosen) - 1 else SHOWN_FRAME_MS)
        if not pages:
            return b""
        data = gif_of(pages, times)
        if len(data) <= budget_bytes:
            return data
        per_episode = max(int(len(pages) / len(known) * budget_bytes / len(data) * 0.93), 4)
    return data if len(data) <= budget_bytes else b""
