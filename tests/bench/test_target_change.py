"""A target that is fine-tuned under its draft: the parts of the measurement that need no verifier."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import target_change
from benchmarks.target_change import SIZES, WINDOW, Alone, Answered, RunningEdge, fine_tune
from specdec.models import Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.published.table import PAIRS
from specnav.recipes.drafts.config import Sources, TrainDraftConfig
from tests.helpers.servers import Pair


class Learner:
    """A process that ends when it is waited for, or after so many looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks, self.waited, self.returncode = looks, False, None

    def poll(self) -> int | None:
        self.looks -= 1
        return 0 if self.waited or self.looks < 0 else None

    def wait(self) -> None:
        self.waited = True


class Rehearsed(RunningEdge):
    """An edge without a link, whose drafts learn nothing."""

    looks = 0

    def ask(self, prompt: Prompt) -> Answered:
        return Answered(prompt, [], [], self.drafting)

    def _learn(self, count: int) -> None:
        process: Any = Learner(self.looks)
        self.learner = SimpleNamespace(process=process, name=f"learnt from {count}")  # type: ignore[assignment]

    def _take_over(self, learner: Any) -> None:
        self.drafting, self.learner = learner.name, None


@pytest.mark.parametrize(
    ("looks", "drafts"),
    [
        (0, {"shipped": 5, "learnt from 4": 4, "learnt from 8": WINDOW}),
        (10_000, {"shipped": 66, "learnt from 4": 1, "learnt from 66": WINDOW}),
    ],
)
def test_a_learner_is_waited_for_only_where_the_questions_would_run_out(
    tmp_path: Path, looks: int, drafts: dict[str, int]
) -> None:
    edge = Rehearsed(SIZES["text"], tmp_path, None, None, {})  # type: ignore[arg-type]
    edge.looks = looks
    edge.go_on([Prompt((1,))] * 100, [4, 8])
    names = [one.draft for one in edge.answered]
    assert {name: names.count(name) for name in dict.fromkeys(names)} == drafts


@pytest.mark.parametrize("name", list(SIZES))
def test_a_pair_learns_by_words_that_the_command_takes(name: str, tmp_path: Path) -> None:
    words, size = SIZES[name].learning, SIZES[name]
    assert name in PAIRS
    flags = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    given = dict(zip(flags, words[1::2], strict=True))
    config: Any = TrainDraftConfig(
        draft="draft", out=tmp_path, run=tmp_path, sources=Sources(verdicts=(tmp_path,)),
        **{key: float(value) if key in ("minutes", "lr") else int(value) for key, value in given.items()},
    )  # fmt: skip
    config.check()
    assert config.new_tokens >= size.tokens or name == "text"


def test_what_a_target_says_alone_is_worked_out_once(
    text_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = chat_prompt(text_pair.target, "say something")
    expected = generate_local(text_pair.target, prompt, GenerationOptions(8))
    assert Alone(text_pair.target, 8, tmp_path).says(prompt) == expected
    monkeypatch.setattr(target_change, "generate_local", lambda *given: pytest.fail("asked again"))
    assert Alone(text_pair.target, 8, tmp_path).to_each([prompt]) == [(prompt, expected)]
    with pytest.raises(pytest.fail.Exception):
        Alone(text_pair.target, 9, tmp_path).says(prompt)
    with pytest.raises(pytest.fail.Exception):
        Alone(text_pair.draft, 8, tmp_path).says(prompt)


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_a_fine_tuned_target_is_another_one_and_whole(
    text_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    monkeypatch.setattr(target_change, "CODE", Path(target_change.__file__).parent)
    fine_tune(text_pair.target.path, 2, half, tmp_path / "tuned")
    other = load_model(tmp_path / "tuned")
    assert other.weights_digest != text_pair.target.weights_digest
    assert other.vocabulary_fingerprint == text_pair.target.vocabulary_fingerprint
    assert [file.name for file in tmp_path.iterdir()] == ["tuned"]
