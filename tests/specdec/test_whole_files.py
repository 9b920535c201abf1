"""Files are written whole or not at all, and nothing is left beside them."""

import errno
import os
import stat
from pathlib import Path

import pytest

from specdec.whole_files import replacing, write_whole


def test_a_block_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    file = tmp_path / "kept.json"
    write_whole(file, b"old")
    with pytest.raises(ZeroDivisionError), replacing(file) as partial:
        partial.write_bytes(b"half")
        raise ZeroDivisionError
    assert file.read_bytes() == b"old" and os.listdir(tmp_path) == ["kept.json"]


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*kept\.json'"):
        write_whole(tmp_path / "kept.json", b"new")


def test_the_old_content_is_read_until_the_block_has_ended(tmp_path):
    file = tmp_path / "kept.json"
    write_whole(file, b"old")
    with replacing(file) as partial:
        partial.write_bytes(b"new")
        assert file.read_bytes() == b"old"
    assert file.read_bytes() == b"new" and os.listdir(tmp_path) == ["kept.json"]


def test_a_private_file_is_its_owners_alone_and_a_fresh_one_replaces_none(tmp_path):
    file = tmp_path / "secret.key"
    write_whole(file, b"one", private=True, fresh=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_whole(file, b"two", private=True, fresh=True)
    assert file.read_bytes() == b"one" and os.listdir(tmp_path) == ["secret.key"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_file_is_replaced_and_nothing_is_done_before(tmp_path, make):
    """As root, a device could be replaced as well: every later writer to it would fill a file."""
    make(tmp_path / "there")
    with pytest.raises(PermissionError, match="not a regular file"), replacing(tmp_path / "there"):
        pytest.fail("the block has begun")
    assert not (tmp_path / "there").is_file() and os.listdir(tmp_path) == ["there"]
