# SPDX-License-Identifier: Apache-2.0
"""What it brings to tune a trigger's thresholds: R1 and R2 of `dual:R1/R2` found by a tuner, compared with fixed ones,
learnt ones, and `worth`.

    pip install 'specnav[tune]'
    python -m benchmarks.tuned_triggers --point pipesd-humaneval                        # simulated
    python -m benchmarks.tuned_triggers --point pipesd-humaneval --emulated --texts 2   # real processes, in real time

The tuners are those that PipeSD compares: a Gaussian process (Matern kernel, expected improvement), a grid of 4 x 4,
and random thresholds. Each makes 16 trials of 20 tokens, every trial on a different text. The best pair then decodes
the same text as all other rules. Link, times and acceptance are those of the operating point.

Simulated: the real edge decodes 1,024 tokens, which come in easy and hard stretches, on the simulated clock of
`benchmarks.regret`; with `--heat`, the draft model's probabilities are too low or too high. `hindsight` is the best
pair of a grid of 5 x 5 on that very text: a pair found beforehand can hardly be better. Emulated: a text consists of
four of the project's own questions; link and acceptance are emulated as in `specnav bench`; rules that learn have first
answered as many tokens as a tuner's trials; there is no hindsight.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from benchmarks.regret.language import SimulatedLanguage
from benchmarks.regret.playing import language_of, play
from benchmarks.regret.worlds import Fit, SimulatedWorld, forwards
from specdec.edge.decoder import connect
from specdec.link.shaping import LinkProfile
from specdec.options import GenerationOptions
from specnav.bench.data.acceptance import read_acceptance
from specnav.bench.data.points import OperatingPoint, load_point, paper_acceptance
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import MeasuredAnswer
from specnav.bench.runner.acceptance import disturbance_of, find_acceptance
from specnav.bench.runner.edge import EdgeContestant, load_edge
from specnav.bench.runner.loop import prompt_of
from specnav.bench.runner.processes import surroundings
from specnav.bench.settings import make_config
from specnav.errors import UsageError

FAMILIES = ("sd", "pipesd")
FIXED = ("length:fixed", "length:token:0.7", "length:sequence:moving", "length:dual:0.5/0.3")
TAUGHT = ("length:dual:learned", "length:worth")
TRIALS = 16
TEXT = (64,) * 16
LOW, HIGH = 0.05, 1.0
GRID = [0.2, 0.4, 0.6, 0.8]
HINDSIGHT = [0.1, 0.3, 0.5, 0.7, 0.9]
EASY = Fit(easy=0.5, stretch=6.0, sure_easy=0.97, sure_hard=0.4, heat=1.0)
FIT_TOKENS, FIT_STEPS = 4000, 12
WORDS_APART = 100_003
EMULATED_QUESTIONS, EMULATED_TOKENS = 4, 48
Pair = tuple[float, float]


class Tuned(NamedTuple):
    """A tuner's best pair, and the time of a token during its trials."""

    pair: Pair
    trial_ms: float


def optuna_module() -> Any:
    """The optuna module, which is needed only here. Raises UsageError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise UsageError("tuning thresholds needs optuna: pip install 'specnav[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def tuners(optuna: Any, seed: int) -> Mapping[str, Any]:
    """optuna's samplers by their names in the table; the first quarter of the Gaussian process' trials is random."""
    return {
        "Gaussian process": optuna.samplers.GPSampler(seed=seed, n_startup_trials=TRIALS // 4),
        "grid": optuna.samplers.GridSampler({"r1": GRID, "r2": GRID}, seed=seed),
        "random": optuna.samplers.RandomSampler(seed=seed),
    }


def tune(optuna: Any, sampler: Any, measure: Callable[[int, Pair], float]) -> Tuned:
    """The pair with the least time per token. measure: gives a trial's ms a token, from its number."""
    study = optuna.create_study(sampler=sampler)

    def trial_ms(trial: Any) -> float:
        return measure(trial.number, (trial.suggest_float("r1", LOW, HIGH), trial.suggest_float("r2", LOW, HIGH)))

    study.optimize(trial_ms, n_trials=TRIALS)
    taken = [one.value for one in study.trials]
    return Tuned((study.best_params["r1"], study.best_params["r2"]), sum(taken) / len(taken))


def named(family: str, pair: Pair) -> str:
    """A method with these thresholds."""
    return f"{family}+length:dual:{pair[0]:.4g}/{pair[1]:.4g}"


def tau_of(language: SimulatedLanguage, gamma: int) -> float:
    """Mean tokens per round of chains of `gamma` tokens."""
    right = [language.likeliest(place) == token for place, token in enumerate(language.text)]
    base, rounds = 0, 0
    while base + gamma < len(right):
        base += next((place for place in range(gamma) if not right[base + place]), gamma) + 1
        rounds += 1
    return base / rounds


def fit_of(tau: float, gamma: int, heat: float) -> Fit:
    """A draft model with this tau, from varying the share of easy tokens. Raises UsageError if none has it."""
    low, high = 0.0, 1.0
    for _ in range(FIT_STEPS):
        fit = replace(EASY, easy=(low + high) / 2, heat=heat)
        if tau_of(SimulatedLanguage(1, fit, FIT_TOKENS), gamma) < tau:
            low = fit.easy
        else:
            high = fit.easy
    if not 0.02 < fit.easy < 0.98:
        raise UsageError(f"no simulated draft of heat {heat:g} has a tau of {tau:g} at gamma {gamma}: try another heat")
    return fit


def world_of(point: OperatingPoint, fit: Fit, answers: tuple[int, ...], seed: int) -> SimulatedWorld:
    """A world with the point's devices and link, without noise."""
    return SimulatedWorld(
        seed=seed,
        draft=forwards(point.draft_ms, 0.0),
        verify=forwards(point.verify_ms, 0.0),
        cloud_draft=None,
        noise=0.0,
        prompt=1.0,
        link=LinkProfile(point.rtt_ms, point.jitter_ms, point.bandwidth_mbps),
        fit=fit,
        phases=((0, 1.0, 0.0),),
        contention=0.0,
        told=True,
        hint_at=0.0,
        hint_right=0.0,
        answers=answers,
    )


class Simulated:
    """Measures ms a token on the simulated clock, prompts included. trial_tokens: length of each trial."""

    def __init__(self, point: OperatingPoint, heat: float, trial_tokens: int) -> None:
        """Raises UsageError for a point without a tau."""
        wanted = read_acceptance(paper_acceptance(point), point.gamma)
        if wanted.kind != "tau":
            raise UsageError(f"{point.title} has no tau, from which the simulated draft is made: choose another point")
        self._point, self._trial_tokens = point, trial_tokens
        self._fit = fit_of(wanted.value, wanted.gamma, heat)

    def trial(self, seed: int, number: int, method: str) -> float:
        """A tuner's trial; each number has a different text. seed: the seed of the texts."""
        world = world_of(self._point, self._fit, (self._trial_tokens,), seed + WORDS_APART * (number + 1))
        return self._ms(world, method, language_of(world))

    def text(self, seed: int, methods: Mapping[str, str], family: str) -> dict[str, float]:
        """Decode the same text with every method, and with hindsight."""
        world = world_of(self._point, self._fit, TEXT, seed)
        language = language_of(world)
        every = [named(family, (r1, r2)) for r1 in HINDSIGHT for r2 in HINDSIGHT]
        taken = {rule: self._ms(world, method, language) for rule, method in methods.items()}
        return {**taken, "hindsight": min(self._ms(world, method, language) for method in every)}

    def _ms(self, world: SimulatedWorld, method: str, language: SimulatedLanguage) -> float:
        return 1e3 / play(world, method, language, gamma=self._point.gamma).tokens_per_s


class Emulated:
    """Measures with a verifier and a link emulator as processes and paced forwards. The draft is the target itself,
    with disturbed picks.
    """

    def __init__(self, stack: ExitStack, point: str, trial_tokens: int) -> None:
        """stack: ends the processes. Raises UsageError and the bench's errors."""
        config = make_config({"point": point, "at_paper_acceptance": True, "max_new_tokens": EMULATED_TOKENS})
        self._edge = load_edge(config, ("sd",))
        questions = load_questions(config.questions, config.limit)
        found = find_acceptance(config, self._edge.draft, questions, lambda words: print(words, flush=True))
        self._edge.draft.disturbance = disturbance_of(found)
        logs = Path(stack.enter_context(TemporaryDirectory()))
        address = stack.enter_context(surroundings(config, logs, False)).open_link()
        self._link = stack.enter_context(connect(address, connect_timeout_s=10.0, reply_timeout_s=10.0))
        self._config, self._trial_tokens = config, trial_tokens
        self._prompts = [prompt_of(self._edge.draft.tokenizer, question, []) for question in questions]

    def trial(self, seed: int, number: int, method: str) -> float:
        """A tuner's trial; the questions of the text are not asked."""
        measured = self._ask(self._contestant(method), self._apart(seed, number), self._trial_tokens)
        return measured.wall_ms / len(measured.ids)

    def text(self, seed: int, methods: Mapping[str, str], family: str) -> dict[str, float]:
        """Decode the same text with every method, question by question, starting with a different method each time."""
        contestants = {rule: self._contestant(method) for rule, method in methods.items()}
        for rule in TAUGHT:  # so that they learn from as many tokens as a tuner
            for number in range(TRIALS):
                self._ask(contestants[rule], self._apart(seed, number), self._trial_tokens)
        answers: dict[str, list[MeasuredAnswer]] = {rule: [] for rule in methods}
        for number in range(EMULATED_QUESTIONS):
            order = [*methods][number:] + [*methods][:number]
            for rule in order:
                place = seed * EMULATED_QUESTIONS + number
                answers[rule].append(self._ask(contestants[rule], place, EMULATED_TOKENS))
            assert len({tuple(said[-1].ids) for said in answers.values()}) == 1, "answers differ between methods"
        return {
            rule: sum(one.wall_ms for one in said) / sum(len(one.ids) for one in said) for rule, said in answers.items()
        }

    def _apart(self, seed: int, number: int) -> int:
        """The position of a question that is not in the text."""
        return (seed + 1) * EMULATED_QUESTIONS + number % (len(self._prompts) - EMULATED_QUESTIONS)

    def _contestant(self, method: str) -> EdgeContestant:
        config = self._config
        return EdgeContestant(method, self._link, self._edge.draft, config.gamma, config.profile(), 10.0)

    def _ask(self, contestant: EdgeContestant, place: int, tokens: int) -> MeasuredAnswer:
        return contestant.answer(self._prompts[place % len(self._prompts)], GenerationOptions(tokens))


def study(
    optuna: Any, place: Simulated | Emulated, family: str, seed: int
) -> tuple[dict[str, float], dict[str, Tuned]]:
    """For one text: ms a token by rule, and the earlier finding of each tuner."""
    found = {
        name: tune(optuna, sampler, lambda number, pair: place.trial(seed, number, named(family, pair)))
        for name, sampler in tuners(optuna, seed).items()
    }
    methods = {rule: f"{family}+{rule}" for rule in (*FIXED, *TAUGHT)}
    return place.text(seed, methods | {name: named(family, one.pair) for name, one in found.items()}, family), found


def table(family: str, texts: Sequence[tuple[Mapping[str, float], Mapping[str, Tuned]]]) -> list[str]:
    """Print medians over the texts, the excess over the least time of a text, and the tuners' pairs."""
    head = ("ms a token", "over the least", "R1, R2 found", "ms a token in trials")
    lines = [f"| `{family}` with | {' | '.join(head)} |", "|" + "---|" * (1 + len(head))]
    for rule in texts[0][0]:
        taken = [one[rule] for one, _ in texts]
        over = [one[rule] / min(one.values()) for one, _ in texts]
        cells = [f"{median(taken):.1f}", f"{median(over):.2f} ({min(over):.2f} to {max(over):.2f})", "", ""]
        if rule in texts[0][1]:
            pairs = [found[rule].pair for _, found in texts]
            cells[2] = "; ".join(f"{min(side):.2f} to {max(side):.2f}" for side in zip(*pairs, strict=True))
            cells[3] = f"{median(found[rule].trial_ms for _, found in texts):.1f}"
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Tune, decode, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--point", default="pipesd-humaneval", help="operating point with an acceptance: {tau: ...}")
    parser.add_argument("--heat", type=float, default=1.0, help="above 1 the draft is less sure than it should be (1)")
    parser.add_argument("--emulated", action="store_true", help="real processes in real time; without --heat")
    parser.add_argument("--trial-tokens", type=int, default=20, help="tokens of each tuner trial (20)")
    parser.add_argument("--texts", type=int, default=8, help="number of texts, each with its own tuning (8)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first text (0)")
    flags = parser.parse_args()
    if min(flags.texts, flags.trial_tokens) < 1 or flags.first < 0 or not 0.2 <= flags.heat <= 5.0:
        parser.error("--texts and --trial-tokens must be at least 1, --first at least 0, and --heat 0.2 to 5")
    torch.set_num_threads(1)
    with ExitStack() as stack:
        try:
            optuna, point = optuna_module(), load_point(flags.point)[0]
            place = (
                Emulated(stack, flags.point, flags.trial_tokens)
                if flags.emulated
                else Simulated(point, flags.heat, flags.trial_tokens)
            )
        except UsageError as error:
            parser.error(str(error))
        print(f"{'emulated' if flags.emulated else 'simulated'}: {flags.point}, medians of {flags.texts} texts")
        for family in FAMILIES:
            seeds = range(flags.first, flags.first + flags.texts)
            print("\n".join(table(family, [study(optuna, place, family, seed) for seed in seeds])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
