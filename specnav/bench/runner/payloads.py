# SPDX-License-Identifier: Apache-2.0
"""Measures the bytes of a round of rejection sampling on a large vocabulary, with synthetic rows and the real wire.

Judging, describing, recovering and encoding are the code of `specdec`. No model runs, so a vocabulary of 150 000 needs
no GPU. Bytes are those that would be passed to ZeroMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from specdec.link.convert import floats_to_wire, row_from_wire, row_to_wire
from specdec.link.wire import More, RowDown, SampledUp, VerdictDown, decode_down, encode
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import EdgeRecovery, describe_row
from specdec.sampling.rejection import count_accepted, draw
from specnav.bench.records.study import PayloadRecord
from specnav.bench.studies.payloads import PayloadsAsked
from specnav.results.demo import mean, percentile

SESSION, ROUND, BASE = 3, 200, 900
"""Typical numbers in the middle of a long answer; they take more bytes than small ones."""
VERIFY_US, QUEUE_US = 94_200, 350
EXPONENTS = 1.1, 3.0
"""Range of s. Target logits are -s * ln(rank), a Zipf law p ~ rank^-s before temperature and filters. Ranks are
assigned to the vocabulary at random. s is uniform in this range for each row, so rows are peaked or flat.
"""
SAMPLINGS: tuple[tuple[int, float], ...] = ((0, 1.0), (50, 1.0), (0, 0.9))
"""(top-k, top-p) measured by default: the full support, and two common cuts."""


@dataclass(frozen=True)
class Scheme:
    """What the cloud sends after a rejection: a kind of recovery and its size (samples or entries)."""

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
    """A draft and its verdict. accepted: number of accepted tokens. q_x: probabilities of its ids under q, [gamma].

    p, q: the rows [vocab] at the rejection; None if all tokens were accepted.
    """

    accepted: int
    ids: tuple[int, ...]
    q_x: Tensor
    p: Tensor | None
    q: Tensor | None


class _Weight(NamedTuple):
    """Bytes of a round with one scheme. again: further requests. whole: whether the whole row was sent."""

    up: int
    down: int
    again: int = 0
    whole: bool = False
    rejected: bool = False


def weigh_all(asked: PayloadsAsked) -> list[PayloadRecord]:
    """Measure every scheme with every sampling."""
    torch.set_num_threads(1)  # rows are little work, so more threads would only wait for each other
    if asked.top_k is not None or asked.top_p is not None:
        return payloads(asked)
    return [one for top_k, top_p in SAMPLINGS for one in payloads(replace(asked, top_k=top_k, top_p=top_p))]


def payloads(asked: PayloadsAsked, schemes: Sequence[Scheme] = SCHEMES) -> list[PayloadRecord]:
    """Measure the schemes on the same rounds, with one sampling."""
    options = GenerationOptions(
        temperature=asked.temperature, top_k=asked.top_k or 0, top_p=1.0 if asked.top_p is None else asked.top_p
    )
    cuts = [f"top-k {options.top_k}"] * bool(options.top_k) + [f"top-p {options.top_p:g}"] * (options.top_p < 1)
    weighed: dict[str, list[_Weight]] = {scheme.name: [] for scheme in schemes}
    drafted = accepted = 0
    fix = False
    for number, one in enumerate(_rounds(asked, options)):
        drafted, accepted = drafted + len(one.ids), accepted + one.accepted
        for scheme in schemes:
            # The token recovered after a rejection is sent with the next round's draft.
            weighed[scheme.name].append(_weigh(scheme, one, one.ids[0] if fix else None, asked.seed, number))
        fix = one.p is not None
    return [
        _summary(name, several, accepted / drafted, " and ".join(cuts) or "full support")
        for name, several in weighed.items()
    ]


def _rounds(asked: PayloadsAsked, options: GenerationOptions) -> Iterator[_Round]:
    """Rounds of rejection sampling. Tokens after the first rejection only count as bytes, so they are random."""
    vocab, gamma, (low, high) = asked.vocab, asked.gamma, EXPONENTS
    generator = torch.Generator().manual_seed(asked.seed)
    ranks = torch.arange(1, vocab + 1, dtype=torch.float32).log()
    for _ in range(asked.rounds):
        ids: list[int] = []
        q_x: list[Tensor] = []
        accepted = gamma
        rejected: tuple[Tensor, Tensor] | None = None
        for index in range(gamma):
            exponent = low + (high - low) * float(torch.rand(1, generator=generator))
            logits = -exponent * ranks[torch.randperm(vocab, generator=generator)]
            noisy = logits + asked.noise * torch.randn(vocab, generator=generator)
            p, q = process_logits(torch.stack([logits, noisy]), options).exp()
            numbers = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
            token = draw(q, numbers[0])
            ids.append(token)
            q_x.append(q[token])
            if not count_accepted([float(p[token])], [float(q[token])], numbers[1:]):
                rejected, accepted = (p, q), index
                break
        unjudged = gamma - len(ids)
        ids += torch.randint(vocab, (unjudged,), generator=generator).tolist()
        q_x += [torch.tensor(0.5)] * unjudged
        p_row, q_row = rejected if rejected is not None else (None, None)
        yield _Round(accepted, tuple(ids), torch.stack(q_x), p_row, q_row)


def _weigh(scheme: Scheme, one: _Round, fix: int | None, seed: int, number: int) -> _Weight:
    draft = SampledUp(SESSION, ROUND, BASE, list(one.ids), floats_to_wire(one.q_x), fix)
    up = len(encode(draft))
    if one.p is None or one.q is None:
        verdict = VerdictDown(SESSION, ROUND, one.accepted, one.ids[0], VERIFY_US, QUEUE_US)
        return _Weight(up, len(encode(verdict)))
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
            return _Weight(up, down, batch, row.tokens is None, True)
        up += len(encode(More(SESSION, ROUND)))
        batch += 1


def _summary(name: str, weighed: Sequence[_Weight], acceptance: float, sampling: str) -> PayloadRecord:
    rejected = [one for one in weighed if one.rejected]
    downs = [float(one.down) for one in rejected]
    return PayloadRecord(
        scheme=name,
        sampling=sampling,
        rounds=len(weighed),
        acceptance=acceptance,
        up=sum(one.up for one in weighed) / len(weighed),
        down=sum(one.down for one in weighed) / len(weighed),
        rejected_down=mean(downs) or 0.0,
        rejected_p95=percentile(downs, 95) or 0.0,
        rejected_max=int(max(downs, default=0)),
        again=mean([one.again for one in rejected]) or 0.0,
        whole_rows=sum(one.whole for one in rejected),
    )
