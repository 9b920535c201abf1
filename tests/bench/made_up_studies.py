"""Studies as they could have been measured: every setting there, or only the first few."""

from __future__ import annotations

import msgspec

from specdec.methods import get_method
from specnav.bench.data import latency
from specnav.bench.data.points import load_point
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import BenchResults, BenchRow
from specnav.bench.records.study import DraftRecord, FormulaRecord, PayloadRecord, SettingRecord, StudyResults
from specnav.bench.runner.run import methods_of, settings_of
from specnav.bench.runner.view import BenchView
from specnav.bench.settings import BenchConfig
from specnav.bench.studies import study_named
from specnav.bench.studies.plan import StudyRequest, StudySetting
from specnav.errors import UsageError
from tests.bench.made_up_serving import made_up_batch, made_up_clients

ASKED = StudyRequest(layers=tuple(range(7)))
DRAFT_MS, VERIFY_MS, RTT_MS, ALPHA = 72.0, 620.0, 240.0, 0.5


def made_up_study(name: str, done: int | None = None, point: str = "go2-wifi6") -> StudyResults:
    """A study whose times are what the formulas say. done: settings that were run, None = all."""
    if name == "clients":
        return made_up_clients(done)
    if name == "batch":
        return made_up_batch(done)
    if name in ("payloads", "cost"):
        return made_up_numbers(name, done)
    settings = list(study_named(name).settings(ASKED))
    if name == "drafts":
        settings = [
            StudySetting(
                f"{draft}-{rtt}", f"{draft}, RTT {rtt} ms", ("ar", "sd", "fsd"), rtt, {"rtt_ms": rtt}
            )
            for draft in ("torch", "gguf")
            for rtt in (0, 40)
        ]
    records = [made_up_setting(one) for one in settings[:done]]
    records += [
        SettingRecord(folder=one.folder, label=one.label, x=one.x) for one in settings[len(records) :]
    ]
    return StudyResults(
        schema=1,
        name=name,
        settings=records,
        point=load_point(point)[1],
        config={
            "rtt_ms": RTT_MS,
            "draft_ms": DRAFT_MS,
            "verify_ms": VERIFY_MS,
            "gamma": 4,
            "max_new_tokens": 24,
        },
        machine={"processor": "made up"},
        drafts=made_up_drafts() if name == "drafts" and done != 0 else [],
        asked=len(settings),
        interrupted=done is not None,
        started_at="2026-01-02T03:04:05Z",
        wall_s=321.0,
    )


def made_up_numbers(name: str, done: int | None) -> StudyResults:
    """A study that needs no process."""
    row = PayloadRecord(
        scheme="dssd", sampling="full support", rounds=9, acceptance=0.7, up=18.0, down=600.0, rejected_down=900.0,
        rejected_p95=950.0, rejected_max=999, again=0.0, whole_rows=3,
    )  # fmt: skip
    return StudyResults(
        schema=1, name=name, settings=[], config={"gamma": 4}, machine={"processor": "made up"}, asked=1,
        payloads=[row] * (done != 0), interrupted=done is not None, started_at="2026-01-02T03:04:07Z",
    )  # fmt: skip


def made_up_drafts() -> list[DraftRecord]:
    """Two engines, one four times as quick as the other."""
    return [
        DraftRecord(
            label=f"{backend} draft", backend=backend, kind=kind, size_mb=size, threads=1, context=113,
            row_ms=[(rows, ms * (1 + rows / 8)) for rows in (1, 2, 4, 8, 16)],
            folders=[f"{backend}-0", f"{backend}-40"],
        )
        for backend, kind, size, ms in (("torch", "float32", 4.0, 1.2), ("gguf", "q8_0", 1.1, 0.3))
    ]  # fmt: skip


def made_up_setting(setting: StudySetting) -> SettingRecord:
    """One run of a study."""
    gamma = int(setting.changes.get("gamma", 4))
    rtt = float(setting.changes.get("rtt_ms", RTT_MS))
    times = {name: _token_ms(name, gamma, rtt) for name in setting.methods}
    rows = [_row(name, gamma, ms, times.get("ar")) for name, ms in times.items()]
    formulas = [
        FormulaRecord(
            method=name,
            formula="made up",
            gamma=gamma,
            tau=_tau(name, gamma),
            draft=gamma * DRAFT_MS,
            verify=VERIFY_MS,
            redrafted=_miss(name),
            sync=1.0,
            predicted_token=ms,
            measured_token=1.03 * ms,
        )
        for name, ms in times.items()
    ]
    return SettingRecord(
        folder=setting.folder, label=setting.label, x=setting.x, rows=rows, formulas=formulas
    )


def _tau(name: str, gamma: int) -> float:
    return latency.expected_tokens(ALPHA, gamma) if name not in ("ar",) else 1.0


def _miss(name: str) -> float:
    method = get_method(name)
    if not method.predrafts:
        return 1.0
    worst = {"priority": 0.0, "fifo": 0.05, "random": 0.03}[method.order]
    return (0.45 if method.overlap == "hints" else 0.2) + 0.5 / (1 + 0.4 * method.rows) + worst


def _token_ms(name: str, gamma: int, rtt: float) -> float:
    method, tau = get_method(name), _tau(name, gamma)
    if not method.drafts:
        return (gamma * DRAFT_MS + VERIFY_MS) / tau if method.cloud_drafts else VERIFY_MS
    return latency.fsd(1, tau, gamma, DRAFT_MS, VERIFY_MS, rtt / 2, _miss(name), 1.0)


def _row(name: str, gamma: int, ms: float, ar: float | None) -> BenchRow:
    drafts, prepares = get_method(name).drafts, get_method(name).predrafts
    return BenchRow(
        method=name,
        questions=2,
        tokens=48,
        tokens_per_s=1e3 / ms,
        speedup_vs_ar=ar / ms if ar else None,
        ttft_ms=900.0,
        tpot_ms=ms,
        tau=_tau(name, gamma),
        acceptance=0.5 if drafts else None,
        rounds=25,
        uplink_bytes_per_round=17.0,
        downlink_bytes_per_round=13.0,
        draft_forwards=100 if drafts else None,
        verify_forwards=25,
        identical_to_ar=True,
        overhead_over_floor=1.02,
        answers=2,
        predraft_hit_rate=1 - _miss(name) if prepares else None,
        miss_rate=_miss(name) if prepares else None,
        redrafted=_miss(name) if prepares else None,
        sync_ms=1.0 if prepares else None,
        hints_per_round=2.0 if prepares else None,
        whole=ALPHA**gamma if drafts else None,
        comm_ms=RTT_MS if drafts else None,
    )


class MadeUpRuns:
    """Bench runs that take no time. stop_after: runs before the user presses Ctrl-C; fail: say this instead."""

    def __init__(self, stop_after: int | None = None, fail: str = "") -> None:
        self.stop_after, self.fail = stop_after, fail
        self.configs: list[BenchConfig] = []

    def __call__(self, config: BenchConfig, view: BenchView | None = None) -> int:
        if len(self.configs) == self.stop_after:
            if self.fail:
                raise UsageError(self.fail)
            return 130
        self.configs.append(config)
        questions = load_questions(config.questions, config.limit)
        if view is not None:
            with view.answering(len(questions) * len(config.methods), len(questions)) as advance:
                for name in config.methods:
                    advance(questions[0], name)
        methods, _ = methods_of(config)
        setting = StudySetting("", "", methods, changes={"gamma": config.gamma, "rtt_ms": config.rtt_ms})
        asked = len(questions)
        rows = [msgspec.structs.replace(row, questions=asked) for row in made_up_setting(setting).rows]
        config.out.mkdir(parents=True, exist_ok=True)
        BenchResults(
            schema=1,
            config=settings_of(config, methods),
            machine={},
            rows=rows,
            asked=asked,
            started_at="2026-01-02T03:04:05Z",
            wall_s=2.0,
        ).save(config.out)
        return 0
