# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: pages that lie beside the code become part of the site, and links between pages follow them.

Every text has one source. A room's README is read where it is, so it looks right on a Git server as well; only the
site's copy of a page is changed, in memory: its links, and the indentation of lists, which mkdocs reads more strictly.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "ros2_ws/src/spec_vlm_nav"
ROBOT_SECTION = "The robot package"
BESIDE_THE_CODE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "specdec/README.md": "rooms/specdec.md",
    "cloud_verifier/README.md": "rooms/cloud_verifier.md",
    "navsim/README.md": "rooms/navsim.md",
    "specnav/recipes/README.md": "rooms/training.md",
    "specnav/recipes/exits/README.md": "rooms/training_exits.md",
    "specnav/recipes/text/README.md": "rooms/training_text.md",
    "specnav/bags/README.md": "rooms/bags.md",
    "specnav/bench/README.md": "rooms/bench.md",
    "config/points/README.md": "rooms/points.md",
    "config/questions/README.md": "rooms/questions.md",
    "docker/README.md": "rooms/docker.md",
    "specnav/demo/README.md": "rooms/demo.md",
    "tests/system/monkey/README.md": "rooms/monkey.md",
    f"{PACKAGE}/README.md": "robot/package.md",
    "ros2_ws/src/spec_vlm_nav_nav2/README.md": "robot/behavior_tree.md",
}
"""Path in the repository -> path in the site; the robot package's docs/ come on top, page by page."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^(?:[-*]|\d+\.) ")
_VERBATIM = re.compile(r"`[^`]*`")


def included() -> dict[str, str]:
    """All pages that are read where they lie: path in the repository -> path in the site."""
    extra = sorted((ROOT / PACKAGE / "docs").glob("*.md"))
    return BESIDE_THE_CODE | {f"{PACKAGE}/docs/{page.name}": f"robot/{page.name}" for page in extra}


def on_config(config: Any) -> Any:
    """Give a page of the robot package that mkdocs.yml does not name yet its place in the navigation."""
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if title == ROBOT_SECTION:
                pages += sorted(
                    page for page in included().values() if page.startswith("robot/") and page not in pages
                )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages beside the code."""
    for source, target in included().items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of a page into those of the site, and its lists into mkdocs's."""
    pages = included()
    sources = {target: source for source, target in pages.items()}
    target = page.file.src_uri
    source = sources.get(target, f"docs/{target}")
    return "\n".join(_lines(markdown, source, target, pages))


def _lines(markdown: str, source: str, target: str, pages: dict[str, str]) -> list[str]:
    lines: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        in_list = fence.startswith(" ") or (not fence and not line.startswith("    "))
        if line.startswith("   ") and in_list:
            line = f" {line}"  # under "1. " a Git server wants three spaces, mkdocs four
        if _FENCE.match(line):
            fence = "" if fence else line
        elif not fence:
            if _ITEM.match(line) and lines and lines[-1].strip() and not _in_item(lines):
                lines.append("")  # a list right behind a paragraph is none to mkdocs
            line = _linked(line, source, target, pages)
        lines.append(line)
    return lines


def _in_item(lines: list[str]) -> bool:
    """Whether the paragraph at the end of these lines began as an item of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.match(line):
            return True
    return False


def _linked(line: str, source: str, target: str, pages: dict[str, str]) -> str:
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found.group())
        return f"\0{len(kept) - 1}\0"

    def replace(found: re.Match[str]) -> str:
        bang, label, link = found.groups()
        site_link = site_target(link, source, target, pages)
        return label if site_link is None else f"{bang}[{label}]({site_link})"

    changed = _LINK.sub(replace, _VERBATIM.sub(keep, line))
    return re.sub(r"\0(\d+)\0", lambda number: kept[int(number.group(1))], changed)


def site_target(link: str, source: str, target: str, pages: dict[str, str]) -> str | None:
    """What a link of the page at `source` becomes on the site's page `target`.

    None where it leads to a file of the repository that is not a page: the site does not hold it, the words stay.
    """
    if re.match(r"[a-z]+:", link) or link.startswith("#"):
        return link
    path, mark, anchor = link.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if place in pages:
        place = pages[place]
    elif place == "README.md":
        place = "index.md"
    elif place.startswith("docs/"):
        place = place.removeprefix("docs/")
    else:
        return None
    return posixpath.relpath(place, posixpath.dirname(target) or ".") + mark + anchor
