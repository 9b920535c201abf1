"""What `make test-docker` says where containers are not possible: one line, and nothing has failed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from specnav.paths import ROOT

WORKS = "exit 0"
NONE = "exit 1"
OLD = 'case "$1" in compose) exit 1;; esac'
FULL = "printf 'x\\nx 1 1 900 1 /\\n'"


def stand_ins(folder: Path, **programs: str) -> str:
    """A PATH on which these programs come first."""
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"docker": NONE, "id": "echo 1000"}, "no Docker engine answers here, and only root can start one"),
        ({"docker": OLD}, "this Docker has no Compose v2"),
        ({"docker": WORKS, "df": FULL}, "12 GB of disk are needed for the images, 900 MB are free"),
    ],
    ids=["no engine", "an old one", "no space"],
)
def test_it_is_skipped_with_one_line(tmp_path: Path, programs: dict[str, str], words: str) -> None:
    path = stand_ins(tmp_path, **programs)
    script = [str(ROOT / "scripts/test_docker.sh")]
    done = subprocess.run(
        script, env={"PATH": path, "HOME": str(tmp_path)}, text=True, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"make test-docker: skipped: {words}") and done.stdout.count("\n") == 1
