"""A folder is there as a whole or not at all."""

import pytest

from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import appearing_at_once, keep_settings


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


def test_a_run_that_has_made_nothing_takes_other_settings_and_one_that_has_does_not(tmp_path):
    keep_settings(tmp_path, "layers:99")
    keep_settings(tmp_path, "layers:9")
    (tmp_path / "draft.ckpt").touch()
    keep_settings(tmp_path, "layers:9")
    with pytest.raises(TrainingError, match="holds a run with other settings"):
        keep_settings(tmp_path, "layers:8")
