"""A demo of a folder's pair: `python -m tests.demo.small_demo FOLDER OUT EPISODES DECISIONS RTT_MS`."""

from __future__ import annotations

import sys
from pathlib import Path

from specnav.demo.run import DemoConfig, run_demo
from specnav.errors import user_errors


def main(folder: str, out: str, episodes: str, decisions: str, rtt_ms: str) -> None:
    """Run it, and exit with its code."""
    base = Path(folder)
    config = DemoConfig(
        episodes=int(episodes),
        max_decisions=int(decisions),
        out=Path(out),
        headless=True,
        max_new_tokens=24,
        rtt_ms=float(rtt_ms),
        target_model=str(base / "target"),
        draft_model=str(base / "draft"),
        robot_config=base / "robot.yaml",
    )
    with user_errors():
        sys.exit(run_demo(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
