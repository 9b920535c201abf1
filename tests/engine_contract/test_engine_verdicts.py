"""What every engine must do with drafts: keep exactly what the target alone would have said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from specdec.link.wire import ErrorDown, Opened, VerdictDown
from specdec.models import LoadedModel
from specdec.options import GenerationOptions
from tests.engine_contract.contract import (
    ACTIONS,
    GREEDY,
    SAMPLED,
    SETTINGS,
    Client,
    answer_of,
    check_answers_together,
    check_whole_answer,
    ending_options,
    prompt_of,
    wrong,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_of_a_draft_stays_what_the_target_says(client: Client, target: LoadedModel, name: str) -> None:
    check_whole_answer(client, target, 1, prompt_of(1), SETTINGS[name], (4, 8, 1, 0, 3))


@pytest.mark.parametrize("options", [GREEDY, SAMPLED, SETTINGS["all"]])
def test_answers_follow_their_grammars(
    client: Client, target: LoadedModel, options: GenerationOptions
) -> None:
    """Drafted, alone and resumed; beside others that follow none."""
    options = replace(options, grammar=ACTIONS)
    right = answer_of(target, prompt_of(1), options)
    text = target.tokenizer.decode(right, skip_special_tokens=True)
    assert re.fullmatch(r"[^\n]*\n(move (25|50)cm|stop)", text) and right[-1] in target.eos_token_ids
    client.open(2, prompt_of(2), SAMPLED, stream=True)
    client.open(3, prompt_of(1), options, stream=True)
    check_whole_answer(client, target, 1, prompt_of(1), options, (4, 8, 1, 0, 3))
    assert client.streamed(2) == answer_of(target, prompt_of(2), SAMPLED)
    assert client.streamed(3) == right
    client.open(4, prompt_of(1), options, history=right[:3], stream=True)
    client.work()
    assert client.streamed(4, right[:3]) == right


def test_a_grammar_that_cannot_be_followed_ends_one_session_alone(
    client: Client, target: LoadedModel
) -> None:
    client.open(2, prompt_of(2), SAMPLED, stream=True)
    wrong_ones = [("start: (", 24), (ACTIONS, 1), ('start: "a" N\nN: /a/ & /b/', 24)]
    for session, (grammar, tokens) in enumerate(wrong_ones, start=5):
        client.open(session, prompt_of(1), GenerationOptions(tokens, grammar=grammar))
    options = GenerationOptions(24, grammar=ACTIONS)
    right = answer_of(target, prompt_of(1), options)
    client.open(8, prompt_of(1), options, history=[*right[:-1], right[0]])  # goes on behind the end
    client.work()
    for session in (5, 6, 7, 8):
        refused = client.refused(session)
        assert refused.code == "refused" and "grammar" in refused.message and "\n" not in refused.message
    assert client.streamed(2) == answer_of(target, prompt_of(2), SAMPLED)


@pytest.mark.slow
def test_sessions_of_all_kinds_share_forwards(client: Client, target: LoadedModel) -> None:
    settings = list(SETTINGS.values())
    kinds = {session: (prompt_of(session), settings[session % len(settings)]) for session in range(1, 17)}
    forwards = client.engine.load.forwards
    assert check_answers_together(client, target, kinds) == len(kinds)
    assert client.engine.load.forwards - forwards <= 40


def test_a_rejected_draft_voids_those_behind_it(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(2), SAMPLED)
    client.opened(2, prompt_of(2), SAMPLED)
    client.draft(2, 1, [right[1], wrong(right[2])])
    client.work()
    client.draft(2, 3, right[3:5])  # left before the verdict was known
    client.work()
    verdicts = client.messages_of(2)[1:]
    assert [(one.last, one.token) for one in verdicts] == [(1, right[2])]  # type: ignore[union-attr]
    assert client.verdict(2, 3, right[3:6], epoch=1).token == right[6]


def test_drafts_in_flight_are_judged_as_one_chain(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(3), GREEDY)
    client.opened(3, prompt_of(3))
    for base in (1, 3, 5):
        last = client.draft(3, base, right[base : base + 2])
    client.work()
    verdicts = client.messages_of(3)[1:]
    assert verdicts[-1].round == last  # type: ignore[union-attr]
    known = 1
    for verdict in verdicts:  # judged one by one, or joined: what they say must fit
        assert isinstance(verdict, VerdictDown) and verdict.token is not None
        known = max(known, verdict.last + 1)
    assert client.verdict(3, 8, right[8:10]).token == right[10]


def test_a_draft_that_left_before_the_verdict_counts_what_was_known(
    client: Client, target: LoadedModel
) -> None:
    right = answer_of(target, prompt_of(4), SAMPLED)
    client.opened(4, prompt_of(4), SAMPLED)
    client.verdict(4, 1, right[1:4])  # brings right[4] as well
    late = client.verdict(4, 4, right[4:8])
    assert (late.last, late.token) == (4, right[8])
    within = client.verdict(4, 5, right[5:7])  # nothing in it that is not known
    assert (within.last, within.token) == (2, right[7])
    off = client.verdict(4, 8, [wrong(right[8]), 40])
    assert (off.last, off.token) == (0, right[8])
    assert client.verdict(4, 9, right[9:11], epoch=1).token == right[11]


@pytest.mark.parametrize("length", [3, 5])
def test_an_eos_inside_a_draft_ends_the_answer(client: Client, target: LoadedModel, length: int) -> None:
    options, eos = ending_options(target, length)
    right = answer_of(target, prompt_of(5), options)
    assert len(right) == length + 1 and right[-1] == eos
    client.opened(5, prompt_of(5), options)
    verdict = client.verdict(5, 1, [*right[1:], 40, 41])
    assert (verdict.last, verdict.token) == (length - 1, eos)
    client.draft(5, len(right), [40], epoch=1)
    client.work()
    assert "after the end" in client.refused(5).message


def test_a_drafted_eos_that_the_target_rejects_ends_nothing(client: Client, target: LoadedModel) -> None:
    eos = min(target.eos_token_ids)
    right = answer_of(target, prompt_of(6), GREEDY)
    client.opened(6, prompt_of(6))
    verdict = client.verdict(6, 1, [right[1], eos, right[3]])
    assert (verdict.last, verdict.token) == (1, right[2])
    assert client.verdict(6, 3, right[3:7], epoch=1).last == 4


def test_a_draft_over_the_end_of_the_answer_is_cut(client: Client, target: LoadedModel) -> None:
    options = GenerationOptions(6)
    right = answer_of(target, prompt_of(7), options)
    assert client.opened(7, prompt_of(7), options).limit == 6
    more = answer_of(target, prompt_of(7), GenerationOptions(12))
    verdict = client.verdict(7, 1, more[1:11])
    assert (verdict.last, verdict.token) == (4, right[5])


def test_a_long_draft_is_judged_as_far_as_the_engine_takes_it(client: Client, target: LoadedModel) -> None:
    options = GenerationOptions(60, temperature=0.7, seed=3)
    right = answer_of(target, prompt_of(8), options)
    client.opened(8, prompt_of(8), options)
    at, epoch = 1, 0
    while at < 60:
        ids = right[at : at + 30]
        verdict = client.verdict(8, at, ids, epoch)
        assert verdict.token == right[at + verdict.last]
        assert verdict.last >= min(4, 60 - at - 1)
        epoch += verdict.last < len(ids)
        at += verdict.last + 1


def test_the_end_of_the_context_is_the_end_of_the_answer(client: Client, target: LoadedModel) -> None:
    long = tuple(30 + place % 50 for place in range(target.context_limit - 7))
    prompt = type(prompt_of(1))(long)
    right = answer_of(target, prompt, GREEDY)
    opened = client.opened(9, prompt)
    assert opened.limit == 7 and opened.token == right[0]
    verdict = client.verdict(9, 1, right[1:5])
    assert (verdict.last, verdict.token) == (4, right[5])
    verdict = client.verdict(9, 6, [right[6], 40, 41])
    assert (verdict.last, verdict.token) == (0, right[6])


def test_what_is_wrong_with_one_session_ends_it_alone(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(1), GREEDY)
    for session in range(1, 5):
        client.opened(session, prompt_of(1))
    client.draft(1, 1, [target.vocab_size])
    client.draft(2, 9, [40])
    client.draft(3, 1, right[1:4])
    client.open(5, type(prompt_of(1))((target.vocab_size + 5,)))
    client.open(6, type(prompt_of(1))(()))
    client.open(7, type(prompt_of(1))((40,) * target.context_limit))
    client.open(8, prompt_of(1), GREEDY, history=list(right))
    client.open(9, prompt_of(1), GREEDY, history=[min(target.eos_token_ids)])
    client.work()
    for session in (1, 2, 5, 6, 7, 8, 9):
        assert client.refused(session).code == "refused", session
    verdict = client.last(3)
    assert isinstance(verdict, VerdictDown) and (verdict.last, verdict.token) == (3, right[4])
    assert client.verdict(4, 1, right[1:3]).token == right[3]
    client.draft(1, 1, [40])  # of a session that is over: nobody is answered
    client.work()
    assert isinstance(client.last(1), ErrorDown)
    assert client.opened(1, prompt_of(1)).token == right[0]


def test_what_an_engine_cannot_do_it_refuses_in_one_line(client: Client, target: LoadedModel) -> None:
    can = client.engine.can
    asked = {
        2: (can.trees, {}),
        3: (can.sampled, {"recovery": 2}),
        4: (can.split, {"front_layers": 1}),
        5: (can.drafts, {"stream": True, "speculate": 4}),
        6: (can.grammars, {}),
    }
    options = {3: SAMPLED, 6: GenerationOptions(8, grammar="start: /[a-z]+/")}
    for session, (able, more) in asked.items():
        client.open(session, prompt_of(session), options.get(session, GREEDY), **more)
        client.work()
        if session == 2:
            client.draft(2, 1, [40, 41], parents=[-1, -1])
            client.work()
        if not able:
            refused = client.refused(session)
            assert refused.code == "refused" and "\n" not in refused.message
        elif session != 4:
            assert not isinstance(client.last(session), ErrorDown)
    words = {"trees": can.trees, "sampled": can.sampled, "split": can.split, "several": can.several}
    assert set(can.lacks) == {word for word, able in {**words, "grammars": can.grammars}.items() if not able}


def test_every_task_is_given_back_once(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(1), GREEDY)
    client.open(1, prompt_of(1))
    client.draft(1, 1, right[1:3])
    client.draft(1, 3, right[3:5])
    client.open(2, prompt_of(2))
    client.close(2)
    client.draft(9, 0, [40])  # of no session
    client.work()
    client.close(1)
    client.work()
    assert len(client.out) == len({id(task) for task in client.out}) == 7
    assert isinstance(client.messages_of(1)[0], Opened)
