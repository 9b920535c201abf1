# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Draws a camera picture with what the robot was told, thinks and does. Free of ROS; Pillow only.

The picture itself is covered by nothing but the arrow of the motion under way and, where the draft
model decided alone, the word UNVERIFIED; all else stands below it.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import math

from PIL import Image, ImageDraw, ImageFont
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.viewing.board import Scene

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Point = tuple[float, float]

BACKGROUND, WHITE, GREY = (22, 24, 28), (245, 245, 245), (176, 180, 188)
RED, ORANGE, BLACK = (239, 83, 80), (255, 152, 0), (0, 0, 0)
# Colours of those who decide; what nobody verified is orange, whoever said it.
COLOURS = {'model': (102, 187, 106), 'exploration': (66, 165, 245), 'supervisor': (189, 189, 189)}
REASONING_LINES = 2
LINES = REASONING_LINES + 3
LONGEST_M = 0.75  # an arrow of this motion takes half of the picture's height
ELLIPSIS = '...'  # not every font has the single character


@functools.lru_cache(maxsize=8)
def _font(size: int) -> Font:
    return ImageFont.load_default(size)


def colour_of(scene: Scene) -> tuple[int, int, int]:
    """Return the colour of an action: by who decided it."""
    if scene.unverified:
        return ORANGE
    return COLOURS.get(scene.decided_by.partition(' ')[0], GREY)


def wrap(text: str, font: Font, width: float, lines: int) -> list[str]:
    """
    Break a text into at most so many lines of a width in pixels.

    What does not fit ends with dots.
    """
    words, out = text.split(), ['']
    for i, word in enumerate(words):
        longer = f'{out[-1]} {word}'.strip()
        if font.getlength(longer) <= width:
            out[-1] = longer
        elif len(out) < lines and out[-1]:
            out.append(word)
        else:
            out[-1] = _cut(' '.join([out[-1], *words[i:]]).strip(), font, width)
            return out
    # A single word may be longer than a line.
    return [line if font.getlength(line) <= width else _cut(line, font, width) for line in out]


def _cut(text: str, font: Font, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if font.getlength(text[:middle] + ELLIPSIS) <= width:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + ELLIPSIS


def arrow_of(motion: Motion, width: int, height: int) -> list[Point]:
    """
    Return the line of a motion's arrow in pixels, its head last.

    Forward is up, a left turn bends to the left. A sketch, not a projection: the camera's
    calibration is not known.
    """
    foot = (width / 2, height * 0.94)
    if motion.angle_rad == 0.0:
        reach = motion.distance_m / LONGEST_M * height / 2
        if reach < 0:
            foot = (foot[0], height * 0.6)
        return [foot, (foot[0], max(height * 0.04, min(foot[1] - reach, height * 0.96)))]
    radius, steps = height * 0.45, 24
    turned = max(-math.pi, min(math.pi, motion.angle_rad))
    angles = (math.pi / 2 + turned * i / steps for i in range(steps + 1))
    return [(foot[0] + radius * math.cos(a), foot[1] - radius * math.sin(a)) for a in angles]


def _draw_arrow(
    draw: ImageDraw.ImageDraw, points: Sequence[Point], thick: float, colour: tuple[int, ...]
) -> None:
    (x0, y0), (x1, y1) = points[-2], points[-1]
    along = math.atan2(y1 - y0, x1 - x0)
    for fill, extra in ((BLACK, thick * 0.25), (colour, 0.0)):
        size = thick * 1.6 + extra * 1.8
        tip = (
            x1 + math.cos(along) * (thick * 1.6 + extra * 2),
            y1 + math.sin(along) * (thick * 1.6 + extra * 2),
        )
        base = (x1 - math.cos(along) * extra, y1 - math.sin(along) * extra)
        side = (-math.sin(along) * size, math.cos(along) * size)
        draw.line(list(points), fill=fill, width=round(thick + 2 * extra), joint='curve')
        draw.polygon(
            [tip, (base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])],
            fill=fill,
        )


def _figures(scene: Scene) -> str:
    parts = [f'link {scene.link}' if scene.link and 'silent' not in scene.link else scene.link]
    if scene.decision_ms > 0:
        parts.append(f'decided in {scene.decision_ms:.0f} ms')
    if scene.problem:
        parts.append(scene.problem)
    return '  ·  '.join(part for part in parts if part)


def annotate(picture: Image.Image, scene: Scene, width: int = 640) -> Image.Image:
    """Return the picture, `width` pixels wide, with the scene drawn into and below it."""
    size = max(12, round(width / 36))
    font, line = _font(size), round(size * 1.35)
    margin, height = round(size * 0.6), max(1, round(picture.height * width / picture.width))
    canvas = Image.new('RGB', (width, height + LINES * line + 2 * margin), BACKGROUND)
    canvas.paste(picture.resize((width, height), Image.Resampling.BILINEAR), (0, 0))
    draw, colour = ImageDraw.Draw(canvas), colour_of(scene)
    if scene.motion is not None:
        _draw_arrow(draw, arrow_of(scene.motion, width, height), width / 45, colour)
    if scene.unverified:
        banner = 'UNVERIFIED: the draft model decides alone'
        draw.rectangle((0, 0, width, round(line * 1.2)), fill=ORANGE)
        draw.text((width / 2, line * 0.6), banner, fill=BLACK, font=font, anchor='mm')
    room = width - 2 * margin
    rows: list[tuple[str, tuple[int, int, int]]] = [
        (
            _cut(scene.instruction or 'no instruction', font, room),
            WHITE if scene.instruction else GREY,
        )
    ]
    reasoning = wrap(scene.reasoning, font, room, REASONING_LINES)
    rows += [(text, GREY) for text in reasoning + [''] * (REASONING_LINES - len(reasoning))]
    doing = '  ·  '.join(part for part in (scene.action, scene.decided_by, scene.state) if part)
    if scene.unverified:
        doing = f'UNVERIFIED  ·  {doing}'
    rows.append((_cut(doing, font, room), colour))
    bad = scene.problem or scene.link.startswith('LOST') or 'silent' in scene.link
    rows.append((_cut(_figures(scene), font, room), RED if bad else GREY))
    for number, (text, fill) in enumerate(rows):
        draw.text((margin, height + margin + number * line), text, fill=fill, font=font)
    return canvas
