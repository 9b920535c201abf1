"""What a command line gives as a mission: a file, or a sentence."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console

from spec_vlm_nav.missions.reading import read
from spec_vlm_nav.missions.record import plan_json
from specnav.errors import UsageError
from specnav.mission.files import show, text_of
from specnav.mission.run import MissionConfig, run_live
from specnav.terminal import say


def test_a_file_that_is_missing_is_not_taken_as_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file.*give a YAML file or a sentence"):
        text_of(str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="not a regular file"):
        text_of(str(tmp_path))


@pytest.mark.parametrize("out", ["", "file/results.json"])
def test_results_that_cannot_be_written_are_refused_before_the_robot_moves(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("a file is no folder")
    with pytest.raises(OSError, match=r"not a regular file|File exists|Not a directory"):
        run_live(MissionConfig("go on", out=tmp_path / out))


@pytest.mark.parametrize("sentence", ["explore", "go to the door/window", "find the red ball"])
def test_words_without_a_path_are_a_sentence(sentence: str) -> None:
    assert text_of(sentence)[0] == sentence


def test_words_of_others_rule_no_terminal() -> None:
    """A paused mission repeats an instruction from elsewhere, which anyone on the graph may send."""
    console = Console(file=io.StringIO(), width=200)
    said = "another instruction: \x1b[2Jgo\x9b31m\rnow\x00 [bold]"
    say(console, said)
    results = json.loads(plan_json(read("steps: [go on]")))
    results["steps"][0] |= {"code": "CANCELED", "message": said}
    show(results, console)
    out = console.file.getvalue()
    assert out.count("another instruction: ?[2Jgo?31m?now? [bold]") == 2
    assert not any(unicodedata.category(c) == "Cc" for c in out.replace("\n", ""))
