"""A setting is declared once: checks, command lines and tables are made from the field, and say the same."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specdec.errors import OptionsError
from specdec.link.shaping import LinkProfile
from specdec.row_ms import read_ms
from specdec.settings import (
    REQUIRED,
    add_arguments,
    as_arguments,
    check_settings,
    parts,
    same_as,
    setting,
    settings_of,
    words,
)
from tests.docs.pages import settings_table


@dataclass(frozen=True)
class Oven:
    """Settings of a made-up program."""

    name: str = setting(REQUIRED, "Its name.")
    trays: int = setting(2, "Trays.", 1, 8)
    heat_c: float = setting(180.0, "How hot.", 30, 300, unit="C", flags=("--heat",))
    pace_ms: float = setting(0.0, "By rows, too.", 0, 60_000, unit="ms", read=read_ms)
    mode: str = setting("fan", "How.", choices=("fan", "grill"))
    recipe: Path | None = setting(None, "A file.")
    extras: tuple[str, ...] = setting((), "More.")
    shelves: tuple[Path, ...] = setting((), "Where.")
    quiet: bool = setting(False, "No bell.")
    light: bool = setting(True, "The light.")
    internal: int = 7

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Stove:
    """Another program with one of them."""

    plates: int = same_as(Oven, "trays", default=4, high=6)

    def __post_init__(self) -> None:
        check_settings(self, ValueError)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trays": 9}, "trays must be a whole number from 1 to 8, got 9"),
        ({"trays": 10**400}, "trays must be a whole number from 1 to 8, got 1000"),
        ({"heat_c": 10**400}, "heat_c must be a number from 30 to 300 C, got 1000"),
        ({"trays": 2.5}, "trays must be a whole number from 1 to 8, got 2.5"),
        ({"trays": True}, "trays must be a whole number from 1 to 8, got True"),
        ({"trays": None}, "trays must be a whole number from 1 to 8, got None"),
        ({"heat_c": float("nan")}, "heat_c must be a number from 30 to 300 C, got nan"),
        ({"heat_c": "hot"}, "heat_c must be a number from 30 to 300 C, got 'hot'"),
        ({"pace_ms": "70000:1"}, "0 to 60000 ms"),
        ({"pace_ms": -1}, "pace_ms must be a number from 0 to 60000 ms, got -1"),
        ({"mode": "steam"}, "mode must be one of fan, grill, got 'steam'"),
        ({"name": 3}, "name must be text, got 3: put it in quotes"),
        ({"quiet": "yes"}, "quiet must be true or false, got 'yes'"),
        ({"recipe": 3}, "recipe must be a path, got 3"),
        ({"extras": "a,b"}, "extras must be a list, got 'a,b'"),
    ],
)
def test_a_wrong_value_is_one_line_with_what_it_must_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError) as error:
        Oven(**{"name": "a", **given})
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trays", "x"], "trays must be a whole number from 1 to 8, got 'x'"),
        (["--trays", "2.5"], "trays must be a whole number from 1 to 8, got '2.5'"),
        (["--heat", ""], "heat_c must be a number from 30 to 300 C, got ''"),
        (["--heat", "nan"], "heat_c must be a number from 30 to 300 C, got nan"),
    ],
)
def test_what_is_no_number_is_said_on_a_command_line_as_in_a_file(words: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Oven)
    given = vars(parser.parse_args(["--name", "x", *words]))
    with pytest.raises(OptionsError) as told:
        Oven(**given)
    assert str(told.value) == said


def test_a_value_that_cannot_be_read_is_refused_with_the_name_of_its_setting() -> None:
    with pytest.raises(OptionsError, match=r"^pace_ms: 'x' must be milliseconds"):
        Oven("x", pace_ms="x")  # type: ignore[arg-type]


def test_ends_of_a_range_are_in_it_and_what_a_file_holds_is_read() -> None:
    assert (Oven("a", trays=1).trays, Oven("a", trays=8, heat_c=30).heat_c) == (1, 30)
    made = Oven("a", pace_ms="72:1,90:4", recipe="cake.txt", extras=["x"], shelves=("y",))  # type: ignore[arg-type]
    assert (str(made.pace_ms), made.recipe, made.extras) == ("72:1,90:4", Path("cake.txt"), ("x",))
    assert made.shelves == (Path("y"),)


@pytest.mark.parametrize(
    "oven",
    [
        Oven("a"),
        Oven(
            "a b", 8, 31.5, read_ms("72:1,90:4"), "grill", Path("a/b"), ("x", "y"), (Path("p"),), True, False
        ),
        Oven("b", heat_c=299.999),
    ],
)
def test_a_command_line_made_of_settings_gives_the_same_settings(oven: Oven) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Oven)
    assert Oven(**vars(parser.parse_args(as_arguments(oven)))) == oven
    assert len(as_arguments(Oven("a"))) == 2  # what is as by default is not said


def test_another_program_refers_to_a_setting_and_says_what_differs() -> None:
    told = settings_of(Stove)["plates"]
    assert (told.default, told.help, told.range, told.spellings) == (4, "Trays.", "1 to 6", ("--plates",))
    with pytest.raises(ValueError, match="plates must be a whole number from 1 to 6, got 7"):
        Stove(7)


def test_the_table_has_a_row_for_every_setting_with_its_default_and_range() -> None:
    rows = settings_table(Oven).splitlines()[2:]
    assert len(rows) == 10 and not any("internal" in row for row in rows)
    assert "| `--heat` | 180 C | 30 to 300 | How hot. |" in rows
    assert "| `--mode` | fan | `fan`, `grill` | How. |" in rows
    assert settings_table(Oven, ("trays",)).count("\n") == 3


def test_a_list_must_name_something_and_parts_of_one_need_not() -> None:
    assert words(" a, b,") == parts(" a, b,") == ("a", "b")
    assert parts(" , ") == ()
    for nothing in ("", " , "):
        with pytest.raises(OptionsError, match="names nothing"):
            words(nothing)


def test_the_word_for_a_value_names_no_other_unit() -> None:
    """In capitals a megabit reads as a megabyte."""
    for told in settings_of(LinkProfile).values():
        assert "b" not in told.unit or told.stands_for not in (None, told.unit.upper()), told.name
