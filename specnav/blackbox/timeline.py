# SPDX-License-Identifier: Apache-2.0
"""The events in a black-box file: one line per event, repetitions left out."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spec_vlm_nav.blackbox.triggers import one_line
from spec_vlm_nav.common.codes import ErrorCode, LinkState, MotionState, Verification
from spec_vlm_nav.common.diagnostics import Level
from spec_vlm_nav.motion.command import CommandKind
from specnav.bags.source import Bag
from specnav.bags.storage import BagTopic
from specnav.bags.types import Types
from specnav.results.errors import EvaluationError

OURS = "spec_vlm_nav_interfaces/msg/"
SOURCES = ("model", "exploration", "supervisor")


@dataclass(frozen=True)
class TimelineEvent:
    """One line: time (wall clock, ns), kind of event, and details."""

    time_ns: int
    what: str
    text: str


def events(bag: Bag, topics: Iterable[BagTopic], types: Types, notes: list[str]) -> list[TimelineEvent]:
    """The events on topics of a bag in order of time. notes: gets a line about messages that cannot be read."""
    wanted = {topic.name: topic for topic in topics if _teller(topic) is not None}
    for topic in wanted.values():
        types.learn(topic)
    unread: Counter[str] = Counter()
    last: dict[tuple[str, str], str] = {}
    found = []
    for message in bag.messages(list(wanted)):
        topic = wanted[message.topic]
        tell = _teller(topic)
        try:
            told = list(tell(Lenient(types.decode(topic.kind, message.data)))) if tell is not None else []
        except (EvaluationError, TypeError, ValueError, LookupError):
            unread[topic.name] += 1
            continue
        for name, state, text in told:
            if name:
                before, last[message.topic, name] = last.get((message.topic, name), ""), state
                if before == state:
                    continue
            found.append(TimelineEvent(message.time_ns, _role(topic), one_line(text)))
    notes += [f"{name}: {count} messages are not {wanted[name].kind}: ignored" for name, count in unread.items()]
    return sorted(found, key=lambda event: event.time_ns)


class Lenient:
    """A message of another release: fields that it does not have are 0 or empty."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._message, name, None)
        if given is None:
            return [] if name.startswith(("token_", "span_")) else 0
        return given


Told = Iterator[tuple[str, str, str]]
"""Lines about one message: (name, state, text). Of a named state only changes are reported; name "": an event, always
reported.
"""


def _role(topic: BagTopic) -> str:
    return topic.name.rstrip("/").rpartition("/")[2]


def _name(kind: type[enum.Enum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return str(value)


def _status(said: Any) -> Told:
    held = f" (held by {said.held_by})" if said.held_by else ""
    reason = f": {said.reason}" if said.reason else ""
    text = f"{said.sequence} {_name(MotionState, said.state)}{reason}{held}"
    yield "state", text, text


def _command(said: Any) -> Told:
    source = SOURCES[said.source] if said.source < len(SOURCES) else str(said.source)
    mark = ", unverified" if said.unverified else ""
    yield "", "", f"{said.sequence} {_name(CommandKind, said.kind)} {said.text} ({source}{mark})"


def _decision(said: Any) -> Told:
    about = f"{said.decision_ms:.0f} ms, {_name(Verification, said.verification)}"
    words = f': "{said.reasoning or said.text}"' if said.reasoning or said.text else ""
    if said.error_code:
        yield "", "", f"{said.sequence} {_name(ErrorCode, said.error_code)}: {said.error}{words}"
    else:
        yield "", "", f"{said.sequence} {said.action} ({about}){words}"


def _supervision(said: Any) -> Told:
    link = _name(LinkState, said.link)
    yield "link", link, f"link {link}"


def _robot(said: Any) -> Told:
    reason = f": {said.reason}" if said.reason else ""
    text = f"{'ready' if said.ready else 'not ready'} {said.mode}{reason}"
    yield "ready", text, text


def _diagnostics(said: Any) -> Told:
    for status in said.status or ():
        level = _name(Level, status.level if isinstance(status.level, int) else status.level[0])
        state = "" if level in ("OK", "STALE") else level
        yield status.name, state, f"{status.name} {level}: {status.message}"


def _button(said: Any) -> Told:
    yield "button", "pressed" if said.data else "", "pressed" if said.data else "released"


_BY_KIND: dict[str, Callable[[Any], Told]] = {
    f"{OURS}MotionStatus": _status,
    f"{OURS}MotionCommand": _command,
    f"{OURS}DecisionMetrics": _decision,
    f"{OURS}Supervision": _supervision,
    f"{OURS}RobotState": _robot,
    "diagnostic_msgs/msg/DiagnosticArray": _diagnostics,
    "std_msgs/msg/String": lambda said: iter([("", "", said.data)]),
    "std_msgs/msg/Bool": _button,
    "std_msgs/msg/Empty": lambda said: iter([("", "", "")]),
}


def _teller(topic: BagTopic) -> Callable[[Any], Told] | None:
    return _BY_KIND.get(topic.kind)
