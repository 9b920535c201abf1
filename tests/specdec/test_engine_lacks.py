"""A verifier's engine may do less than ours: named methods are refused in a line, `auto` plans with the rest."""

import pytest

from specdec.edge.controller import Controller
from specdec.edge.protocol import check_method
from specdec.errors import OptionsError
from specdec.estimates.measured import Measured
from specdec.link.wire import PROTOCOL_VERSION, Welcome
from specdec.methods import get_method
from specdec.options import GenerationOptions

ALL = ["trees", "split", "sampled", "several", "grammars"]
WARM = GenerationOptions(8, temperature=0.8)


@pytest.mark.parametrize(
    ("method", "word"),
    [
        ("sd+tree:8x3", "trees"),
        ("specedge", "trees"),
        ("split", "split"),
        ("dssd", "sampled"),
        ("picospec", "several"),
        ("sd+leave:tokens", "several"),
    ],
)
def test_a_named_method_is_refused_where_the_engine_lacks_what_it_needs(method: str, word: str) -> None:
    asked = get_method(method)
    with pytest.raises(OptionsError, match="the engine of this verifier") as raised:
        check_method(Welcome(PROTOCOL_VERSION, lacks=[word]), asked, WARM)
    assert "\n" not in str(raised.value) and method in str(raised.value)
    check_method(Welcome(PROTOCOL_VERSION), asked, WARM)


def test_what_needs_nothing_special_goes_with_any_engine() -> None:
    for method in ("ar", "sd", "fsd", "auto"):
        check_method(Welcome(PROTOCOL_VERSION, lacks=ALL), get_method(method), WARM)
    check_method(Welcome(PROTOCOL_VERSION, lacks=["sampled"]), get_method("dssd"), GenerationOptions(8))
    check_method(Welcome(PROTOCOL_VERSION, lacks=["of the future"]), get_method("specedge"), WARM)


def test_a_grammar_is_refused_where_the_engine_follows_none() -> None:
    with pytest.raises(OptionsError, match="follows no grammars"):
        check_method(
            Welcome(PROTOCOL_VERSION, lacks=ALL), get_method("ar"), GenerationOptions(8, grammar="start: /a/")
        )


def test_auto_plans_with_what_there_is() -> None:
    measured = Measured()
    measured.chain.drafts = measured.tree.drafts = 100
    measured.drafted(0.01)
    controller = Controller(measured, 4)
    assert {"chain", "stream", "tree"} <= {plan.mode for plan in controller._plans(0.1)}
    controller.told(Welcome(PROTOCOL_VERSION, lacks=["trees", "several"]))
    assert {plan.mode for plan in controller._plans(0.1)} == {"alone", "chain"}
    controller.told(Welcome(PROTOCOL_VERSION, drafts=True))
    assert {"cloud-sd", "tree", "stream"} <= {plan.mode for plan in controller._plans(0.1)}
