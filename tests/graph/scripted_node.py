"""vlm_nav_node with a SCRIPTED decider (no model, no link): what it answers is given by the instruction's first word.

drive: forward for ever; ponder: the same, after a second each; finish: done at once; babble: no action;
slow: thinks until it is canceled; crash: raises.
"""

from __future__ import annotations

import threading
import time

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import NavigationError, ParameterError
from spec_vlm_nav.model.course import RoundHistory
from spec_vlm_nav.model.decider import DecisionFailed, DecoderSettings, LinkReport, ModelAnswer
from spec_vlm_nav.ros.nodes.vlm_nav_node import VlmNavNode
from spec_vlm_nav.ros.run import leave, run

ANSWERS = {
    "drive": "I see it, ahead, clear. The next action is move forward 75 cm.",
    "ponder": "I see it, ahead, clear. The next action is move forward 75 cm.",
    "finish": "I see it, near. I think I should stop because I have finished the instruction.",
    "babble": "I like trains.",
}


class ScriptedDecider:
    """See the module. As slow as a decision is here: 0.1 s."""

    def __init__(self, settings: DecoderSettings) -> None:
        if settings.draft_model == "org/missing":
            raise NavigationError("no model in 'org/missing': give a folder")
        self._open = False

    def open(self, on_link_change):
        assert not self._open
        self._open = True

    def decide(self, job, cancel, on_text):
        word = job.instruction.split()[0]
        if word == "crash":
            raise RuntimeError("scripted crash")
        if cancel.wait({"slow": 60, "ponder": 1.0}.get(word, 0.1)):
            raise DecisionFailed(ErrorCode.CANCELED, "canceled")
        on_text(ANSWERS[word], b"jpeg")
        return ModelAnswer(ANSWERS[word], (1, 2, 3), (4,))

    def verify(self, question, cancel):
        raise DecisionFailed(ErrorCode.LINK_LOST, "scripted")

    def check(self, settings):
        if settings.method == "ar":
            raise ParameterError("method ar refused: scripted")
        if settings.method == "picospec":
            raise NavigationError("the wording is gone: scripted")

    def use(self, settings):
        pass

    def swap_draft(self, folder):
        if folder == "org/slow":
            time.sleep(1.0)
        if folder == "org/missing":
            raise NavigationError("no model in 'org/missing': give a folder")

    def link(self):
        return LinkReport(LinkState.UP, 1.5, time.monotonic()) if self._open else LinkReport()

    def so_far(self):
        return ()

    def course(self):
        return RoundHistory()

    def figures(self):
        return {"threads": threading.active_count()}

    def close(self):
        self._open = False


def make() -> VlmNavNode:
    node = VlmNavNode(ScriptedDecider)
    node.start()
    return node


if __name__ == "__main__":
    leave(run(make, None))
