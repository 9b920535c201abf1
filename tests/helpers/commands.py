"""Commands of ours, run in the test's own process."""

from __future__ import annotations

import sys

import pytest

from specnav.cli.app import main


def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Run `specnav arguments…`; returns its exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["specnav", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert isinstance(end.value.code, int | None)
    return end.value.code or 0, said.out, said.err
