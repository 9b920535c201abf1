"""The Ray cluster that `fleet up` starts: who can reach it, and what of it lies where others can read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from specnav.fleet.cluster import TOKEN_FILE, LocalCluster, members, running_here, start_here, stop_here

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'specnav[fleet]'")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    one = start_here(1)
    yield one
    stop_here(one)


@RAY
@pytest.mark.graph
def test_nobody_else_can_enter_its_folder_and_its_metrics_are_shown_to_nobody(here: LocalCluster) -> None:
    assert Path(here.temp).stat().st_mode & 0o077 == 0
    assert (Path(here.temp) / TOKEN_FILE).stat().st_mode & 0o177 == 0
    listening = [
        one.laddr.ip
        for process in members(here.session)
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening and "0.0.0.0" not in listening


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
