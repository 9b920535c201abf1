# SPDX-License-Identifier: Apache-2.0
"""Structured logs: one JSON object a line on a stream. Repeated warnings of one kind are rate-limited.
Exception messages may quote a prompt, so they are left out unless asked for.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from contextlib import suppress
from typing import TextIO

WARNINGS_A_MINUTE = 5


class EventLog:
    """Writes events. Safe to use from several threads."""

    def __init__(self, stream: TextIO, contents: bool = False) -> None:
        """contents: also log text that may quote prompts, images or answers."""
        self._contents = contents
        self._stream = stream
        self._lock = threading.Lock()
        self._recent: dict[str, list[float]] = {}
        self._suppressed: dict[str, int] = {}
        self._fields: dict[str, object] = {}

    def bind(self, **fields: object) -> EventLog:
        """A view of this log that adds `fields` to every record."""
        bound = object.__new__(EventLog)  # runs for every new session: copy() takes 5 µs, this 2
        bound.__dict__ = {**self.__dict__, "_fields": {**self._fields, **fields}}
        return bound

    def info(self, event: str, **fields: object) -> None:
        """Log an event with its fields."""
        self._write("info", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log an internal error."""
        self._write("error", event, fields)

    def trace_of(self, error: BaseException) -> str:
        """The traceback of an error and its causes: places and types, and the messages only with `contents`."""
        if self._contents:
            return "".join(traceback.format_exception(type(error), error, error.__traceback__))
        lines: list[str] = []
        seen: set[int] = set()
        cause: BaseException | None = error
        while cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            lines = [*traceback.format_tb(cause.__traceback__), f"{type(cause).__qualname__}\n", *lines]
            cause = cause.__cause__ or cause.__context__
        return "".join(lines)

    def warning(self, event: str, **fields: object) -> None:
        """Log a warning, at most WARNINGS_A_MINUTE times a minute for each event; suppressed ones are counted."""
        now = time.monotonic()  # the wall clock may be set back
        with self._lock:
            recent = [t for t in self._recent.get(event, []) if now - t < 60.0]
            allowed = len(recent) < WARNINGS_A_MINUTE
            if allowed:
                recent.append(now)
                suppressed = self._suppressed.pop(event, 0)
            else:
                self._suppressed[event] = self._suppressed.get(event, 0) + 1
            self._recent[event] = recent
        if allowed:
            if suppressed:
                fields["suppressed_before"] = suppressed
            self._write("warning", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        about = {"time": round(time.time(), 3), "level": level, "event": event}
        record = {**about, **self._fields, **fields}
        line = json.dumps(record, default=str)
        # A full disk, or a reader of the log that has gone, must not end a server.
        with self._lock, suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()


def pass_on_warnings(name: str, log: EventLog) -> None:
    """Copy the warnings of the library logger `name` into the log, as events of that name."""

    class PassOn(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.warning(name, reason=record.getMessage()[:500])

    logger = logging.getLogger(name)
    logger.addHandler(PassOn(logging.WARNING))
    logger.propagate = False
