"""The how-to pages: each page's diff applies to the tree as it is, and the code under it then runs.

One copy of the tree takes all diffs, and one process runs the code of all pages: importing torch and transformers once
is most of what this costs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a process of its own, which imports torch and transformers

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page
    for page in sorted((ROOT / "docs/how_to").glob("*.md"))
    if "\n```diff\n" in page.read_text(encoding="utf-8")
]
"""Those that change code; the others only name commands, which test_links reads."""
NEEDED = (
    "cloud_verifier",
    "specnav",
    "navsim",
    "ros2_ws/src/spec_vlm_nav/docs",
    "ros2_ws/src/spec_vlm_nav/spec_vlm_nav",
    "specdec",
    "tests/__init__.py",
    "tests/helpers",
    "tests/specdec",
)
"""What the diffs change and what the code of the pages imports."""
NEEDS_ROS = ("fault", "motion_backend")

RUN_ALL = """
import json, sys, traceback
outcomes = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(compile(code, name + ".md", "exec"), {"__name__": "page"})
        outcomes[name] = ""
    except BaseException:
        outcomes[name] = traceback.format_exc()
with open(sys.argv[1], "w") as file:
    json.dump(outcomes, file)
"""


def fenced(page: Path, language: str) -> str:
    """The one block of a language in a page."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    return block


def complaint(diff: str, tree: Path, *flags: str) -> str:
    """Apply a diff; what git says against it, or nothing."""
    # Without a ceiling, git would take the paths for those of a repository around the copy.
    surroundings = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", *flags, "-"]
    done = subprocess.run(command, input=diff, cwd=tree, env=surroundings, text=True, capture_output=True)
    return done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms that the pages are about."""
    copy = tmp_path_factory.mktemp("how_to")
    for name in NEEDED:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)  # with bytecode: compiling it again takes longer than all else here
        else:
            shutil.copy(source, target)
    return copy


@pytest.fixture(scope="module")
def outcomes(tree: Path) -> dict[str, str]:
    """What became of each page, once all diffs that apply are applied: empty, or what is wrong."""
    diffs = {page.stem: fenced(page, "diff") for page in PAGES}
    # Each must apply alone, not only behind the others.
    refused = {name: complaint(diff, tree, "--check") for name, diff in diffs.items()}
    for name, diff in diffs.items():
        refused[name] = refused[name] or complaint(diff, tree)
    path = [str(tree), str(tree / "ros2_ws/src/spec_vlm_nav"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, str(tree / "outcomes.json")],
        input=json.dumps({page.stem: fenced(page, "python") for page in PAGES if not refused[page.stem]}),
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        text=True,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return refused | json.loads((tree / "outcomes.json").read_text())


def test_there_is_a_page_for_everything_that_newcomers_add() -> None:
    names = {"method", "drafting_policy", "model_family", "motion_backend", "fault"}
    assert {page.stem for page in PAGES} == names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_of_the_page_works(page: Path, outcomes: dict[str, str]) -> None:
    if page.stem in NEEDS_ROS:
        pytest.importorskip("rclpy")
    assert not outcomes[page.stem], outcomes[page.stem]


def test_a_diff_that_does_not_apply_is_noticed(tree: Path) -> None:
    stale = "--- a/specdec/errors.py\n+++ b/specdec/errors.py\n@@ -1 +1 @@\n-never there\n+new\n"
    assert "does not apply" in complaint(stale, tree, "--check")
