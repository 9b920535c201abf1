"""The repository's Markdown as data: its files, their links, headings and commands; no network."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path

from specdec.settings import settings_of

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = {"build", "install", "log", "node_modules", "runs", "site"}

_FENCED = re.compile(r"^([ \t]*)(```|~~~)(\w*)[^\n]*\n(.*?)^\1\2[ \t]*$", re.S | re.M)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINED = re.compile(r"^\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.M)
_HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.M)
_ANCHOR = re.compile(r"<a\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")


def ours(pattern: str = "*") -> Iterator[Path]:
    """All files and folders but those of environments, builds and runs, which are not even entered: they are large."""
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in _NOT_OURS]
        yield from (Path(folder, name) for name in [*inside, *files] if fnmatch(name, pattern))


def markdown_files() -> list[Path]:
    """All Markdown files."""
    return sorted(ours("*.md"))


def links(text: str) -> list[str]:
    """Targets of the links and images in a text, not those in code."""
    prose = _INLINE.sub("", _FENCED.sub("", text))
    return [*_LINK.findall(prose), *_DEFINED.findall(prose), *_HTML.findall(prose)]


def anchors(text: str) -> set[str]:
    """What a link may name behind `#`: the headings as Git servers spell them, and anchors written out."""
    prose = _FENCED.sub("", text)
    found: set[str] = set(_ANCHOR.findall(prose))
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(prose):
        slug = _slug(heading)
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def _slug(heading: str) -> str:
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = "".join(letter for letter in words.lower() if letter.isalnum() or letter in " -_")
    return kept.strip().replace(" ", "-")


def code_blocks(text: str, *languages: str) -> list[str]:
    """The bodies of the blocks marked with one of the languages."""
    return [body for _, _, language, body in _FENCED.findall(text) if language in languages]


def shell_lines(text: str) -> list[str]:
    """The lines of the blocks marked bash, sh or console, joined where a backslash ends one."""
    blocks = code_blocks(text, "bash", "sh", "console")
    return [line.strip() for body in blocks for line in body.replace("\\\n", " ").splitlines()]


def inline_code(text: str) -> list[str]:
    """What stands between backticks in the prose."""
    return _INLINE.findall(_FENCED.sub("", text))


def settings_table(kind: type, names: Collection[str] = ()) -> str:
    """A Markdown table of these settings (all if `names` is empty): flag, default, range and help."""
    rows = ["| setting | default | range | |\n|---|---|---|---|\n"]
    for name, told in settings_of(kind).items():
        if not names or name in names:
            may_be = told.range or ", ".join(f"`{one}`" for one in told.choices)
            unit = f" {told.unit}" if told.unit and not told.shown and told.shown_default != "none" else ""
            rows.append(f"| `{told.spellings[0]}` | {told.shown_default}{unit} | {may_be} | {told.help} |\n")
    return "".join(rows)
