"""A motion_node with a fault planted in it: a command with the text "boom" raises in its callback."""

from __future__ import annotations

import sys

from spec_vlm_nav_interfaces.msg import MotionCommand

from spec_vlm_nav.ros.nodes.motion_node import MotionNode
from spec_vlm_nav.ros.run import run


class FailingMover(MotionNode):
    """Fails on command."""

    def _on_command(self, message: MotionCommand) -> None:
        if message.text == "boom":
            raise RuntimeError("boom")
        super()._on_command(message)


if __name__ == "__main__":
    sys.exit(run(FailingMover, None))
