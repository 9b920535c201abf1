"""What a verifier should give many clients, planned from one client and the measured cost of a shared forward."""

from __future__ import annotations

from specdec.methods import get_method
from specdec.row_ms import read_ms
from specnav.bench.capacity import Flow, rounds_a_second
from specnav.bench.core.clients import ClientsRow
from specnav.bench.studies.records import StudyResults
from specnav.bench.studies.serving.cells import Seen

FORWARD_ROWS = 256
"""Rows of a forward at most, where a study's settings do not say."""


def predicted(results: StudyResults, seen: Seen, rtt: float, name: str) -> dict[int, float]:
    """Tokens a second by number of clients, planned from the cell with one client and the curve; none without them.

    Interleaved groups are not in the formula.
    """
    by_count = seen.cells[rtt].get(name, {})
    one = by_count.get(1)
    if results.curve is None or one is None or one.groups > 1 or not one.row.rate:
        return {}
    flow = flow_of(results, one.row)
    return {
        n: rounds_a_second(n, flow).rate * one.row.tokens_a_round * seen.scale for n in by_count
    }


def flow_of(results: StudyResults, row: ClientsRow) -> Flow:
    """What a method's rounds ask of the verifier, from what one client measured; times as they were run.

    What the verifier does not do is thinking. Where the cloud goes on alone, all of a round is the verifier's.
    """
    curve = results.curve
    assert curve is not None
    whole = 1e3 * row.tokens_a_round / row.rate
    streams = get_method(row.method).cloud == "stream"
    server = whole if streams else min(whole, row.verify_ms)
    most = max(1.0, float(results.config.get("forward_rows") or FORWARD_ROWS) // row.rows)
    beyond = float(read_ms(str(results.config.get("verify_ms") or 0.0)))

    def forward_ms(sessions: float) -> float:
        return server + max(0.0, curve.latency_ms(sessions, row.rows) - max(beyond, curve.latency_ms(1, row.rows)))

    return Flow(0.0 if streams else whole - server, forward_ms, most)
