"""What the directory answers, in made-up time."""

from __future__ import annotations

import msgspec
import pytest

from specdec.link.directory_wire import NOBODY_READY, NOBODY_SAME, Ask, Nobody, Take
from specnav.fleet.identity import Identity
from specnav.fleet.register import (
    ACTIVE_S,
    MOST_EDGES,
    MOST_OF_OWNER,
    SETTLE_S,
    SILENT_S,
    Register,
    ReplicaReport,
)

ONE = Identity("m", "v", "e", "", "s", "")
OTHER = Identity("m2", "v", "e", "", "s", "")


def edge(number: int) -> bytes:
    return number.to_bytes(16, "big")


def ask(number: int, at: str = "", active: bool = True, **more: object) -> Ask:
    return Ask(1, 1, edge(number), at, active, **more)  # type: ignore[arg-type]


def report(number: int, generation: int = 1, identity: Identity = ONE, **changed: object) -> ReplicaReport:
    made = ReplicaReport(f"replica-{number}", number, generation, "node", f"tcp://r{number}:1", identity=identity)
    return msgspec.structs.replace(made, **changed)


def register(*reports: ReplicaReport) -> Register:
    made = Register(0.0)
    for one in reports:
        made.report(one, 0.0)
    return made


def taken(told: Take | Nobody) -> str:
    assert isinstance(told, Take), told
    return told.address


def test_edges_are_spread_and_stay_where_they_are():
    of = register(report(1), report(2))
    where = {number: taken(of.answer(edge(number), edge(number), ask(number), 0, 1.0)) for number in range(8)}
    assert sorted(where.values()) == ["tcp://r1:1"] * 4 + ["tcp://r2:1"] * 4
    for number, address in where.items():
        assert taken(of.answer(edge(number), edge(number), ask(number, at=address), 0, 2.0)) == address
    assert of.moves == 0 and of.active(2.0) == 8


def test_a_new_replica_takes_over_edges_as_they_ask_again():
    of = register(report(1))
    for number in range(9):
        of.answer(edge(number), edge(number), ask(number), 0, 1.0)
    of.report(report(2), 1.0)
    again = [taken(of.answer(edge(number), edge(number), ask(number, at="tcp://r1:1"), 0, 2.0)) for number in range(9)]
    assert 3 <= again.count("tcp://r2:1") <= 4 and of.moves == again.count("tcp://r2:1")


def test_an_answer_that_is_over_counts_no_more_nor_one_of_an_edge_that_is_gone():
    of = register(report(1))
    of.answer(edge(1), edge(1), ask(1), 0, 1.0)
    of.answer(edge(2), edge(2), ask(2), 0, 1.0)
    of.rest(edge(1))
    assert of.active(2.0) == 1
    assert of.active(1.0 + ACTIVE_S + 0.1) == 0


def test_robots_do_not_count_those_that_come_behind_them():
    """Three of class batch on one replica, one robot on the other: a robot goes to the three, a batch edge does not."""
    of = register(report(1), report(2))
    for number in range(3):
        of.answer(edge(number), edge(number), ask(number, avoid=["tcp://r2:1"]), 2, 1.0)
    of.answer(edge(9), edge(9), ask(9, avoid=["tcp://r1:1"]), 0, 1.0)
    assert taken(of.answer(edge(10), edge(10), ask(10), 0, 1.0)) == "tcp://r1:1"
    of.rest(edge(10))
    assert taken(of.answer(edge(11), edge(11), ask(11), 2, 1.0)) == "tcp://r2:1"


def test_edges_with_one_prompt_come_together():
    of = register(report(1), report(2))
    mark = b"prompt-1"
    first = taken(of.answer(edge(1), edge(1), ask(1, marks=[mark]), 0, 1.0))
    assert taken(of.answer(edge(2), edge(2), ask(2, marks=[mark]), 0, 1.0)) == first
    assert taken(of.answer(edge(3), edge(3), ask(3), 0, 1.0)) != first


@pytest.mark.parametrize(
    "gone", [{"draining": True}, {"address": ""}, {"identity": OTHER}], ids=["draining", "down", "another model"]
)
def test_a_replica_that_is_not_to_be_used_is_given_to_nobody(gone: dict[str, object]):
    of = register(report(1), report(2, **gone))
    assert {taken(of.answer(edge(n), edge(n), ask(n), 0, 1.0)) for n in range(5)} == {"tcp://r1:1"}


def test_a_replica_that_is_silent_is_given_to_nobody():
    of = register(report(1), report(2))
    of.report(report(1), SILENT_S)
    assert taken(of.answer(edge(1), edge(1), ask(1, at="tcp://r2:1"), 0, SILENT_S + 1)) == "tcp://r1:1"


def test_a_replica_of_another_model_is_left_out_and_said_to_be():
    of = register(report(1), report(2, identity=OTHER))
    assert of.state("replica-2", 0.0) == "left_out"
    assert of.left_out(report(2, identity=OTHER)) == "different model"
    keys = Identity("m", "v", "e", "", "s", "other key")
    assert of.left_out(report(3, identity=keys)) == "different server key"


def test_an_answer_goes_on_only_with_the_model_that_began_it():
    """In the middle of an upgrade to another model both serve: new answers get the new one, old ones keep theirs."""
    of = register(report(1), report(2, 2, OTHER))
    assert taken(of.answer(edge(1), edge(1), ask(1), 0, 1.0)) == "tcp://r2:1"
    assert taken(of.answer(edge(2), edge(2), ask(2, same=ONE.digest), 0, 1.0)) == "tcp://r1:1"
    of.forget("replica-1")
    told = of.answer(edge(2), edge(2), ask(2, same=ONE.digest), 0, 1.0)
    assert isinstance(told, Nobody) and told.code == NOBODY_SAME


def test_without_replicas_nobody_is_named_and_it_is_said():
    told = Register(0.0).answer(edge(1), edge(1), ask(1), 0, 1.0)
    assert isinstance(told, Nobody) and told.code == NOBODY_READY


def test_after_a_restart_edges_stay_where_they_are_until_all_have_reported():
    of = Register(10.0, {1: ONE})
    of.expect(2)
    of.report(report(1), 10.1)
    assert taken(of.answer(edge(1), edge(1), ask(1, at="tcp://r2:1"), 0, 10.2)) == "tcp://r2:1"
    # Not where it has just failed, and not for ever.
    failed = ask(2, at="tcp://r2:1", avoid=["tcp://r2:1"])
    assert taken(of.answer(edge(2), edge(2), failed, 0, 10.2)) == "tcp://r1:1"
    of.report(report(1), 10.0 + SETTLE_S)
    assert taken(of.answer(edge(3), edge(3), ask(3, at="tcp://r2:1"), 0, 10.1 + SETTLE_S)) == "tcp://r1:1"


def test_edges_without_end_fill_no_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("specnav.fleet.register.MOST_EDGES", 50)
    assert MOST_EDGES >= 10_000
    of = register(report(1))
    for number in range(200):
        of.answer(edge(number), edge(number), ask(number), 0, 1.0)
    assert of.edges == 50 and of.edges_of("replica-1", 1.0) == (50, 50)


def test_where_all_reports_are_late_edges_are_sent_to_verifiers_that_served_last():
    """On a starved machine reports come late while verifiers serve: nobody is left without one."""
    late = 1.0 + SILENT_S + 0.1
    of = register(report(1), report(2, identity=OTHER), report(3, address=""), report(4, draining=True))
    assert of.seen(late)[0].state == "starting"
    assert taken(of.answer(edge(1), edge(1), ask(1), 0, late)) == "tcp://r1:1"
    assert taken(of.answer(edge(2), edge(2), ask(2, avoid=["tcp://r1:1"]), 0, late)) == "tcp://r1:1"
    of.report(report(5), late)
    assert taken(of.answer(edge(3), edge(3), ask(3), 0, late)) == "tcp://r5:1"
    assert "tcp://r1:1" not in [taken(of.answer(edge(n), edge(n), ask(n), 0, late)) for n in range(10, 20)]


@pytest.mark.slow
def test_edges_that_one_key_invents_displace_its_own_only():
    of = register(report(1), report(2))
    for number in range(3):
        of.answer(b"robot\0" + edge(number), b"robot", ask(number), 0, 1.0)
    for number in range(20 * MOST_OF_OWNER):
        of.answer(b"greedy\0" + edge(number), b"greedy", ask(number), 2, 2.0)
    assert of.edges == 3 + MOST_OF_OWNER and of.active(2.0) == of.edges
    of.rest(b"robot\0" + edge(1))
    assert of.active(2.0) == of.edges - 1


def test_where_all_edges_are_too_many_the_one_goes_whose_owner_has_most(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("specnav.fleet.register.MOST_EDGES", 20)
    of = register(report(1))
    of.answer(edge(0), b"early", ask(0), 0, 1.0)
    for number in range(1, 100):
        of.answer(edge(number), b"one" if number % 10 else b"%d" % number, ask(number), 0, 2.0)
    of.rest(edge(0))
    assert of.edges == 20 and of.active(2.0) == 19, "the early one is still known"


def test_what_edges_claim_starts_no_replica_and_what_replicas_report_does():
    of = register(report(1), report(2))
    for number in range(100):
        of.answer(edge(number), edge(number), ask(number), 0, 1.0)
    assert of.active(1.0) == 100 and of.working(1.0) == 0
    of.report(report(1, working=5), 1.0)
    of.report(report(2, working=4), 1.0)
    assert of.working(1.0) == 9 and of.working(1.1 + SILENT_S) == 0


def test_marks_tell_nobody_what_another_key_asks_and_displace_its_own_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("specnav.fleet.register.MOST_MARKS_KEPT", 8)
    of, mark = register(report(1), report(2)), b"asked it"
    at = taken(of.answer(b"robot\0" + edge(1), b"robot", ask(1, marks=[mark], active=False), 0, 1.0))
    for number in range(2, 40):
        other = ask(number, marks=[b"%8d" % number], avoid=["tcp://r2:1"], active=False)
        of.answer(b"greedy\0" + edge(number), b"greedy", other, 0, 1.0)
    of.report(report(2), 1.0)
    same = of.answer(b"robot\0" + edge(2), b"robot", ask(2, marks=[mark], active=False), 0, 1.0)
    assert taken(same) == at
    less = next(one for one in ("tcp://r1:1", "tcp://r2:1") if one != at)
    of.answer(b"robot\0" + edge(3), b"robot", ask(3, avoid=[less]), 0, 1.0)  # busier now, within the slack
    assert taken(of.answer(b"other\0" + edge(4), b"other", ask(4, marks=[mark]), 0, 1.0)) == less
