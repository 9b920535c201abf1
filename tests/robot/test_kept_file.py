"""Files that outlive a crash: what is read where something else lies in their place."""

import os
from pathlib import Path

import pytest

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.kept_file import MOST_BYTES, given_path, read_small


def test_what_was_kept_is_read_and_where_nothing_is_there_is_none(tmp_path):
    (tmp_path / "kept.json").write_bytes(b"{}")
    assert read_small(tmp_path / "kept.json") == b"{}"
    assert read_small(tmp_path / "other.json") is None


@pytest.mark.parametrize("kind", ["folder", "pipe", "too large"])
def test_what_is_no_small_file_is_named_and_refused(tmp_path, kind):
    file = tmp_path / "kept.json"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(bytes(MOST_BYTES + 1))
    with pytest.raises(ValueError, match=rf"{file} must be (a regular file|at most {MOST_BYTES} bytes)"):
        read_small(file)


def test_a_path_of_somebody_without_a_home_is_refused_by_the_parameters_name(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_path("state_file", "~/x.json", Path) == tmp_path / "x.json"
    assert given_path("state_file", "", lambda: tmp_path) == tmp_path
    with pytest.raises(ParameterError, match=r"state_file must be given here, got '~nosuchuser/x'"):
        given_path("state_file", "~nosuchuser/x", Path)
