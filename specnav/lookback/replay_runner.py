# SPDX-License-Identifier: Apache-2.0
"""Decides a walk again: runs `specnav replay` in a separate process, watches it, and compares it with the recording.

In a separate process, the page stays responsive while models compute, and a failure ends only the replay.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from specdec.errors import DECODE_ERRORS, OptionsError
from specdec.methods import METHODS, get_method
from specdec.settings import as_arguments
from specnav.bags.contents import NO_ACTION
from specnav.bags.records import DECISIONS_FILE, DecisionRecord
from specnav.errors import ChildFailed
from specnav.lookback.config import Deciders
from specnav.lookback.walk import Walk
from specnav.paths import ROOT
from specnav.results.errors import EvaluationError
from specnav.supervise.processes import ChildSpec, Supervisor, last_words

State = Literal["none", "starting", "deciding", "done", "cancelled", "failed"]
Difference = Literal["same", "words", "action", "failed", "unknown"]
POLL_S, END_S = 0.3, 15.0
MOST_WITHOUT_DECISIONS = 200  # frames of a bag without decisions
LONGEST_NAME = 120


def offered_methods() -> list[str]:
    """The methods that can decide here; a split target would need a robot with its first layers."""
    return [name for name, method in METHODS.items() if not method.split]


def check_method(name: str) -> str:
    """Check a method's name, which may override axes, and return it. Raises EvaluationError."""
    name = name.strip()
    try:
        method = get_method(name[:LONGEST_NAME])
    except OptionsError as error:
        raise EvaluationError(str(error)) from error
    if method.split or "," in name or len(name) > LONGEST_NAME:
        raise EvaluationError(f"method {name[:40]} cannot decide here; choose {', '.join(offered_methods())}")
    return name


def differs(recorded: Mapping[str, Any] | None, again: DecisionRecord) -> Difference:
    """How an answer differs from the recorded decision: in its action, only in its words, or not at all."""
    if again.error:
        return "failed"
    if recorded is None:
        return "unknown"
    before = recorded["model_action"] or recorded["action"] or NO_ACTION
    if again.action != before:
        return "action"
    return "words" if recorded["text"] and again.text != recorded["text"] else "same"


class ReplayRunner:
    """Runs one replay of one bag at a time. The page's server calls it; a thread watches the process."""

    def __init__(self, bag: Path, walk: Walk, deciders: Deciders, command: Sequence[str] | None = None) -> None:
        """bag: the file. command: program that takes replay's arguments (default: `specnav replay` of this Python)."""
        self._bag, self._deciders = bag.resolve(), deciders
        self._command = command or (sys.executable, "-m", "specnav.cli", "replay")
        self._recorded = {d["stamp_ns"]: d for d in walk.decisions if d["frame"] is not None}
        self._frames = {f.number: walk.seconds(f.time_ns) for f in walk.frames}
        asked = len(self._recorded)
        # Frames with a recorded action are always decided; without any, every n-th frame is.
        self._every = 1_000_000 if asked else max(1, len(walk.frames) // MOST_WITHOUT_DECISIONS)
        self._lock = threading.Lock()
        self._state: State = "none"
        self._method, self._why = "", ""
        self._total = asked or -(-len(walk.frames) // self._every)
        self._answers: list[dict[str, Any]] = []
        self._watcher: threading.Thread | None = None
        self._cancelled, self._run_number = False, 0

    def start(self, method: str) -> None:
        """Start a replay. Raises EvaluationError for an unknown method, or if one is running."""
        method = check_method(method)
        with self._lock:
            if self._state in ("starting", "deciding"):
                raise EvaluationError(f"{self._method} is running: cancel it first")
            self._state, self._method, self._why, self._cancelled = "starting", method, "", False
            self._answers = []
            self._run_number += 1
            self._watcher = threading.Thread(target=self._run, args=(method,), name="again", daemon=True)
            self._watcher.start()

    def cancel(self) -> None:
        """Cancel the running replay, if any; decisions made so far are kept."""
        with self._lock:
            if self._state in ("starting", "deciding"):
                self._cancelled = True

    def close(self) -> None:
        """Cancel the running replay and wait for its end."""
        self.cancel()
        if self._watcher is not None:
            self._watcher.join(END_S + 5.0)

    def told(self, since: int = 0) -> dict[str, Any]:
        """The state for the page, with the answers from number `since` on."""
        with self._lock:
            counts = dict.fromkeys(("same", "words", "action", "failed", "unknown"), 0)
            for answer in self._answers:
                counts[answer["differs"]] += 1
            return {
                "run": self._run_number,
                "state": self._state,
                "method": self._method,
                "why": self._why,
                "done": len(self._answers),
                "total": max(self._total, len(self._answers)),
                "counts": counts,
                "answers": self._answers[since:],
            }

    # -- in the watcher's thread

    def _run(self, method: str) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="specnav-again-") as folder:
                self._watch(method, Path(folder))
        except ChildFailed as error:
            self._end("failed", str(error))
        except OSError as error:
            self._end("failed", f"the replay cannot be run: {error.strerror or error}")
        except DECODE_ERRORS as error:
            self._end("failed", f"the replay's output cannot be read: {error}")

    def _watch(self, method: str, folder: Path) -> None:
        out = folder / "run"
        argv = [*self._command, str(self._bag), "--methods", method, "--every", str(self._every)]
        argv += ["--out", str(out), *as_arguments(self._deciders)]
        reader = _Lines(out / DECISIONS_FILE)
        with Supervisor(folder) as supervisor:
            # Unbuffered, so that an error is the last line of the log.
            child = supervisor.start(ChildSpec("replay", argv, {"PYTHONUNBUFFERED": "1"}, cwd=ROOT))
            while child.process.poll() is None and not self._cancelled:
                time.sleep(POLL_S)
                self._take(reader.new())
            supervisor.stop_all(END_S)
        self._take(reader.new())
        if self._cancelled:
            self._end("cancelled", "")
        elif child.process.returncode:
            said = last_words(child.log).removeprefix("specnav: error: ")
            self._end("failed", said or f"the replay ended with {child.process.returncode}")
        else:
            self._end("done", "")

    def _take(self, records: list[DecisionRecord]) -> None:
        with self._lock:
            for record in records:
                self._state = "deciding" if self._state == "starting" else self._state
                recorded = self._recorded.get(str(record.stamp_ns))
                self._answers.append(
                    {
                        "frame": record.frame,
                        "t": recorded["t"] if recorded else self._frames.get(record.frame, 0.0),
                        "stamp_ns": str(record.stamp_ns),
                        "differs": differs(recorded, record),
                        "card": _card(record),
                    }
                )

    def _end(self, state: State, why: str) -> None:
        with self._lock:
            self._state, self._why = state, why


class _Lines:
    """Reads the complete records of a growing file."""

    def __init__(self, file: Path) -> None:
        self._file, self._at = file, 0

    def new(self) -> list[DecisionRecord]:
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._at)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole, end, _ = data.rpartition(b"\n")
        self._at += len(whole) + len(end)
        return [msgspec.json.decode(line, type=DecisionRecord) for line in whole.splitlines() if line]


def _card(record: DecisionRecord) -> dict[str, Any]:
    """An answer in the form of a recorded decision, for the page's cards."""
    return {
        "instruction": record.instruction,
        "method": record.method,
        "reasoning": record.reasoning,
        "text": record.text,
        "action": record.action,
        "by": "model",
        "rule": "",
        "verification": 0,
        "error": record.error,
        "decision_ms": round(record.decision_ms or record.total_ms, 1),
        "rounds": len(record.drafted),
        "drafted": sum(record.drafted),
        "accepted": sum(record.accepted),
        "pieces": [],
        "shares": dict.fromkeys(("camera", "edge", "link", "cloud"), 0.0),
    }
