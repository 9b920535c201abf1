"""What a command line gives as a mission: a file, or a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from specnav.errors import UsageError
from specnav.mission.files import text_of


def test_a_file_that_is_missing_is_not_taken_as_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file.*give a YAML file or a sentence"):
        text_of(str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="not a regular file"):
        text_of(str(tmp_path))


@pytest.mark.parametrize("sentence", ["explore", "go to the door/window", "find the red ball"])
def test_words_without_a_path_are_a_sentence(sentence: str) -> None:
    assert text_of(sentence)[0] == sentence
