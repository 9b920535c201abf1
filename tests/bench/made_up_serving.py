"""Studies of what a verifier bears as they could have been measured: rates by arithmetic."""

from __future__ import annotations

from specdec.methods import get_method
from specnav.bench.data.points import load_point
from specnav.bench.records.capacity import (
    BatchCurve,
    ClientsRow,
    CurvePoint,
    Flow,
    PromptDelay,
    rounds_a_second,
)
from specnav.bench.records.study import CellRecord, StudyResults
from specnav.bench.studies.batch import ROWS, SESSIONS
from specnav.bench.studies.clients import COUNTS, METHODS, RTTS, ServingCell, cells, searches

VERIFY_MS, DRAFT_MS, POINT_RTT_MS = 94.2, 11.0, 15.0
BEST = {"cloud-sd": 2, "sd": 2, "fsd": 4}
TOKENS = {"ar": 1.0, "cloud-sd": 1.9, "sd": 1.9, "fsd": 1.9, "specedge": 2.4, "auto": 2.3}


def made_up_row(cell: ServingCell, scale: float = 1.0, busy: float = 0.4, others: float = 0.1) -> ClientsRow:
    """What the network of queues says, as run at a time scale."""
    method = get_method(cell.method)
    tokens = TOKENS[cell.method] + (0.4 if cell.gamma == BEST.get(cell.method) else 0.0)
    drafting = 0.0 if not method.drafts and not method.cloud_drafts else DRAFT_MS * cell.gamma
    think = drafting * (0.3 if method.predrafts else 1.0) + cell.rtt_ms if method.drafts else 0.0
    forward = VERIFY_MS + (drafting if method.cloud_drafts else 0.0)
    rate = rounds_a_second(cell.clients, Flow(scale * think, lambda sessions: scale * forward)) * tokens
    return ClientsRow(
        method=cell.method, clients=cell.clients, rate=rate, median=rate / cell.clients, slow=0.9 * rate / cell.clients,
        verify_ms=scale * VERIFY_MS, queue_ms=5.0, batch=1.5, answers=3, wrong=0,
        server={"idle_share": 0.2, "sessions_a_forward": 1.5}, tokens_a_round=tokens,
        rows=33.0 if method.tree else 1.0 + cell.gamma, cores_busy=busy, cores_ours=busy - others, seconds=10.0,
    )  # fmt: skip


def made_up_clients(done: int | None = None, scale: float = 1.0) -> StudyResults:
    """Every cell, or the first few. With 16 clients the machine was busy."""
    rtts = (POINT_RTT_MS, *(rtt for rtt in RTTS if rtt != POINT_RTT_MS))
    wanted = [*searches(METHODS, POINT_RTT_MS)]
    wanted += [cell for cell in cells(METHODS, rtts, COUNTS, BEST, 7) if cell not in wanted]
    records = [
        CellRecord(
            name=one.name, method=one.method, gamma=one.gamma, groups=one.groups, rtt_ms=one.rtt_ms, wall_s=20.0,
            row=made_up_row(one, scale, 0.95 if one.clients == 16 else 0.4),
        )
        for one in wanted[:done]
    ]  # fmt: skip
    config = {"rtt_ms": scale * POINT_RTT_MS, "verify_ms": scale * VERIFY_MS, "draft_ms": scale * DRAFT_MS}
    return StudyResults(
        schema=1, name="clients", settings=[], cells=records, curve=made_up_curve() if done is None else None,
        time_scale=scale, point=load_point("specedge-32b")[1], machine={"processor": "made up"},
        config={**config, "temperature": 0.7, "max_new_tokens": 64, "seconds": 12, "forward_rows": 256},
        asked=len(wanted), interrupted=done is not None, started_at="2026-01-02T03:04:05Z",
    )  # fmt: skip


def made_up_curve() -> BatchCurve:
    """A forward takes 2 ms and 0.05 ms a row more."""
    points = [
        CurvePoint(sessions=n, rows=rows, together_ms=2 + 0.05 * n * rows, apart_ms=n * (2 + 0.05 * rows))
        for n in SESSIONS
        for rows in ROWS
    ]
    prompt = PromptDelay(
        label="A prompt of 1000 tokens on made-up", tokens=1000, pictures=1, chunk=64, sessions=4, alone_ms=3.0,
        during_ms=6.0, worst_ms=9.0, opened_ms=100.0, verdicts=100,
    )  # fmt: skip
    return BatchCurve(schema=1, model="made-up", device="cpu", threads=1, context=256, points=points, prompts=[prompt])


def made_up_batch(done: int | None = None) -> StudyResults:
    """The curve; nothing with `done` = 0."""
    return StudyResults(
        schema=1, name="batch", settings=[], curve=None if done == 0 else made_up_curve(), asked=1, wall_s=60.0,
        interrupted=done is not None, started_at="2026-01-02T03:04:06Z", machine={"processor": "made up"},
    )  # fmt: skip
