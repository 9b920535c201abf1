"""A folder is there as a whole or not at all."""

import pytest

from specnav.recipes.folders import appearing_at_once


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
