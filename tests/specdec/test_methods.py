"""Methods by name: every axis can be set by itself, and what does not go together is refused with the choices."""

from __future__ import annotations

import pytest

from specdec.draft import TreeSize
from specdec.edge.protocol import Opening
from specdec.errors import OptionsError
from specdec.link.wire import MAX_HINTS, PROTOCOL_VERSION, Welcome, decode_up, encode
from specdec.methods import METHODS, get_method, with_axes
from specdec.models.prompt import Prompt
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery


def test_every_published_method_is_there() -> None:
    published = ["ar", "cloud-sd", "split", "sd", "dsd", "dssd", "picospec", "specedge"]
    assert set(published) <= set(METHODS)
    assert [name for name in METHODS if METHODS[name].lossy] == ["picospec-lossy"]
    assert all(get_method(name) is METHODS[name] for name in METHODS)


def test_each_axis_changes_that_axis_alone() -> None:
    plain = METHODS["sd"]
    for name, field, value in [
        ("sd+tree:8x3", "tree", TreeSize(8, 3)),
        ("sd+overlap:continue", "overlap", "continue"),
        ("sd+length:online", "length", "online"),
        ("sd+resample:cloud", "recovery", Recovery.CLOUD),
    ]:
        method = get_method(name)
        changed = {key for key in vars(plain) if getattr(method, key) != getattr(plain, key)}
        assert changed == {"name", field}, name
        assert getattr(method, field) == value
    assert get_method("sd+overlap:stream").in_flight > 1
    assert get_method("picospec+overlap:idle+leave:whole").in_flight == 1
    assert get_method("split+layers:3").front_layers == 3
    assert get_method("specedge+tree:64x9").tree == TreeSize(64, 9)


@pytest.mark.parametrize(
    ("payload", "name", "recovery", "size"),
    [
        ("ids", "dssd+payload:ids", Recovery.NOISE, 0),
        ("scalars", "sd+payload:scalars", Recovery.ROW, 0),
        ("rows", "sd+payload:rows", Recovery.CLOUD, 0),
        ("scalars", "dssd-thin+payload:scalars", Recovery.SAMPLES, 16),
        ("scalars", "sd+resample:sparse:7", Recovery.SPARSE, 7),
        ("scalars", "picospec+resample:samples", Recovery.SAMPLES, 16),
        ("scalars", "picospec+resample:truncated:9", Recovery.TRUNCATED, 9),
        ("ids", "dsd+resample:noise", Recovery.NOISE, 0),
    ],
)
def test_what_goes_up_and_who_resamples_agree(payload: str, name: str, recovery: Recovery, size: int) -> None:
    method = get_method(name)
    assert (method.recovery, method.recovery_size) == (recovery, size)
    assert get_method(f"{name}+payload:{payload}").recovery is recovery


def test_axes_are_added_to_methods_that_draft_and_lack_them() -> None:
    assert with_axes("sd", length="online") == "sd+length:online"
    assert with_axes("sd+length:latency", length="online") == "sd+length:latency"
    assert with_axes("ar", length="online", payload="rows") == "ar"
    assert with_axes("split", resample="row") == "split"
    assert with_axes("dssd", resample="sparse:32", length="fixed") == "dssd+resample:sparse:32+length:fixed"
    with pytest.raises(OptionsError, match="length 'long' is unknown: choose one of fixed"):
        with_axes("sd", length="long")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "choose one of ar, cloud-sd"),
        ("sd+speed:9", "choose one of tree, overlap"),
        ("ar+tree:8x2", "has no axis 'tree'"),
        ("sd+layers:2", "has no axis 'layers'"),
        ("split+tree:8x2", "has no axis 'tree'"),
        ("split+layers:0", "give how many layers"),
        ("sd+payload:all", "choose one of ids"),
        ("sd+resample:row:5", "take a size"),
        ("sd+resample:sparse:0", "take a size"),
        ("sd+resample:guess", "choose one of noise"),
        ("sd+leave:never", "choose whole, tokens or plan"),
        ("dssd+tree:8x2", "token trees require shared noise"),
        ("specedge+overlap:stream", "sent whole"),
    ],
)
def test_wrong_names_are_refused_with_what_there_is(name: str, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        get_method(name)


@pytest.mark.parametrize(
    "name", ["sd+length:marginal", "fsd+overlap:idle+length:marginal", "specedge+length:marginal"]
)
def test_marginal_needs_a_drafter_that_prepares_for_verdicts(name: str) -> None:
    with pytest.raises(OptionsError, match="length:marginal requires"):
        get_method(name)
    assert get_method("fsd+length:marginal").length == "marginal"


def test_a_length_of_before_is_known_by_its_new_name() -> None:
    assert get_method("fsd+length:earning").length == "marginal"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fsd+rows:65", "0 to 64"),
        ("fsd+rows:many", "0 to 64"),
        ("fsd+queues:lifo/fifo", "priority, fifo, random"),
        ("fsd+resample:row", "shared noise"),
        ("fsd+leave:tokens", "whole drafts"),
    ],
)
def test_axes_of_preparing_are_checked(name: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        get_method(name)


@pytest.mark.parametrize("rows", [0, 6, 64])
def test_as_many_rows_as_the_axis_allows_open_a_session(rows: int) -> None:
    """Each has a use for two hints, and a session for fewer than that."""
    welcome = Welcome(PROTOCOL_VERSION, "made up", 9, b"", exits=[0])
    opening = Opening(Prompt((1,)), GenerationOptions(), welcome, get_method(f"fsd+rows:{rows}"), gamma=4)
    message = opening.message(1, (), pending=False, hints_pay=True)
    assert decode_up(encode(message)) == message
    assert message.hints == min(2 * rows, MAX_HINTS)
