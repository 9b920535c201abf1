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
The open pages: what each may do and what it receives. Runs in the web server's event loop.

A page receives a picture only after it has drawn the previous one: pictures are dropped, never
late. Any page may stop the robot; everything that can make it move needs the role of an operator
and control of that robot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import itertools
import json
import struct
import time
from typing import Any

from spec_vlm_nav.console.access import AccessRole, MessageBucket
from spec_vlm_nav.console.audit import Audit
from spec_vlm_nav.console.open_page import BURST, Control, Page, RATE, Send, StopTimer
from spec_vlm_nav.console.orders import FAULTS, MOVING, Orders, read_at_once, ReadMission
from spec_vlm_nav.console.robot_files import RobotFiles
from spec_vlm_nav.console.robots import ConsoleRobot, in_short, Robots
from spec_vlm_nav.console.words import LONGEST_WORDS, STOPPING
from spec_vlm_nav.language.stop_words import is_stop

STATE_S, MAP_S, HEALTH_S, WATCH_S, HOLD_S = 0.2, 1.0, 1.0, 0.05, 0.1
PATIENCE_S = 5.0
LONGEST_REFUSAL = 1000
TOO_MANY = "too many commands at once: wait a moment"


class Pages:
    """All pages, and control of the robots."""

    def __init__(
        self,
        robots: Robots,
        audit: Audit,
        require_operator: bool,
        page_timeout_s: float,
        shelf: RobotFiles | None = None,
        templates: tuple[str, ...] = (),
        page_busy_s: float = 0.4,
        read_mission: ReadMission = read_at_once,
    ) -> None:
        self._robots, self._audit = robots, audit
        self._orders, self.shelf = Orders(self, read_mission), shelf or RobotFiles(None)
        self._templates, self._posts = templates, MessageBucket(RATE, BURST)
        self._busy_s = page_busy_s
        self._require_operator, self._timeout_s = require_operator, page_timeout_s
        self._pages: set[Page] = set()
        # If no operator is required, a page that is slow for a moment keeps control.
        self._silence_s = page_timeout_s if require_operator else max(page_timeout_s, PATIENCE_S)
        self._controls: dict[str, Control] = {}
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._standing = StopTimer()

    @property
    def count(self) -> int:
        """Return the number of open pages."""
        return len(self._pages)

    def all(self) -> list[Page]:
        """Return the open pages, oldest first."""
        return sorted(self._pages, key=lambda page: page.number)

    def robot_names(self) -> list[str]:
        """Return the namespaces that may contain a robot."""
        return sorted(self._robots.all_names())

    @property
    def robots_heard(self) -> int:
        """Return the number of robots that are heard."""
        found = [self._robots.get(name) for name in self._robots.all_names()]
        return sum(robot is not None and robot.is_heard for robot in found)

    def control(self, robot: str) -> Control:
        """Return the control state of a robot."""
        if self._robots.get(robot) is None:
            return Control(self._silence_s)  # not kept: a page may name any robot
        return self._controls.setdefault(robot, Control(self._silence_s))

    # -- pages open and close

    def open(
        self, name: str, role: AccessRole, where: str, send: Send, robot: str | None = None
    ) -> Page:
        """
        Register a new page.

        robot: the one that it showed before its connection was lost. It shows that robot again, even if
        it is not found yet: its STOP must never reach another one. None: the first robot that is heard.
        """
        page = Page(next(self._numbers), name, role, where, send)
        page.robot = next(iter(self._robots.names()), "") if robot is None else robot
        page.is_settled = robot is not None
        self._settle(page)
        self._pages.add(page)
        page.tell(
            "hello",
            page=page.number,
            role=role.value,
            name=name,
            require_operator=self._require_operator,
            timeout_s=self._timeout_s,
            busy_s=self._busy_s,
            templates=self._templates,
            faults=tuple(FAULTS),
        )
        self._welcome(page)
        return page

    def _settle(self, page: Page) -> bool:
        """Have a page that shows no robot show the first one that is heard; returns whether it does."""
        heard = [n for n in self._robots.names() if (robot := self._robots.get(n)) and robot.is_heard]
        if page.is_settled or not heard:
            return False
        page.robot, page.is_settled = heard[0], True
        return True

    def _welcome(self, page: Page) -> None:
        page.sent_frame = page.in_flight = 0
        page.decision = None
        robot = self._robots.get(page.robot)
        if robot is not None:
            robot.ask_parameters()
            page.tell("decisions", all=page.take_decisions(robot.decisions()))
        self._tell_state(page)
        self._tell_map(page)

    def close(self, page: Page) -> None:
        """Remove a page and release its control."""
        self._pages.discard(page)
        for robot, control in self._controls.items():
            if control.let_go(page.number):
                self._let_go(robot, f"{page.name} has left")

    def _let_go(self, name: str, why: str) -> None:
        robot = self._robots.get(name)
        if robot is not None and self._require_operator:
            robot.stop()
            robot.hold(_holder(name), False)
        self.log(name, "warn", f"{why}: no page has control" + self._stopped())

    def _stopped(self) -> str:
        return "; the robot is stopped" if self._require_operator else ""

    # -- messages from pages

    def take(self, page: Page, message: dict[str, Any]) -> None:
        """Handle a page's message; errors are sent to the page."""
        kind = str(message.get("t", ""))
        if kind == "beat":
            self.control(page.robot).beat(page.number, time.monotonic())
        elif kind == "drawn":
            page.in_flight = 0
            self._feed(page)
        elif kind == "look":
            self._look(page, str(message.get("robot", "")))
            page.on_look()
        elif kind in STOPPING:  # before any rate limit: a stop from any sender is obeyed
            number, how = (str(message.get(key, ""))[:40] for key in ("id", "how"))
            self.stop(page, kind, number, how)
        elif kind in ("heard", "say") and is_stop(str(message.get("text", ""))[:LONGEST_WORDS]):
            self.stop(page, "stop", "", "spoken" if kind == "heard" else "typed")
        elif kind == "heard":
            pass  # partial speech: only stop words act before the operator confirms
        elif kind in ("files", "file"):
            if page.bucket.take(time.monotonic()):
                self._aside(lambda: self._tell_files(page, kind, str(message.get("name", ""))))
        else:
            self._command(page, kind, message)

    def _look(self, page: Page, name: str) -> None:
        names, why = self._robots.names(), ""
        if not page.bucket.take(time.monotonic()):
            why = TOO_MANY
        elif name not in names:
            there = ", ".join(repr(other) for other in names[:8]) or "none yet"
            why = f"there is no robot {name[:60]!r}; known: {there}"
        if why:
            self._note(page, f"look {name[:200]}", f"refused: {why}")
            page.tell("no", to="look", why=why)
            return
        for control in self._controls.values():
            if control.let_go(page.number):
                self._let_go(page.robot, f"{page.name} switched to another robot")
        page.robot, page.is_settled = name, True
        self._welcome(page)

    def _aside(self, act: Callable[[], None]) -> None:
        """Run disk access in a worker thread; at once if there is no event loop."""
        if self._loop is None or self._loop.is_closed():
            act()
        else:
            self._loop.run_in_executor(None, act)

    def _tell_files(self, page: Page, kind: str, name: str) -> None:
        what, told = self.shelf.answer(page.robot, kind, name, time.monotonic())
        if kind == "file":
            why = told.get("why")
            self._note(page, f"file {name[:200]}", f"refused: {why}" if why else "done")
        self.call(lambda: page.tell(what, **told))

    def stop(self, page: Page, kind: str, number: str, how: str) -> None:
        """Stop the robot that a page shows, and tell the page when it stands."""
        robot = self._robots.get(page.robot)
        if robot is None:
            page.tell("no", to=kind, why="there is no such robot")
            return
        robot.stop() if kind == "stop" else robot.estop()
        self._after_stop(page, kind, number, how)

    def stopped(self, said: dict[str, Any]) -> None:
        """Handle the front's report of a published STOP."""
        for page in [p for p in self._pages if p.connection == said["stop"]]:
            # If the front's publisher had no subscriber (yet), publish from here.
            then = self._after_stop if said["heard"] else self.stop
            then(page, said["kind"], said["id"], said["how"])

    def _after_stop(self, page: Page, kind: str, number: str, how: str) -> None:
        now = time.monotonic()
        self._standing.ask(page, number, now)
        if page.bucket.take(now):  # limits only the log line, not the stop
            self._note(page, f"{kind} {how}".strip(), "sent")
            said = f" ({how})" if how else ""
            self.log(page.robot, "warn", f"{kind.upper()} by {page.name}{said}")

    def stopped_by_post(self, said: dict[str, Any]) -> None:
        """Handle the front's report of a STOP by POST."""
        name, robot = said["posted"], self._robots.get(said["posted"])
        if robot is not None and not said["heard"]:
            robot.stop()
        if self._posts.take(time.monotonic()):
            who = said["who"]
            self._audit.note(who, said["role"], said["where"], name, "stop by POST", "sent")
            self.log(name, "warn", f"STOP by {who} (its socket was gone)")

    def _command(self, page: Page, kind: str, message: dict[str, Any]) -> None:
        robot, why = self._robots.get(page.robot), ""
        if not page.bucket.take(time.monotonic()):
            why = TOO_MANY
        elif kind not in (*MOVING, "take", "release"):
            why = f"{kind[:40]!r} is not a command"
        elif page.role is not AccessRole.OPERATOR:
            why = "viewers look and may stop; only an operator may move the robot"
        elif robot is None:
            why = "there is no such robot"
        elif kind in MOVING and self.control(page.robot).page != page.number:
            name = self.control(page.robot).name
            why = f"{name or 'nobody'} has control: take it first"
        if why == TOO_MANY and not page.excess.take(time.monotonic()):
            return  # reported once a second
        if why or robot is None:
            self._note(page, _words(message), f"refused: {why}")
            page.tell("no", to=kind, why=why)
            return
        if kind in ("take", "release"):
            self._change_control(page, robot, kind, bool(message.get("force")))
            return
        wrong = self._orders.carry_out(page, robot, kind, message)
        if wrong is not None:
            self.done(page, message, wrong)

    def done(self, page: Page, message: dict[str, Any], wrong: str) -> None:
        """Log a command's result; wrong: why it was refused, or ""."""
        self._note(page, _words(message), f"refused: {wrong}" if wrong else "done")
        if wrong:
            page.tell("no", to=str(message.get("t", "")), why=wrong[:LONGEST_REFUSAL])

    def has_control(self, page: Page) -> bool:
        """Return whether a page has control of the robot that it shows."""
        return page in self._pages and self.control(page.robot).page == page.number

    def _change_control(self, page: Page, robot: ConsoleRobot, kind: str, force: bool) -> None:
        control, now = self.control(page.robot), time.monotonic()
        if kind == "release":
            if control.let_go(page.number):
                self._let_go(page.robot, f"{page.name} released control")
            self._note(page, "release", "done")
            return
        before, had = control.name, control.page
        why = control.take(page.number, page.name, now, force)
        asked = "take by force" if force else "take"
        self._note(page, asked, f"refused: {why}" if why else "done")
        if why:
            page.tell("no", to="take", why=why)
            return
        if had is not None and had != page.number:
            robot.stop()
            said = f"{page.name} took control from {before}; the robot is stopped"
            self.log(page.robot, "warn", said)
        elif had is None:
            self.log(page.robot, "info", f"{page.name} has control")
        self._hold(page.robot)
        self.tell_states(page.robot)

    def answered(self, page: Page, kind: str, good: bool, words: str) -> None:
        """Send a page the result of its command."""
        page.tell("yes" if good else "no", to=kind, why=words)
        if kind == "param" and (robot := self._robots.get(page.robot)) is not None:
            page.tell("params", rows=robot.parameters())

    # -- messages to pages

    def call(self, act: Callable[[], None]) -> None:
        """Run `act` in the event loop; may be called from any thread."""
        if self._loop is None:
            act()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def wake(self, robot: str, what: str) -> None:
        """Handle news of a robot; may be called from any thread. what: see RosRobot."""
        self.call(lambda: self._woken(robot, what))

    def _woken(self, name: str, what: str) -> None:
        if what.startswith("log:"):
            _, level, words = what.split(":", 2)
            self.log(name, level, words)
        for page in [p for p in self._pages if p.robot == name]:
            if what == "frame":
                self._feed(page)
            elif what == "status":
                self._tell_state(page)
            elif what == "thought" and (robot := self._robots.get(name)) is not None:
                page.tell("thought", **robot.thought())
            elif what == "map":
                self._tell_map(page)
            elif what == "decision" and (robot := self._robots.get(name)) is not None:
                self._tell_decisions(page, robot)
        if what == "status":
            self._look_whether_it_stands(name)

    def _tell_decisions(self, page: Page, robot: ConsoleRobot) -> None:
        if new := page.take_decisions(robot.decisions()):
            page.tell("decisions", new=new)

    def _look_whether_it_stands(self, name: str) -> None:
        robot, now = self._robots.get(name), time.monotonic()
        if self._standing.is_awaited(name):
            self._standing.look(name, bool(robot and robot.state().get("standing")), now)

    def _feed(self, page: Page) -> None:
        """Send the newest picture if the page has drawn the previous one."""
        robot = self._robots.get(page.robot)
        frame = robot.frame() if robot is not None else None
        if frame is None or page.in_flight or frame[0] == page.sent_frame or page.outbox.full():
            return
        number, received, jpeg = frame
        page.in_flight = page.sent_frame = number
        page.outbox.put_nowait(struct.pack("<Id", number & 0xFFFFFFFF, _unix(received)) + jpeg)

    def tell_states(self, robot: str) -> None:
        """Send a robot's state to all its pages."""
        for page in [p for p in self._pages if p.robot == robot]:
            self._tell_state(page)

    def _tell_state(self, page: Page) -> None:
        robot, control = self._robots.get(page.robot), self.control(page.robot)
        told = robot.state() if robot is not None else {}
        page.tell(
            "state",
            robot=page.robot,
            robots=self._robots.names(),
            control=control.name,
            mine=control.page == page.number,
            there=robot is not None,
            pages=self.count,
            **told,
        )

    def _tell_map(self, page: Page) -> None:
        if (robot := self._robots.get(page.robot)) is not None:
            page.tell("map", **robot.map())

    def log(self, robot: str, level: str, words: str) -> None:
        """Send a log line to all pages of a robot."""
        for page in [p for p in self._pages if p.robot == robot]:
            page.tell("log", level=level, words=words, at=time.time())

    def _note(self, page: Page, command: str, outcome: str) -> None:
        self._audit.note(page.name, page.role.value, page.where, page.robot, command, outcome)

    # -- periodic work

    async def watch(self) -> None:
        """Watch control and send states, until canceled."""
        self._loop = asyncio.get_running_loop()
        due = {"state": 0.0, "map": 0.0, "health": 0.0, "hold": 0.0}
        periods = {"state": STATE_S, "map": MAP_S, "health": HEALTH_S, "hold": HOLD_S}
        while True:
            await asyncio.sleep(WATCH_S)
            now = time.monotonic()
            for name in self._robots.all_names():
                self._safely(self._poll, name)
            for name, control in self._controls.items():
                if lost := control.lost(now):
                    self._let_go(name, f"the page of {lost} is lost")
                    self._safely(self.tell_states, name)
                self._safely(self._look_whether_it_stands, name)
            for what in [w for w, at in due.items() if now >= at]:
                due[what] = now + periods[what]
                self._safely(self._regularly, what)

    def _poll(self, name: str) -> None:
        if (robot := self._robots.get(name)) is not None:
            for what in robot.poll(any(page.robot == name for page in self._pages)):
                self._woken(name, what)

    def _safely(self, act: Callable[[str], None], what: str) -> None:
        """Run something that may fail: a robot's data must not end the watch over control."""
        try:
            act(what)
        except Exception as error:
            for page in self._pages:
                said = f"the console itself failed: {type(error).__name__}: {error}"
                page.tell("log", level="bad", words=said, at=time.time())

    def _regularly(self, what: str) -> None:
        if what == "hold":
            for name in self._controls:
                self._hold(name)
            return
        health = self._robots.health() if what == "health" and self._pages else []
        tiles = what == "map" and bool(self._pages)
        fleet = in_short(self._robots, lambda name: self.control(name).name) if tiles else []
        for page in self._pages:
            if what == "state":
                if self._settle(page):
                    self._welcome(page)
                    page.on_look()
                self._tell_state(page)
            elif what == "map":
                self._tell_map(page)
                page.tell("fleet", robots=fleet)
            else:
                robot = self._robots.get(page.robot)
                page.tell("health", rows=health)
                page.tell("params", rows=robot.parameters() if robot else [])

    def _hold(self, name: str) -> None:
        """Publish that an operator holds control: when this ends, motion_node stops the robot."""
        robot = self._robots.get(name)
        if robot is not None and self._require_operator and self.control(name).page is not None:
            robot.hold(_holder(name), True)


def _holder(robot: str) -> str:
    return f"console of {robot or 'the robot'}"


def _unix(steady: float) -> float:
    return time.time() - (time.monotonic() - steady)


def _words(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False)
