"""Payloads on a vocabulary of 150 000: the papers' promises, and what keeping them exact costs."""

from __future__ import annotations

import pytest

from specdec.sampling.recoveries import Recovery
from specnav.bench.runner.payloads import Scheme, payloads
from specnav.bench.studies.payloads import PayloadsAsked
from specnav.errors import UsageError

VOCAB = 150_000


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [0, 50], ids=["full support", "top-k 50"])
def test_an_exact_sparse_row_stays_under_800_bytes_and_never_needs_the_whole(top_k):
    found = {one.scheme: one for one in payloads(PayloadsAsked(VOCAB, rounds=16, gamma=4, seed=3, top_k=top_k))}
    sparse, row, thin = found["picospec, K = 64"], found["dssd"], found["dssd-thin"]
    assert 0.2 < sparse.acceptance < 0.9
    assert sparse.down <= 800 and sparse.rejected_down <= 800 and sparse.whole_rows == 0
    assert sparse.up <= 60 and thin.down < sparse.down
    assert row.rejected_down > 4 * VOCAB if top_k == 0 else row.rejected_down < 450


@pytest.mark.slow
def test_a_good_draft_asks_for_more_and_still_for_no_whole_row():
    """Where p and q nearly agree a rejection is rare, and then most samples fail."""
    near = PayloadsAsked(5000, rounds=150, noise=0.15)
    found = payloads(near, [Scheme("thin", Recovery.SAMPLES, 4), Scheme("sparse", Recovery.SPARSE, 16)])
    assert found[0].acceptance > 0.85 and found[0].again > 0.1
    assert all(one.whole_rows == 0 for one in found) and found[1].again < found[0].again


def test_the_same_rounds_for_every_scheme_and_every_run():
    asked = PayloadsAsked(500, rounds=10)
    assert payloads(asked) == payloads(asked)
    assert payloads(PayloadsAsked(500, rounds=10, seed=1)) != payloads(asked)


@pytest.mark.parametrize("absurd", [{"vocab": 1}, {"temperature": 0.0}, {"top_p": 0.0}, {"rounds": 0}, {"gamma": 0}])
def test_absurd_numbers_are_refused(absurd):
    with pytest.raises(UsageError, match=f"{next(iter(absurd))} must be"):
        PayloadsAsked(**absurd)
