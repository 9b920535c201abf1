"""A stop is told only once it is on the disk: whoever waits waits for the write of what it gave, not of what came
before.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from spec_vlm_nav.motion import latches
from spec_vlm_nav.motion.latches import Latches, LatchKeeper, load


@pytest.mark.slow
def test_a_write_that_is_just_ending_does_not_answer_for_a_newer_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write = latches.write_whole

    def slow(file: Path, data: bytes) -> None:
        if begun.is_set():
            time.sleep(0.3)  # the first write has ended long before the second
        begun.set()
        go_on.wait(5.0)
        write(file, data)

    keeper = LatchKeeper(tmp_path / "latches.json")
    monkeypatch.setattr(latches, "write_whole", slow)
    keeper.keep(Latches(instruction=1))
    assert begun.wait(5.0)  # the first write is under way when the stop comes
    stopped = Latches(estopped_by="operator", instruction=1)
    threading.Timer(0.05, go_on.set).start()
    keeper.keep(stopped, wait_s=5.0)
    assert load(keeper.file) == stopped
    keeper.close()


def test_a_state_that_was_written_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = LatchKeeper(tmp_path / "latches.json")
    keeper.keep(Latches(instruction=1), wait_s=5.0)
    monkeypatch.setattr(latches, "write_whole", lambda *_: pytest.fail("written twice"))
    keeper.keep(Latches(instruction=1), wait_s=5.0)
    assert keeper.trouble == ""
    keeper.close()
