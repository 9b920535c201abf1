"""A folder is there as a whole or not at all."""

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from specnav.errors import UsageError
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import (
    appearing_at_once,
    begin_run,
    check_place,
    digest_of,
    keep_settings,
    replacing_model,
    roomy,
)
from specnav.recipes.loop import read_checkpoint


@dataclass(frozen=True)
class Settings:
    """The least settings of a training."""

    run: Path
    draft: str = "layers:9"


def test_a_new_folder_takes_the_place_of_the_old_one(tmp_path):
    place = tmp_path / "deep" / "model"
    for content in ("first", "second"):
        with appearing_at_once(place) as building:
            (building / "file").write_text(content, encoding="utf-8")
            assert not (building / "left over").exists()
            (building / "left over").touch()
        assert (place / "file").read_text(encoding="utf-8") == content
    assert [child.name for child in place.parent.iterdir()] == ["model"]


def test_after_an_error_the_old_folder_is_still_there(tmp_path):
    place = tmp_path / "model"
    with appearing_at_once(place) as building:
        (building / "file").write_text("good", encoding="utf-8")
    with pytest.raises(RuntimeError), appearing_at_once(place) as building:
        (building / "file").write_text("bad", encoding="utf-8")
        raise RuntimeError
    assert (place / "file").read_text(encoding="utf-8") == "good"
    assert list(tmp_path.iterdir()) == [place]  # on a full disk a part would take up the rest


def test_copies_that_a_user_keeps_beside_a_folder_are_left_alone(tmp_path):
    for copy in ("model.old", "model.new"):
        (tmp_path / copy).mkdir()
    for _ in range(2):
        with appearing_at_once(tmp_path / "model"):
            pass
    assert sorted(os.listdir(tmp_path)) == ["model", "model.new", "model.old"]


def test_a_model_that_is_trained_again_tells_which_gguf_files_go(tmp_path):
    place, said = tmp_path / "draft", []
    with replacing_model(place, said.append) as building:
        (building / "draft-q8_0.gguf").touch()
    assert said == []
    with replacing_model(place, said.append):
        pass
    assert len(said) == 1 and "draft-q8_0.gguf" in said[0] and f"specnav convert gguf {place}" in said[0]


def test_a_place_that_cannot_be_written_is_told_before_the_training(tmp_path, monkeypatch):
    check_place(tmp_path / "new" / "deep", ())
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "pipe/below"):
        with pytest.raises(TrainingError, match="pipe is a file: give a folder"):
            check_place(tmp_path / place, ())
    monkeypatch.setattr(os, "access", lambda *asked: False)  # a disk that is read-only
    with pytest.raises(TrainingError, match="cannot be written; give another folder"):
        check_place(tmp_path / "new" / "deep", ())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), r"\(No space left on device\): free some space"),
        (Exception("I/O error: No space left on device"), "left on device.*: free some space"),
        (OSError(errno.EROFS, "Read-only file system"), r"\(Read-only file system\): give another folder"),
    ],
)
def test_what_cannot_be_written_is_told_with_its_remedy(tmp_path, error, said):
    with pytest.raises(TrainingError, match=said), roomy(tmp_path):
        raise error
    with pytest.raises(ZeroDivisionError), roomy(tmp_path):
        raise ZeroDivisionError


def test_a_run_that_has_made_nothing_takes_other_settings_and_one_that_has_does_not(tmp_path):
    keep_settings(tmp_path, "layers:99")
    keep_settings(tmp_path, "layers:9")
    (tmp_path / "draft.ckpt").touch()
    keep_settings(tmp_path, "layers:9")
    with pytest.raises(TrainingError, match="holds a run with other settings"):
        keep_settings(tmp_path, "layers:8")
    (tmp_path / "settings.json").write_bytes(b"\xff")
    with pytest.raises(TrainingError, match="holds a run with other settings"):
        keep_settings(tmp_path, "layers:9")


def test_a_run_is_not_continued_with_other_data(tmp_path):
    run, data = tmp_path / "run", tmp_path / "questions.txt"
    for text in ("What is a lamp?", "What is a mug?"):
        data.write_text(text)
        begin_run(Settings(run), ("run",), data=digest_of([data, tmp_path / "missing", tmp_path]))
    (run / "prompts.jsonl").touch()
    begin_run(Settings(run), ("run",), data=digest_of([data]))
    data.write_text("What is a lamp?")
    with pytest.raises(TrainingError, match="other settings or data"):
        begin_run(Settings(run), ("run",), data=digest_of([data]))


def test_settings_are_replaced_in_one_step(tmp_path):
    """A full disk, or a kill, would otherwise leave an empty file, and the run could never be continued."""
    keep_settings(tmp_path, "layers:99")
    before = tmp_path.parent / "before"
    os.link(tmp_path / "settings.json", before)
    keep_settings(tmp_path, "layers:9")
    assert before.read_text() == '"layers:99"' and (tmp_path / "settings.json").read_text() == '"layers:9"'


def test_a_run_in_use_is_refused_before_anything_is_made_in_it(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    other = os.open(place, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another process writes into"):
        begin_run(Settings(place), ("run",))
    os.close(other)
    begin_run(Settings(place), ("run",))


@pytest.mark.timeout(20)
def test_a_pipe_in_a_run_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "draft.ckpt")
    with pytest.raises(TrainingError, match=r"draft\.ckpt is not a regular file"):
        begin_run(Settings(tmp_path), ("run",))


def save(file: Path, content: object) -> None:
    torch.save(content, file)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        Path.mkdir,
        os.mkfifo,
        lambda file: file.write_bytes(b"garbage" * 100),
        lambda file: file.write_bytes(b"\x80\x02}q\x00X\x05\x00\x00\x00model."),
        lambda file: save(file, {}),
        lambda file: save(file, [1, 2]),
        lambda file: save(file, {"model": {}, "step": 1}),
    ],
)
def test_a_damaged_checkpoint_is_one_line(tmp_path, make):
    make(tmp_path / "draft.ckpt")
    with pytest.raises(TrainingError, match=r"draft\.ckpt cannot be read: delete it"):
        read_checkpoint(tmp_path / "draft.ckpt")
