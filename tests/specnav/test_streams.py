"""Prompts from a pipe, and standard streams that are closed or speak another encoding: one line, never a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from specnav.errors import UsageError
from specnav.generate import MOST_PROMPT_BYTES, read_prompt

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """What a shell line does; $specnav is the command."""
    command = f"specnav='{sys.executable} -m specnav.cli'; {words}"
    given = {**ENVIRONMENT, **environment}
    return subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, env=given)


@pytest.mark.parametrize(
    ("piped", "prompt"),
    [
        (b"What is it?\n", "What is it?"),
        (b"\xef\xbb\xbftwo\nlines\r\n", "two\nlines"),
        ("größe €".encode(), "größe €"),
    ],
)
def test_a_dash_reads_the_prompt_from_a_pipe(piped: bytes, prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped), encoding="ascii"))
    assert read_prompt("-") == prompt


@pytest.mark.parametrize(
    ("piped", "said"),
    [
        (b"", "the prompt is empty"),
        (b" \n", "the prompt is empty"),
        (b"a\xff", "not text in UTF-8"),
        (b"x" * (MOST_PROMPT_BYTES + 1), "more than 1048576 bytes"),
        (None, "standard input is closed"),
    ],
)
def test_a_pipe_that_holds_no_prompt_is_told(piped: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = None if piped is None else io.TextIOWrapper(io.BytesIO(piped))
    monkeypatch.setattr(sys, "stdin", held)
    with pytest.raises(UsageError, match=said):
        read_prompt("-")


def test_an_argument_is_read_as_it_was_typed() -> None:
    assert read_prompt("what - is it") == "what - is it"
    typed = "größe".encode().decode("ascii", "surrogateescape")  # as LC_ALL=C has it
    assert read_prompt(typed) == "größe"
    for wrong in ("a\udcff", "\ud800"):
        with pytest.raises(UsageError, match="not text in UTF-8"):
            read_prompt(wrong)


@pytest.mark.slow
def test_closed_streams_and_other_encodings_end_in_one_line_or_nothing() -> None:
    done = shell("$specnav generate look >&-; $specnav generate - <&-; $specnav plan memory 2>&-")
    assert done.stdout == b""  # what stderr was to say is not printed in its place
    assert done.stderr.decode().splitlines() == [
        "specnav: error: standard output is closed, so the answer cannot be printed: send it to a file or a pipe",
        "specnav: error: standard input is closed: give the prompt as an argument, or pipe it in",
    ]
    done = shell("$specnav models list | true; echo ${PIPESTATUS[0]}")
    assert done.stderr == b"" and done.stdout in (b"1\n", b"0\n")


@pytest.mark.slow
def test_no_descriptor_of_a_closed_stream_is_taken_by_something_else() -> None:
    code = (
        "import os; from specnav.cli.streams import steady_streams; steady_streams(); "
        "assert os.open('/', os.O_RDONLY) > 2 and os.get_inheritable(1)"
    )
    assert shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-').returncode == 0


@pytest.mark.slow
def test_what_the_output_cannot_encode_is_printed_as_an_escape() -> None:
    code = "from specnav.cli.streams import steady_streams; steady_streams(); print('\\u20ac 5')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    )
    assert done.stdout == b"\\u20ac 5\n"
