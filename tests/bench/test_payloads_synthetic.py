"""Payloads on a vocabulary of 150 000: the papers' promises, and what keeping them exact costs."""

from __future__ import annotations

import pytest

from specdec.sampling.recoveries import Recovery
from specnav.bench.runner.payloads import SCHEMES, RowShape, Scheme, payloads
from specnav.results.errors import EvaluationError

VOCAB = 150_000


def by_name(shape: RowShape, rounds: int = 16) -> dict[str, object]:
    return {one.scheme: one for one in payloads(shape, SCHEMES, rounds, gamma=4, seed=3)}


@pytest.mark.parametrize(
    "shape", [RowShape(VOCAB), RowShape(VOCAB, top_k=50)], ids=["full support", "top-k 50"]
)
def test_an_exact_sparse_row_stays_under_800_bytes_and_never_needs_the_whole(shape):
    found = by_name(shape)
    sparse, row, thin = found["picospec, K = 64"], found["dssd"], found["dssd-thin"]
    assert 0.2 < sparse.acceptance < 0.9
    assert sparse.down <= 800 and sparse.rejected_down <= 800 and sparse.whole_rows == 0
    assert sparse.up <= 60 and thin.down < sparse.down
    assert row.rejected_down > 4 * VOCAB if shape.top_k == 0 else row.rejected_down < 450


def test_a_good_draft_asks_for_more_and_still_for_no_whole_row():
    """Where p and q nearly agree a rejection is rare, and then most samples fail."""
    near = RowShape(5000, noise=0.15)
    found = payloads(near, [Scheme("thin", Recovery.SAMPLES, 4), Scheme("sparse", Recovery.SPARSE, 16)], 150)
    assert found[0].acceptance > 0.85 and found[0].again > 0.1
    assert all(one.whole_rows == 0 for one in found) and found[1].again < found[0].again


def test_the_same_rounds_for_every_scheme_and_every_run():
    shape = RowShape(500)
    assert payloads(shape, rounds=10) == payloads(shape, rounds=10)
    assert payloads(shape, rounds=10, seed=1) != payloads(shape, rounds=10)


def test_absurd_shapes_are_refused():
    for shape in (RowShape(1), RowShape(50, temperature=0.0), RowShape(50, top_p=0.0)):
        with pytest.raises(EvaluationError):
            payloads(shape, rounds=1)
    with pytest.raises(EvaluationError, match="rounds"):
        payloads(RowShape(50), rounds=0)
