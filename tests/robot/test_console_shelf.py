"""The black box's files as the console hands them out: those that are listed, against a ticket, once."""

import os

import pytest

from spec_vlm_nav.console.robot_files import RobotFiles


def test_files_are_listed_newest_first_and_a_ticket_is_good_once(tmp_path):
    (tmp_path / "one").mkdir()
    for number, name in enumerate(("old.mcap", "new.mcap", "half.mcap.part", "notes.txt")):
        (tmp_path / "one" / name).write_bytes(b"x" * number)
        os.utime(tmp_path / "one" / name, (number, number))
    shelf = RobotFiles(tmp_path)
    assert [row["name"] for row in shelf.listing("one")["files"]] == ["new.mcap", "old.mcap"]
    assert shelf.listing("")["files"] == [] and shelf.listing("two")["why"] == "nothing was written yet"
    ticket, why = shelf.ticket("one", "new.mcap", 0.0)
    assert why == "" and shelf.redeem(ticket, 1.0) == tmp_path / "one" / "new.mcap"
    assert shelf.redeem(ticket, 1.0) is None, "once"
    late, _ = shelf.ticket("one", "new.mcap", 0.0)
    assert shelf.redeem(late, 100.0) is None and shelf.redeem("guessed", 0.0) is None


@pytest.mark.parametrize("name", ["../secret.mcap", "/etc/passwd", "", "notes.txt", "none.mcap"])
def test_only_what_is_listed_is_handed_out(tmp_path, name):
    (tmp_path / "secret.mcap").write_bytes(b"x")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "notes.txt").write_bytes(b"x")
    ticket, why = RobotFiles(tmp_path).ticket("one", name, 0.0)
    assert ticket == "" and "no file" in why
