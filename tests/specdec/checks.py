"""What it means that a method is lossless, as functions: the tests call them, and so do the planted mutants.

All run the real EdgeDecoder against the real engine over the wire's bytes (wired.py), with languages given as tables
(table_models.py), and compare with a reference written without the package. A check that does not hold raises
AssertionError; so a mutant is noticed where it raises that, or a SpecdecError.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import scipy  # its parts are imported when they are first used
import torch

from specdec.edge.decoder import EdgeDecoder
from specdec.edge.stats import AnswerStats
from specdec.methods import METHODS, Method, get_method
from specdec.models import Prompt, chat_prompt
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery
from tests.helpers.servers import Pair
from tests.helpers.table_models import (
    PROMPT,
    Answer,
    TableModel,
    TablePair,
    adjusted,
    answer_chances,
    next_chances,
    next_state,
    states_of,
    table_pair,
)
from tests.specdec.wired import WiredLink

FALSE_ALARM = 1e-6
SAMPLES = 200
"""Of a method. With so many every planted fault of test_mutants is noticed but those that say how many they take."""
SAMPLES_OF_PARTS = 300
"""Of a method that recovers tokens from parts of a row: what becomes of the tail shows seldom."""
EARLY = (50, 100, 200, 300)
"""After this many samples most planted faults are plain."""
TOKENS = 10
"""Of an answer that is sampled."""
JOINT = 3
"""This many first tokens are looked at jointly."""

UNLIKE = table_pair(vocab=5, unlikeness=1.5)
"""Draft and target differ much, so that all rules of rejection sampling are needed often."""
SAMPLED = GenerationOptions(TOKENS, temperature=1.0)


COMBINATIONS = [
    "sd+overlap:stream",
    "sd+overlap:hinted-stream",
    "dssd+overlap:stream+leave:tokens",
    "sd+leave:tokens+length:online",
    "fsd+overlap:hints+queues:random/fifo",
    "fsd+tree:12x4+rows:3",
    "specedge+nodes:paid",
    "ngram+overlap:stream",
    "ngram+length:sequence:0.3",
    "sd+drafter:both+length:worth",
    "sd+overlap:stream+length:worth",
    "dssd+length:dual:learned",
    "dsd+overlap:continue+length:token:0.5",
    "picospec+length:dual:0.5/0.3",
    "dsd+leave:plan",
]
"""Points between the named methods; every value of an axis that may change what travels or when is in one of both."""

ALL_METHODS = [*METHODS, *COMBINATIONS]


def unlike_when_greedy(names: Sequence[str]) -> list[str]:
    """Those of the named methods that differ at temperature 0, where none recovers tokens: `dssd` is `sd` there."""
    found: dict[Method, str] = {}
    for name in names:
        form = replace(get_method(name), name="", summary="", recovery=Recovery.NOISE, recovery_size=0)
        found.setdefault(form, name)
    return list(found.values())


def on_tables(names: Sequence[str]) -> list[str]:
    """Those of the named methods that need no layers of a real model."""
    return [name for name in names if not get_method(name).split]


def drafting(names: Sequence[str]) -> list[str]:
    """Those that draft on the edge."""
    return [name for name in names if get_method(name).drafts]


LOSSLESS = [name for name, method in METHODS.items() if not method.lossy]
NOISE = [
    name
    for name in on_tables([*METHODS, *COMBINATIONS])
    if get_method(name).recovery_at(1.0) is Recovery.NOISE
]
"""Those whose sampled answers are decided by the seed alone."""
REJECTION = [
    name
    for name in drafting([*LOSSLESS, *COMBINATIONS])
    if get_method(name).recovery_at(1.0) is not Recovery.NOISE
]
"""Those that sample by rejection."""
PARTS_OF_ROWS = [
    "dssd-thin+resample:samples:1",
    "picospec+resample:sparse:1",
    "picospec+resample:sparse:2",
]
"""The same on vocabularies so small that the usual sizes would send the whole row."""


class Unhurried(threading.Event):
    """A cancel event that is never set, and on which nothing pauses: a resumed answer goes on at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def answer(
    method: str,
    options: GenerationOptions,
    pair: TablePair = UNLIKE,
    prompt: Prompt = PROMPT,
    gamma: int = 3,
    link: WiredLink | None = None,
) -> tuple[list[int], AnswerStats]:
    """One answer's ids, an EOS included where it ended with one, and what it cost."""
    link = link or WiredLink(pair.target, pair.draft)
    decoder = EdgeDecoder(link, pair.draft, method, gamma=gamma, resume_timeout_s=60.0)
    ids = [token for chunk in decoder.generate(prompt, options, Unhurried()) for token in chunk]
    if decoder.stats.finish == "eos":
        ids.append(min(pair.target.eos_token_ids))
    return ids, decoder.stats


def sampled_pvalue(
    method: str,
    options: GenerationOptions = SAMPLED,
    pair: TablePair = UNLIKE,
    samples: int = SAMPLES,
    slowness: float = 0.3,
    cuts: Collection[int] = (),
    looks: Collection[int] = (),
) -> float:
    """p-value of the answers of `samples` seeds as draws from the target's own distribution: the smaller of two.

    One test looks at the first tokens jointly, the other at all tokens, by their ranks.
    cuts: as in WiredLink, for each answer alone. looks: after this many answers it is also looked, and what is below
    FALSE_ALARM already is returned: for planted faults only, as every look more is one more chance of a false alarm.
    """
    answers: list[list[int]] = []

    def found() -> float:
        counts = Counter(tuple(ids[:JOINT]) for ids in answers)
        jointly = chi_square(counts, answer_chances(pair.target, PROMPT, options, JOINT))
        return min(jointly, leaning_pvalue(answers, pair, options))

    for seed in range(samples):
        link = WiredLink(pair.target, pair.draft, slowness, cuts, seed)
        # Short drafts bring many bonus tokens, long ones many that follow an accepted one.
        ids, _ = answer(method, replace(options, seed=seed), pair, gamma=1 + seed % 3, link=link)
        answers.append(ids)
        if len(answers) in looks and (early := found()) < FALSE_ALARM:
            return early
    return found()


def leaning_pvalue(answers: Sequence[Sequence[int]], pair: TablePair, options: GenerationOptions) -> float:
    """p-value of a chi-square test that sees whether answers lean towards the draft, likely tokens, or certain ids.

    Every token falls into a class: its rank by p - q at that place, its rank by p, and its id. Counts of classes are
    compared with their expectation; given the tokens before, each token's class is a multinomial variable of known
    chances, so the counts' excess is normal with the sum of the covariances. So is the sum of min(1, q / p) of the
    tokens, which grows where what was rejected is not made up for. The smallest p-value counts.
    """
    towards_draft = variance = 0.0
    taken: list[np.ndarray] = []  # [tokens * 3, classes]: which class each token fell into, by each of the orders
    expected: list[np.ndarray] = []  # and the chances of the classes
    for ids in answers:
        for place, (token, state) in enumerate(zip(ids, states_of(PROMPT, ids), strict=True)):
            before = tuple(ids[:place])
            p = next_chances(adjusted(pair.target, state, options, PROMPT, before), options)
            q = next_chances(adjusted(pair.draft, state, options, PROMPT, before), options)
            if p[token] == 0.0:
                return 0.0
            accepted = np.divide(q, p, out=np.ones_like(p), where=p > q)
            towards_draft += accepted[token] - p @ accepted
            variance += p @ accepted**2 - (p @ accepted) ** 2
            for order in (np.argsort(p - q, kind="stable"), np.argsort(p, kind="stable"), np.arange(p.size)):
                taken.append(order == token)
                expected.append(p[order])
    size = pair.target.vocab_size
    by_order = np.array(expected).reshape(-1, 3, size).transpose(1, 0, 2)
    excess = np.array(taken).reshape(-1, 3, size).sum(0) - by_order.sum(1)
    covariance = np.stack([np.diag(chances.sum(0)) - chances.T @ chances for chances in by_order])
    statistics = [one @ np.linalg.pinv(of, rcond=1e-9) @ one for one, of in zip(excess, covariance, strict=True)]
    ranks = np.linalg.matrix_rank(covariance, tol=1e-6)
    return float(scipy.stats.chi2.sf([*statistics, towards_draft**2 / max(variance, 1e-6)], [*ranks, 1]).min())


def chi_square(counts: Counter[Answer], chances: dict[Answer, float]) -> float:
    """p-value; cells of fewer than 5 expected counts are taken together, an impossible answer makes it 0."""
    if set(counts) - set(chances):
        return 0.0
    total = sum(counts.values())
    cells = [(counts[key], chance * total) for key, chance in chances.items() if chance * total >= 5]
    observed, expected = (np.array(column, dtype=np.float64) for column in zip(*cells, strict=True))
    rest = total - expected.sum()
    if rest >= 5:
        observed, expected = np.append(observed, total - observed.sum()), np.append(expected, rest)
    else:  # too little for a cell of its own
        observed[0] += total - observed.sum()
        expected[0] += rest
    return float(scipy.stats.chisquare(observed, expected).pvalue)


def check_distribution(
    method: str,
    options: GenerationOptions = SAMPLED,
    pair: TablePair = UNLIKE,
    samples: int = SAMPLES,
    cuts: Collection[int] = (),
    looks: Collection[int] = (),
) -> None:
    """What a method samples is distributed as the target alone would sample it. looks: as in sampled_pvalue."""
    p_value = sampled_pvalue(method, options, pair, samples, cuts=cuts, looks=looks)
    assert p_value > FALSE_ALARM, f"{method}: p-value {p_value:.1e}"


def greedy_reference(model: TableModel, prompt: Prompt, limit: int) -> list[int]:
    """The likeliest token after each other, read from the table; with the EOS."""
    state = 0
    for token in prompt.ids:
        state = next_state(state, token)
    ids: list[int] = []
    while len(ids) < limit and not set(ids[-1:]) & model.eos_token_ids:
        ids.append(int(model.logits[state].argmax()))
        state = next_state(state, ids[-1])
    return ids


PROMPTS = [Prompt((first, second)) for first in range(1, 5) for second in range(5)]


def check_greedy(
    method: str,
    pair: TablePair = UNLIKE,
    limits: Sequence[int] = (1, 2, 3, 5, 24),
    gamma: int = 3,
    stale: bool = False,
) -> list[AnswerStats]:
    """At temperature 0 the answer is the target's likeliest, of exactly the length it may have, on any link.

    stale: also where verdicts come again when their time is over, or in another session's name.
    """
    costs = []
    for index, prompt in enumerate(PROMPTS):
        limit = limits[index % len(limits)]
        # In turn, so that each of the odd number of limits meets both.
        slowness = (0.0, 0.4)[index % 2]
        link = WiredLink(pair.target, pair.draft, slowness, seed=index, stale=stale)
        ids, cost = answer(method, GenerationOptions(limit), pair, prompt, gamma, link)
        assert ids == greedy_reference(pair.target, prompt, limit), (
            f"{method}: prompt {prompt.ids}, limit {limit}"
        )
        costs.append(cost)
    return costs


@cache
def answer_alone(options: GenerationOptions) -> list[int]:
    """What the cloud alone answers: every method is compared with it."""
    ids, _ = answer("ar", options)
    return ids


def check_seed_decides(
    method: str, options: GenerationOptions = SAMPLED, cuts: Collection[int] = (), seeds: int = 60
) -> int:
    """With shared noise the ids are those of the cloud alone with the same seed. Returns how often it resumed."""
    resumes = 0
    for seed in range(seeds):
        options = replace(options, seed=seed, max_new_tokens=12)
        link = WiredLink(UNLIKE.target, UNLIKE.draft, slowness=0.4, cuts=cuts, seed=seed)
        ids, cost = answer(method, options, link=link)
        assert ids == answer_alone(options), f"{method}: seed {seed}"
        resumes += cost.resumes
    return resumes


def check_real_caches(method: str, pair: Pair) -> None:
    """With real models, whose caches are rolled back and pruned, greedy ids are those of the library's `generate`."""
    for text in ("find the silver bottle", "1 + 1 =", "the quick brown fox", "hello"):
        prompt = chat_prompt(pair.target, text)
        encoded = torch.tensor([prompt.ids])
        whole = pair.target.hf_model.generate(input_ids=encoded, do_sample=False, max_new_tokens=24)
        expected = whole[0, encoded.shape[1] :].tolist()
        link = WiredLink(pair.target, pair.draft, slowness=0.3)
        decoder = EdgeDecoder(link, pair.draft, method, front_model=pair.target)
        ids = [token for chunk in decoder.generate(prompt, GenerationOptions(24)) for token in chunk]
        assert ids == [token for token in expected if token not in pair.target.eos_token_ids], (
            f"{method}: {text}"
        )
