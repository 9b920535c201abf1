"""The console's pages over robots that are made up, in a loop that is not running."""

import asyncio
import json

from spec_vlm_nav.console.access import AccessRole
from spec_vlm_nav.console.audit import Audit
from spec_vlm_nav.console.pages import Pages


class FakeRobot:
    def __init__(self):
        self.done, self.standing, self.simulated = [], True, False
        self.watched, self.new, self.decided = None, (), []

    def __getattr__(self, name):
        return lambda *given: self.done.append((name, *given[:2]))

    def poll(self, watched):
        self.watched, new, self.new = watched, self.new, ()
        return new

    def frame(self):
        return (len(self.done) + 1, 0.0, b"jpeg")

    def state(self):
        return {"state": "STOPPED", "standing": self.standing, "simulator": self.simulated}

    def map(self):
        return {"path": [], "places": [], "fence_m": 0.0}

    def decisions(self):
        return list(self.decided)

    def parameters(self):
        return []


class World:
    """Pages over fake robots, in a loop that is not running: `take` needs none."""

    def __init__(self, tmp_path, require_operator=False, names=("",)):
        self.robots = {name: FakeRobot() for name in names}
        self.file = tmp_path / "audit.jsonl"
        self.pages = Pages(self, Audit(self.file, print), require_operator, 0.6)

    def names(self):
        return sorted(self.robots)

    def all_names(self):
        return sorted(self.robots)

    def get(self, name):
        return self.robots.get(name)

    def health(self):
        return []

    def open(self, name="anna", role=AccessRole.OPERATOR, robot=None):
        async def made():
            return self.pages.open(name, role, "127.0.0.1", None, robot)

        return asyncio.run(made())

    def done(self, name=""):
        return [what for what in self.robots[name].done if what[0] not in ("ask_parameters", "hold")]

    def told(self, page, kind):
        found = []
        while not page.outbox.empty():
            message = page.outbox.get_nowait()
            if isinstance(message, str) and (said := json.loads(message))["t"] == kind:
                found.append(said)
        return found

    def audit(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]
