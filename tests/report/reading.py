"""Reads a report as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser


class ReadPage(HTMLParser):
    """loaded: what the page would load. words: its text. titles: of its pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.titles: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.titles += [value or "" for name, value in attrs if name == "aria-label"]

    def handle_data(self, data: str) -> None:
        self.words.append(" ".join(data.split()))
