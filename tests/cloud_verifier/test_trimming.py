"""Free memory goes back once a minute, and a system that cannot do that is not a reason to fail."""

from __future__ import annotations

import pytest

from cloud_verifier.net import server


def test_it_is_given_back_once_a_minute_while_things_happen() -> None:
    now, given = [0.0], []
    trimmer = server.HeapTrimmer(lambda: now[0], lambda: given.append(now[0]))
    for second in range(0, 200, 7):
        now[0] = float(second)
        trimmer.look()
    assert given == [63.0, 126.0, 189.0]


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError("no such library"), AttributeError("no such function")])
def test_another_c_library_is_left_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    server.trim()

    def load(name: str) -> None:
        raise error

    monkeypatch.setattr(server.ctypes, "CDLL", load)
    server.trim()
