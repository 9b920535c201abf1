"""Grammar files of every kind, good and bad."""

from pathlib import Path

import pytest

from specdec.errors import OptionsError
from specdec.sampling.grammar import Grammars
from specdec.text.grammars import KINDS, read_grammar
from tests.helpers.table_models import LETTERS, LetterTokenizer

FILES = {
    "answer.lark": 'start: "yes" | "no"',
    "answer.gbnf": 'root ::= "yes" | "no"',
    "answer.regex": "yes|no\n",
    "answer.json": '{"enum": ["yes", "no"]}',
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_says_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    assert path.suffix in KINDS
    text = read_grammar(path)
    if name.endswith(".json"):
        assert "whitespace_flexible" in text  # quotation marks are not letters of the toy vocabulary
        return
    followed = Grammars(LetterTokenizer(27), 27, {0}).compile(text).follow()
    spelt = [[LETTERS.index(letter) for letter in word] for word in ("yes", "no")]
    assert sorted(followed.mask([]).nonzero()[0].tolist()) == sorted(ids[0] for ids in spelt)
    for ids in spelt:
        assert followed.forced(ids[:1], 9) == [*ids[1:], 0]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("answer.txt", "yes", "names its kind"),
        ("answer.regex", " \n", "it is empty"),
        ("answer.json", "[1]", "must be an object"),
        ("answer.json", "{", "is invalid"),
        ("answer.json", "[" * 8000, "nested too deeply"),
        ("answer.gbnf", "root := ", "is invalid"),
        ("answer.lark", "x" * 20_000, "at most 16384"),
    ],
)
def test_what_is_no_grammar(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OptionsError, match=says) as found:
        read_grammar(tmp_path / name)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("answer.regex", "(?=a)b", "look-around"),
        ("answer.lark", "start: /(/", "unclosed group"),
        ("answer.json", '{"type": "string", "pattern": "(a"}', "unclosed group"),
        ("answer.regex", "(" * 4000, "unclosed group"),
        ("answer.lark", "start: nothing", "unknown name"),
    ],
)
def test_what_is_wrong_in_a_grammar_is_in_the_one_line_that_tells_it(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OptionsError, match=says) as found:
        Grammars(LetterTokenizer(27), 27, {0}).compile(read_grammar(tmp_path / name))
    assert "\n" not in str(found.value) and len(str(found.value)) < 400


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="cannot be read: No such file"):
        read_grammar(tmp_path / "none.lark")
    (tmp_path / "bytes.lark").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionsError, match="not UTF-8"):
        read_grammar(tmp_path / "bytes.lark")
