"""Contestants answer real questions over a real verifier; oracles are the library's own generate."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file, save_file

from specdec.edge.decoder import connect
from specdec.errors import OptionsError
from specdec.link.shaping import LinkProfile
from specdec.methods import METHODS
from specdec.models import load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.row_ms import RowMs
from specnav.bench.data.names import check_names, comparable_with_ar, is_lossy
from specnav.bench.data.questions import Question
from specnav.bench.runner.edge import EdgeContestant
from specnav.bench.runner.loop import prompt_of, run_questions, split_by_length
from specnav.bench.runner.run import context_of
from specnav.results.errors import EvaluationError
from tests.helpers.tiny_models import PADDING, build_llama

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

QUESTIONS = [
    Question("made_up", "1", ("def main():",)),
    Question("made_up", "2", ("How far?", "And back?")),
]
NAMES = (*(name for name in METHODS if name != "cloud-sd"), "sd+tree:8x3", "sd+overlap:stream+leave:tokens")
OPTIONS = GenerationOptions(max_new_tokens=12)


def library_contestant(*given, **more):
    """The library is imported by what runs it, not by every worker that collects this file."""
    from specnav.bench.runner.oracles import OracleContestant

    return OracleContestant(*given, **more)


def test_the_librarys_forwards_are_paced_by_their_rows(text_pair):
    by_rows = RowMs(((1, 0.0), (2, 60.0)))
    paced = library_contestant("hf-generate", text_pair.target, None, 3, by_rows)
    answer = paced.answer(prompt_of(text_pair.target.tokenizer, QUESTIONS[0], []), OPTIONS)
    assert answer.ttft_ms >= 60 and answer.wall_ms < 60 * len(answer.ids)


@pytest.mark.parametrize("assisted", [False, True])
def test_the_library_decodes_without_the_checkpoints_own_settings_and_padding(tmp_path, assisted):
    """Settings that published checkpoints have, and rows of the embedding that no token belongs to."""
    folder = build_llama(tmp_path / "target")
    settings = {"suppress_tokens": list(range(60, 120)), "min_new_tokens": 9, "repetition_penalty": 1.2}
    told = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(told | settings))
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][-PADDING:] *= 4  # the likeliest of all
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    target = load_model(folder)
    library = library_contestant("hf", target, target if assisted else None, 3)
    prompt = prompt_of(target.tokenizer, QUESTIONS[0], [])
    assert library.answer(prompt, OPTIONS).ids == generate_local(target, prompt, OPTIONS)


class MemoryJournal:
    def __init__(self):
        self.answers = []

    def has(self, question, method):
        return any((a.question_id, a.method) == (question.question_id, method) for a in self.answers)

    def add(self, records):
        self.answers += records

    def settle(self):
        pass


@pytest.fixture
def contestants(text_pair, start_server):
    with connect(start_server(text_pair.target).address) as link:
        made = [
            EdgeContestant(name, link, text_pair.draft, 3, LinkProfile(), 0.0, text_pair.target)
            for name in NAMES
        ]
        made.append(library_contestant("hf-generate", text_pair.target, None, 3))
        made.append(library_contestant("hf-assisted", text_pair.target, text_pair.draft, 3))
        yield made


def run(contestants, text_pair, options=OPTIONS, journal=None):
    journal = journal or MemoryJournal()
    run_questions(
        QUESTIONS, contestants, text_pair.draft.tokenizer, options, journal, lambda question, who: None
    )
    return {(a.method, *a.key[1:]): a for a in journal.answers}


def test_every_contestant_answers_every_turn_with_the_targets_own_tokens(contestants, text_pair):
    answers = run(contestants, text_pair)
    assert len(answers) == 3 * len(contestants)
    tokenizer = text_pair.draft.tokenizer
    for contestant in contestants:
        earlier = []
        for turn in range(2):
            answer = answers[(contestant.name, "2", turn)]
            prompt = prompt_of(tokenizer, QUESTIONS[1], earlier)
            assert answer.ids == generate_local(text_pair.target, prompt, OPTIONS), (contestant.name, turn)
            assert answer.prompt_tokens == len(prompt.ids)
            earlier.append(answer.ids)


def test_forwards_and_rounds_are_counted_alike(contestants, text_pair):
    names = ("ar", "sd", "hf-generate", "hf-assisted")
    answers = run([one for one in contestants if one.name in names], text_pair)
    ours, theirs = answers[("sd", "1", 0)], answers[("hf-assisted", "1", 0)]
    assert sum(one.drafted for one in ours.rounds) - 1 <= ours.draft_forwards <= 3 * len(ours.rounds) + 3
    assert ours.verify_forwards == len(ours.rounds) > 0
    assert sum(one.accepted + 1 for one in theirs.rounds) >= len(theirs.ids)
    assert theirs.draft_forwards > 0 and not theirs.has_link and theirs.floor_ms is None
    ar, alone = answers[("ar", "1", 0)], answers[("hf-generate", "1", 0)]
    assert ar.verify_forwards == alone.verify_forwards
    assert ar.draft_forwards is None and alone.draft_forwards is None
    for answer in (ours, ar):
        assert 0 < answer.floor_ms <= answer.wall_ms and 0 < answer.ttft_ms <= answer.wall_ms


def test_sampling_with_one_seed_gives_one_answer_over_the_link(contestants, text_pair):
    both = [one for one in contestants if one.name in ("ar", "sd")]
    answers = run(both, text_pair, GenerationOptions(max_new_tokens=12, temperature=0.8, seed=4))
    assert answers[("ar", "2", 1)].ids == answers[("sd", "2", 1)].ids
    greedy = run(contestants[:1], text_pair)
    assert answers[("ar", "2", 0)].ids != greedy[("ar", "2", 0)].ids


def test_only_methods_that_share_noise_are_compared_when_sampling():
    methods = [
        "ar",
        "sd",
        "split",
        "sd+tree:8x3",
        "dssd",
        "sd+resample:samples:8",
        "picospec-lossy",
        "hf-generate",
    ]
    assert comparable_with_ar(methods, 0.0) == set(methods)
    assert comparable_with_ar(methods, 0.7) == {"ar", "sd", "split", "sd+tree:8x3"}


def test_only_the_truncated_row_is_lossy():
    assert [
        n
        for n in ("ar", "picospec", "picospec-lossy", "sd+resample:truncated:8", "hf-generate")
        if is_lossy(n)
    ] == [
        "picospec-lossy",
        "sd+resample:truncated:8",
    ]


def test_oracles_forwards_can_be_paced(text_pair):
    oracle = library_contestant("hf-generate", text_pair.target, None, 3, verify_ms=20.0)
    prompt = prompt_of(text_pair.draft.tokenizer, QUESTIONS[0], [])
    answer = oracle.answer(prompt, GenerationOptions(max_new_tokens=5))
    assert answer.wall_ms >= 20.0 * (answer.verify_forwards + 1)


def test_what_was_answered_is_not_asked_again(contestants, text_pair):
    journal = MemoryJournal()
    run(contestants[:1], text_pair, journal=journal)
    before = list(journal.answers)
    asked = []
    run_questions(
        QUESTIONS,
        contestants[:2],
        text_pair.draft.tokenizer,
        OPTIONS,
        journal,
        lambda q, who: asked.append(who),
    )
    assert set(asked) == {contestants[1].name, f"{contestants[1].name}, warming up"}
    assert journal.answers[: len(before)] == before


def test_questions_that_do_not_fit_are_set_aside_with_the_reason(text_pair):
    long = Question("made_up", "3", ("x" * 400, "y" * 60))
    fitting, skipped = split_by_length([*QUESTIONS, long], text_pair.draft.tokenizer, 512, 64)
    assert fitting == QUESTIONS
    assert skipped[0].question_id == "3" and "exceed the context of 512" in skipped[0].reason


def test_unknown_contestants_are_refused_with_the_list():
    for names, words in (
        (["ar", "magic"], "choose one of ar, "),
        (["sd+leaf:3"], "axis 'leaf'"),
        (["hf-beam"], "there are hf-generate, hf-assisted"),
        (["ar", "ar"], "given twice"),
        ([], "no method given"),
    ):
        with pytest.raises((EvaluationError, OptionsError), match=words):
            check_names(names)


@pytest.mark.parametrize(
    "config, limit", [({"model_type": "bloom"}, 32768), ({"model_type": "mpt", "max_seq_len": 256}, 256)]
)
def test_a_target_whose_config_names_its_context_otherwise_or_not_at_all(tmp_path, config, limit) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert context_of(str(tmp_path)) == limit
