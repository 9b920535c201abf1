# SPDX-License-Identifier: Apache-2.0
"""What a round of rejection sampling weighs on a large vocabulary, with made-up rows and the real wire.

The rows are synthetic; judging, describing, recovering and encoding are the core's own code. Nothing is decoded by a
model, so a vocabulary of 150 000 costs no GPU. Bytes are what ZeroMQ would be handed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.errors import OptionsError
from specdec.link.convert import floats_to_wire, row_from_wire, row_to_wire
from specdec.link.wire import More, RowDown, SampledUp, VerdictDown, decode_down, encode
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import EdgeRecovery, describe_row
from specdec.sampling.rejection import count_accepted, draw
from specnav.bench.records.study import PayloadRecord
from specnav.bench.studies.payloads import PayloadsAsked
from specnav.results.demo import percentile
from specnav.results.errors import EvaluationError

SESSION, ROUND, BASE = 3, 200, 900
"""Numbers as they are in the middle of a long answer; they take more bytes than small ones."""
VERIFY_US, QUEUE_US = 94_200, 350


@dataclass(frozen=True)
class RowShape:
    """How the synthetic rows look.

    Target logits are -s * ln(rank) (a Zipf law p ~ rank^-s before temperature and filters), the ranks dealt to the
    vocabulary at random; s is uniform in `exponents` for each row, so that some rows are peaked and some are flat.
    The draft's logits are the target's plus normal noise of deviation `noise` on every token.
    """

    vocab: int = PayloadsAsked.vocab
    exponents: tuple[float, float] = (1.1, 3.0)
    noise: float = PayloadsAsked.noise
    temperature: float = PayloadsAsked.temperature
    top_k: int = 0
    top_p: float = 1.0

    @property
    def sampling(self) -> str:
        """How tokens are drawn, in words."""
        cut = [f"top-k {self.top_k}"] * bool(self.top_k) + [f"top-p {self.top_p:g}"] * (self.top_p < 1)
        return " and ".join(cut) or "full support"

    def options(self) -> GenerationOptions:
        """The sampling of both sides. Raises EvaluationError where nothing is sampled."""
        if self.vocab < 2 or self.temperature <= 0:
            raise EvaluationError("payloads need a vocabulary of 2 or more and a temperature above 0")
        try:
            return GenerationOptions(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        except OptionsError as error:
            raise EvaluationError(str(error)) from error


@dataclass(frozen=True)
class Scheme:
    """What travels down after a rejection: a recovery and its size (samples or entries)."""

    name: str
    recovery: Recovery
    size: int = 0


SCHEMES = (
    Scheme("dssd", Recovery.ROW),
    Scheme("dssd-thin", Recovery.SAMPLES, 16),
    Scheme("picospec, K = 32", Recovery.SPARSE, 32),
    Scheme("picospec, K = 64", Recovery.SPARSE, 64),
    Scheme("picospec, K = 80", Recovery.SPARSE, 80),
    Scheme("picospec, K = 96", Recovery.SPARSE, 96),
    Scheme("picospec, K = 128", Recovery.SPARSE, 128),
    Scheme("picospec-lossy, K = 64", Recovery.TRUNCATED, 64),
)


@dataclass(frozen=True)
class _Round:
    """A draft and how many of it were accepted. q_x: q of its ids [gamma]. p, q: the rows [vocab] at the rejection;
    None where all was accepted.
    """

    accepted: int
    ids: tuple[int, ...]
    q_x: Tensor
    p: Tensor | None
    q: Tensor | None


def payloads(
    shape: RowShape,
    schemes: Sequence[Scheme] = SCHEMES,
    rounds: int = PayloadsAsked.rounds,
    gamma: int = PayloadsAsked.gamma,
    seed: int = PayloadsAsked.seed,
) -> list[PayloadRecord]:
    """The schemes on the same rounds. Raises EvaluationError."""
    if rounds < 1 or gamma < 1:
        raise EvaluationError(f"payloads need rounds and draft tokens, got {rounds} and {gamma}")
    weighed: dict[str, list[tuple[int, int, int, bool]]] = {scheme.name: [] for scheme in schemes}
    drafted = accepted = 0
    rejections: list[bool] = []
    for number, one in enumerate(_rounds(shape, rounds, gamma, seed)):
        drafted, accepted = drafted + len(one.ids), accepted + one.accepted
        # The token recovered after a rejection travels with the next round's draft.
        fix = one.ids[0] if rejections and rejections[-1] else None
        rejections.append(one.p is not None)
        for scheme in schemes:
            weighed[scheme.name].append(_weigh(scheme, one, fix, seed, number))
    acceptance = accepted / drafted
    return [
        _summary(scheme.name, weighed[scheme.name], rejections, acceptance, shape.sampling)
        for scheme in schemes
    ]


def _rounds(shape: RowShape, rounds: int, gamma: int, seed: int) -> Iterator[_Round]:
    """Rounds of rejection sampling. What was drafted after the first rejection only weighs something: any ids do."""
    generator = torch.Generator().manual_seed(seed)
    options = shape.options()
    ranks = torch.arange(1, shape.vocab + 1, dtype=torch.float32).log()
    low, high = shape.exponents
    for _ in range(rounds):
        ids: list[int] = []
        q_x: list[Tensor] = []
        accepted = gamma
        rejected: tuple[Tensor, Tensor] | None = None
        for index in range(gamma):
            exponent = low + (high - low) * float(torch.rand(1, generator=generator))
            logits = -exponent * ranks[torch.randperm(shape.vocab, generator=generator)]
            noisy = logits + shape.noise * torch.randn(shape.vocab, generator=generator)
            p, q = process_logits(torch.stack([logits, noisy]), options).exp()
            numbers = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
            token = draw(q, numbers[0])
            ids.append(token)
            q_x.append(q[token])
            if not count_accepted([float(p[token])], [float(q[token])], numbers[1:]):
                rejected, accepted = (p, q), index
                break
        unjudged = gamma - len(ids)
        ids += torch.randint(shape.vocab, (unjudged,), generator=generator).tolist()
        q_x += [torch.tensor(0.5)] * unjudged
        p_row, q_row = rejected if rejected is not None else (None, None)
        yield _Round(accepted, tuple(ids), torch.stack(q_x), p_row, q_row)


def _weigh(
    scheme: Scheme, one: _Round, fix: int | None, seed: int, number: int
) -> tuple[int, int, int, bool]:
    """(bytes up, bytes down, further requests, whether the whole row travelled) of a round."""
    draft = SampledUp(SESSION, ROUND, BASE, list(one.ids), floats_to_wire(one.q_x), fix)
    up = len(encode(draft))
    if one.p is None or one.q is None:
        verdict = VerdictDown(SESSION, ROUND, one.accepted, one.ids[0], VERIFY_US, QUEUE_US)
        return up, len(encode(verdict)), 0, False
    position = BASE + number
    edge = EdgeRecovery(one.q, seed, position)
    down = batch = 0
    while True:
        row = describe_row(one.p, scheme.recovery, scheme.size, seed, position, batch)
        data = encode(row_to_wire(SESSION, ROUND, one.accepted, row, VERIFY_US, QUEUE_US))
        down += len(data)
        message = decode_down(data)
        assert isinstance(message, RowDown)
        if edge.token(row_from_wire(message)) is not None:
            return up, down, batch, row.tokens is None
        up += len(encode(More(SESSION, ROUND)))
        batch += 1


def _summary(
    name: str,
    weighed: Sequence[tuple[int, int, int, bool]],
    rejections: Sequence[bool],
    acceptance: float,
    sampling: str,
) -> PayloadRecord:
    rejected = [one for one, hit in zip(weighed, rejections, strict=True) if hit]
    downs = [float(one[1]) for one in rejected]
    return PayloadRecord(
        scheme=name,
        sampling=sampling,
        rounds=len(weighed),
        acceptance=acceptance,
        up=sum(one[0] for one in weighed) / len(weighed),
        down=sum(one[1] for one in weighed) / len(weighed),
        rejected_down=sum(downs) / len(downs) if downs else 0.0,
        rejected_p95=percentile(downs, 95) or 0.0,
        rejected_max=int(max(downs, default=0)),
        again=sum(one[2] for one in rejected) / len(rejected) if rejected else 0.0,
        whole_rows=sum(one[3] for one in rejected),
    )


SAMPLINGS: tuple[tuple[int, float], ...] = ((0, 1.0), (50, 1.0), (0, 0.9))
"""(top-k, top-p) weighed where none is asked for: everything possible, and the two usual cuts."""


def weigh_all(asked: PayloadsAsked) -> list[PayloadRecord]:
    """Every scheme with every sampling. Raises EvaluationError."""
    torch.set_num_threads(1)  # the rows are short work: more threads wait for each other
    cuts = ((asked.top_k or 0, 1.0 if asked.top_p is None else asked.top_p),)
    shapes = [
        RowShape(asked.vocab, noise=asked.noise, temperature=asked.temperature, top_k=top_k, top_p=top_p)
        for top_k, top_p in (SAMPLINGS if asked.top_k is None and asked.top_p is None else cuts)
    ]
    return [
        one for shape in shapes for one in payloads(shape, SCHEMES, asked.rounds, asked.gamma, asked.seed)
    ]
