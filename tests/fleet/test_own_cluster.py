"""Which Ray cluster of this machine is joined (one that is started for it: test_fleet_on_ray)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from specnav.fleet.cluster import members, running_here, start_node


def test_a_note_in_a_folder_of_everybodys_that_another_user_has_left_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("specnav.fleet.cluster.answers", lambda address: True)
    noted = tmp_path / "ray/ray_current_cluster"
    noted.parent.mkdir()
    noted.write_text("10.6.6.6:6379\n")
    assert running_here() == "10.6.6.6:6379"
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    owned_by_1234 = os.stat_result((0o100644, 0, 0, 1, 1234, 0, 0, 0, 0, 0))
    monkeypatch.setattr("specnav.fleet.cluster.os.lstat", lambda path: owned_by_1234)
    assert running_here() == ""


def test_a_start_that_is_interrupted_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, sleep = tmp_path / "start.log", time.sleep

    def interrupted(seconds: float) -> None:
        sleep(seconds)
        if log.read_text():
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr("specnav.fleet.cluster.time.sleep", interrupted)
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        start_node([sys.executable, "-c", code], tmp_path)
    assert not members(int(log.read_text()))
