# SPDX-License-Identifier: Apache-2.0
"""Scores of repeated decisions: agreement, confusion, stops, latency, traffic, identical tokens.

Pure functions over records; figures that were not measured are None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from specnav.bags.contents import NO_ACTION
from specnav.bags.records import DecisionRecord, Pairing, ReplayRow, RunComparison
from specnav.results.demo import mean, percentile
from specnav.results.errors import EvaluationError

STOP = "stop"
AR = "ar"
MOST_CHANGES = 200


def confusion_of(decisions: Sequence[DecisionRecord], actions: Sequence[str]) -> list[list[int]]:
    """Counts of scored decisions: a row for every reference action, a column for every decided one."""
    place = {name: index for index, name in enumerate(actions)}
    table = [[0] * len(actions) for _ in actions]
    for one in decisions:
        if one.scored and one.reference in place and one.action in place:
            table[place[one.reference]][place[one.action]] += 1
    return table


def share(part: int, whole: int) -> float | None:
    """part / whole, or None if whole is 0."""
    return part / whole if whole else None


def make_row(
    method: str,
    decisions: Sequence[DecisionRecord],
    actions: Sequence[str],
    beside: Mapping[int, DecisionRecord] | None = None,
    beside_name: str = "",
    skipped: int = 0,
) -> ReplayRow:
    """The figures of one method. beside: decisions of beside_name by frame stamp, whose token ids these should
    equal.
    """
    done = [one for one in decisions if not one.error]
    scored = [one for one in done if one.scored]
    agreed = sum(one.action == one.reference for one in scored)
    said = [one for one in scored if one.action == STOP]
    wanted = [one for one in scored if one.reference == STOP]
    right = sum(one.reference == STOP for one in said)
    decision_ms = [one.decision_ms for one in done if one.decision_ms is not None]
    age_ms = [one.age_ms for one in done if one.age_ms is not None]
    gained = [n for one in done for n in one.gained]
    drafted = sum(sum(one.drafted) for one in done)
    total_ms = [one.total_ms for one in done]
    compared = [(one, beside[one.stamp_ns]) for one in done if beside and one.stamp_ns in beside]
    different = sum(one.ids != other.ids for one, other in compared)
    return ReplayRow(
        method=method,
        decisions=len(done),
        scored=len(scored),
        agreed=agreed,
        agreement=share(agreed, len(scored)),
        parse_failures=sum(one.action == NO_ACTION for one in done),
        failures=len(decisions) - len(done),
        decision_ms_p50=percentile(decision_ms, 50),
        decision_ms_p95=percentile(decision_ms, 95),
        decision_ms_p99=percentile(decision_ms, 99),
        total_ms_p50=percentile(total_ms, 50),
        ttft_ms_p50=percentile([one.ttft_ms for one in done], 50),
        frames_per_s=1e3 * len(done) / sum(total_ms) if sum(total_ms) else None,
        tokens=sum(len(one.ids) for one in done),
        tau=sum(gained) / len(gained) if drafted else None,
        acceptance=share(sum(sum(one.accepted) for one in done), drafted),
        rounds=len(gained),
        uplink_bytes=sum(sum(one.uplink_bytes) for one in done),
        downlink_bytes=sum(sum(one.downlink_bytes) for one in done),
        prompt_bytes=sum(one.prompt_bytes for one in done),
        stops_said=len(said),
        stops_in_reference=len(wanted),
        stop_precision=share(right, len(said)),
        stop_recall=share(right, len(wanted)),
        confusion=confusion_of(decisions, actions),
        identical_to=beside_name if compared else "",
        identical=not different if compared else None,
        different_answers=different,
        compared_answers=len(compared),
        age_ms_p50=percentile(age_ms, 50),
        age_ms_p95=percentile(age_ms, 95),
        skipped=skipped,
        joules_per_decision=mean([one.joules for one in done if one.joules is not None]),
    )


def make_rows(
    decisions: Sequence[DecisionRecord],
    methods: Sequence[str],
    actions: Sequence[str],
    skipped: Mapping[str, int] | None = None,
    comparable: Collection[str] | None = None,
) -> list[ReplayRow]:
    """A row for every method with decisions. Token ids are compared with those of `ar`, otherwise of the first method.

    comparable: methods whose ids must be equal, None: all. Above temperature 0 rejection samplers draw other tokens.
    """
    by_method = {name: [one for one in decisions if one.method == name] for name in methods}
    present = [name for name in methods if by_method[name]]
    alike = [name for name in present if comparable is None or name in comparable]
    base = AR if AR in alike else alike[0] if alike else ""
    beside = {one.stamp_ns: one for one in by_method.get(base, []) if not one.error}
    return [
        make_row(
            name,
            by_method[name],
            actions,
            beside if name != base and name in alike else None,
            base,
            (skipped or {}).get(name, 0),
        )
        for name in present
    ]


def all_identical(rows: Sequence[ReplayRow]) -> bool | None:
    """Whether every method produced the tokens of the one it is compared with; None if nothing was compared."""
    said = [row.identical for row in rows if row.identical is not None]
    return all(said) if said else None


def compare_runs(here: Sequence[DecisionRecord], there: Sequence[DecisionRecord], name: str) -> RunComparison:
    """Compare this run's decisions with an earlier run's, by frame stamp and method.

    Methods of the same name are paired; if there are none, the first methods of the two runs. Raises EvaluationError if
    the runs have no frame in common.
    """
    ours, theirs = (_by_method(records) for records in (here, there))
    pairs = [(method, method) for method in ours if method in theirs]
    if not pairs and ours and theirs:
        pairs = [(next(iter(ours)), next(iter(theirs)))]
    frames_here, frames_there = (
        {one.stamp_ns for one in records if not one.error} for records in (here, there)
    )
    if not frames_here & frames_there:
        raise EvaluationError(f"no frame of this bag was decided in {name}: is it a replay of another bag?")
    return RunComparison(
        run=name,
        pairs=[_pair(a, b, ours[a], theirs[b]) for a, b in pairs],
        only_here=len(frames_here - frames_there),
        only_there=len(frames_there - frames_here),
    )


def _by_method(records: Sequence[DecisionRecord]) -> dict[str, dict[int, DecisionRecord]]:
    found: dict[str, dict[int, DecisionRecord]] = {}
    for one in records:
        if not one.error:
            found.setdefault(one.method, {})[one.stamp_ns] = one
    return found


def _pair(
    method: str, earlier: str, here: Mapping[int, DecisionRecord], there: Mapping[int, DecisionRecord]
) -> Pairing:
    common = [(here[stamp], there[stamp]) for stamp in here if stamp in there]
    changed = [
        (one.stamp_ns, one.action, other.action, one.reference)
        for one, other in common
        if one.action != other.action
    ]

    def times(side: int) -> list[float]:
        return [ms for pair in common if (ms := pair[side].decision_ms) is not None]

    def agreement(side: int) -> float | None:
        # Both are scored against this run's references.
        scored = [pair for pair in common if pair[0].reference]
        return share(sum(pair[side].action == pair[0].reference for pair in scored), len(scored))

    return Pairing(
        method=method,
        earlier_method=earlier,
        frames=len(common),
        same_action=len(common) - len(changed),
        same_tokens=sum(one.ids == other.ids for one, other in common),
        agreement=agreement(0),
        earlier_agreement=agreement(1),
        decision_ms_p50=percentile(times(0), 50),
        earlier_decision_ms_p50=percentile(times(1), 50),
        decision_ms_p95=percentile(times(0), 95),
        earlier_decision_ms_p95=percentile(times(1), 95),
        changed=changed[:MOST_CHANGES],
    )
