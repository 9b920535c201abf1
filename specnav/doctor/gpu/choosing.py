# SPDX-License-Identifier: Apache-2.0
"""What `auto` would choose for a pair: its own controller, given the times measured here and a round-trip time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.edge.controller import Controller
from specdec.errors import ModelError
from specdec.estimates.measured import Measured
from specdec.models import LoadedModel, Prompt
from specdec.models.loaded import first_difference
from specdec.models.local import generate_local
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specnav.doctor.gpu.records import AutoChoice, ModelFindings

REMAINING = 64
"""Tokens of the answer still to come at the time of the choice."""
_ENOUGH = 4


def agreement_of(
    target: LoadedModel, draft: LoadedModel, prompts: Sequence[Prompt], tokens: int
) -> list[list[bool]]:
    """For each answer and token: does the draft model predict the target's token, given the tokens before it?

    Raises ModelError if the vocabularies differ.
    """
    if target.vocabulary_fingerprint != draft.vocabulary_fingerprint:
        raise ModelError(
            f"draft and target have different vocabularies ({first_difference(draft, target)}): "
            "use two models of one family"
        )
    options = GenerationOptions(tokens)
    found = []
    for prompt in prompts:
        ids = generate_local(target, prompt, options)
        if not ids:
            continue
        with torch.inference_mode():
            cursor = SessionCursor(draft.new_session(), options)
            first = cursor.prefill(Prepared(draft.encode(prompt)))[None]
            rows = torch.cat([first, cursor.rows((), ids)[-len(ids) :][:-1]]) if len(ids) > 1 else first
        picks = rows.argmax(-1).tolist()
        found.append([one == other for one, other in zip(picks, ids, strict=True)])
    return found


def choices(
    target: ModelFindings,
    draft: ModelFindings,
    agreed: Sequence[Sequence[bool]],
    gamma: int,
    rtts_ms: Sequence[float],
) -> tuple[AutoChoice, ...]:
    """The plan for each round-trip time."""
    verify, drafting = _by_rows(target), _by_rows(draft)
    found = []
    for rtt_ms in rtts_ms:
        measured = Measured()
        for _ in range(_ENOUGH):
            for rows, ms in drafting.items():
                if rows <= gamma + 1:
                    measured.drafted(drafting[1] / 1e3, 1)
                    measured.drafted_ahead(ms / 1e3, rows)
            for rows, ms in verify.items():
                if rows <= gamma + 1:
                    measured.exchanged(rows, ms / 1e3, rtt_ms / 1e3)
            measured.streamed(1, verify[1] / 1e3, 0)
        for answer in agreed:
            for place in range(len(answer)):
                ahead = answer[place : place + gamma]
                said = [0] * len(ahead)
                measured.chain.compare([0 if same else 1 for same in ahead], said)
        choice = Controller(measured, gamma).choose(None, REMAINING)
        found.append(AutoChoice(rtt_ms, choice.plan.label, choice.why))
    return tuple(found)


def _by_rows(findings: ModelFindings) -> dict[int, float]:
    """Milliseconds of forward passes by rows, after the shortest context."""
    context = min(one.context for one in findings.forwards)
    return {one.rows: one.ms for one in findings.forwards if one.context == context}
