from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from specdec.models import Prompt
from specnav.results.demo import Comparison
from specnav.results.identity import compare_with_target, every_nth
from specnav.results.trace import EpisodeTrace, load_traces
from tests.report.synthetic_run import make_run


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, list[EpisodeTrace]]:
    make_run(tmp_path, episodes=2)
    traces = load_traces(tmp_path)
    changed = []
    for trace in traces:
        # The prompt's first id tells the fake target below which answer is wanted.
        named = [
            msgspec.structs.replace(
                d, prompt_ids=[100 * trace.result.index + d.index, 7], token_ids=[5, d.index, 9]
            )
            for d in trace.decisions
        ]
        changed.append(msgspec.structs.replace(trace, decisions=named))
    return tmp_path, changed


def faithful(prompt: Prompt) -> list[int]:
    return [5, prompt.ids[0] % 100, 9]


def test_same_ids_are_identical_and_counted(recorded: tuple[Path, list[EpisodeTrace]]) -> None:
    run, traces = recorded
    found = compare_with_target(run, traces, faithful, 100)
    assert found == Comparison(answers=18, tokens=54)
    assert found.identical is True


def test_one_other_token_is_found_and_named(recorded: tuple[Path, list[EpisodeTrace]]) -> None:
    run, traces = recorded

    def once_wrong(prompt: Prompt) -> list[int]:
        return [5, 0, 9] if prompt.ids[0] == 103 else faithful(prompt)

    found = compare_with_target(run, traces, once_wrong, 100)
    assert found.different == ((1, 3),)
    assert found.identical is False


def test_answer_that_should_have_gone_on_is_different(recorded: tuple[Path, list[EpisodeTrace]]) -> None:
    run, traces = recorded

    def longer(prompt: Prompt) -> list[int]:
        return [*faithful(prompt), 11]

    assert compare_with_target(run, traces, longer, 100).identical is False


def test_target_gets_the_recorded_jpeg(recorded: tuple[Path, list[EpisodeTrace]]) -> None:
    run, traces = recorded
    seen: list[bytes] = []

    def look(prompt: Prompt) -> list[int]:
        seen.extend(prompt.images)
        return faithful(prompt)

    compare_with_target(run, traces[:1], look, 2)
    frames = run / "episodes" / "000"
    assert seen == [(frames / traces[0].decisions[n].frame).read_bytes() for n in (0, 8)]


def test_what_was_cut_short_or_not_recorded_is_not_compared(
    recorded: tuple[Path, list[EpisodeTrace]],
) -> None:
    run, traces = recorded
    kept = traces[0].decisions
    changed = [
        msgspec.structs.replace(kept[0], complete=False),
        msgspec.structs.replace(kept[1], prompt_ids=[]),
        msgspec.structs.replace(kept[2], frame=""),
        msgspec.structs.replace(kept[3], frame="frames/none.jpg"),
        kept[4],
    ]
    found = compare_with_target(run, [msgspec.structs.replace(traces[0], decisions=changed)], faithful, 100)
    assert found.answers == 1


def test_nothing_compared_claims_nothing() -> None:
    assert Comparison().identical is None


def test_sample_is_spread_over_the_run() -> None:
    assert every_nth(range(5), 10) == [0, 1, 2, 3, 4]
    assert every_nth(range(101), 3) == [0, 50, 100]
    assert every_nth(range(5), 0) == []
    assert every_nth(range(5), 1) == [0]
