"""Who can prove a command: the sender of its session, once, in order; nothing that has only listened."""

import hashlib
import time

import pytest

from spec_vlm_nav.common.nonces import LENGTH, NOTHING, SHORT_WALK, WALK_EVERY_S, NonceChain, SessionProof
from spec_vlm_nav.motion.watchdogs import SESSIONS_KEPT, Supervision, SupervisionWatch
from spec_vlm_nav.ros.session import RESERVE, CommandSession


def heard(chain):
    proof = SessionProof()
    proof.hear(chain.commitment, 0.0)
    return proof


def test_each_command_is_proven_once_and_in_order():
    chain = NonceChain(length=10)
    proof = heard(chain)
    said = [chain.take() for _ in range(3)]
    assert [proof.objection(nonce, 0.0) for nonce in said] == ["", "", ""]
    for nonce in said:
        assert "not the next" in proof.objection(nonce, 0.0)


@pytest.mark.parametrize(
    "made",
    [
        lambda nonce: NOTHING,
        lambda nonce: nonce,
        lambda nonce: hashlib.sha256(nonce).digest(),
        bytes.swapcase,
    ],
)
def test_what_can_be_made_from_what_was_said_proves_nothing(made):
    chain = NonceChain(length=10)
    proof = heard(chain)
    last = chain.take()
    assert proof.objection(last, 0.0) == "" and proof.objection(made(last), 0.0)
    assert proof.objection(chain.take(), 0.0) == ""


def test_all_but_the_last_commands_of_a_chain_may_be_lost():
    chain = NonceChain()
    proof = heard(chain)
    for _ in range(LENGTH - SHORT_WALK):
        early = chain.take()
    assert proof.objection(chain.take(), 0.0) == ""
    assert "not the next" in proof.objection(early, 0.0) and "not the next" in proof.objection(early, 9.0)
    assert proof.objection(chain.take(), 0.0) == ""


def test_signs_of_life_and_commands_of_a_flood_may_overtake_each_other():
    chain = NonceChain()
    proof = heard(chain)
    before = chain.commitment
    commands = [chain.take() for _ in range(10 * SHORT_WALK)]
    proof.hear(chain.commitment, 0.0)
    assert [proof.objection(nonce, 0.0) for nonce in commands[3::100]] == [""] * len(commands[3::100])
    proof.hear(before, 0.1)
    assert proof.objection(chain.take(), 0.1) == ""


@pytest.mark.realtime
def test_a_forger_buys_one_long_walk_a_second_and_no_dispute_before_it_is_certain():
    chain = NonceChain()
    proof = heard(chain)
    assert "not the next" in proof.objection(b"f" * 32, 0.0)  # a long walk
    began = time.perf_counter()
    for number in range(200):
        assert "not the next" in proof.objection(number.to_bytes(32, "big"), 0.1)
        proof.hear((number + 1).to_bytes(32, "big"), 0.1)
    assert time.perf_counter() - began < 1.0  # 400 walks to the end take seconds
    assert proof.objection(chain.take(), 0.1) == ""
    proof.hear(b"f" * 32, WALK_EVERY_S)
    assert "two senders" in proof.objection(chain.take(), WALK_EVERY_S)


def test_a_session_without_a_commitment_or_with_two_proves_nothing():
    chain, other = NonceChain(length=10), NonceChain(length=10)
    assert "no commitment" in SessionProof().objection(chain.take(), 0.0)
    proof = heard(chain)
    proof.hear(NOTHING, 0.0)
    assert proof.objection(chain.take(), 0.0) == ""
    proof.hear(chain.commitment, 0.0)  # the same chain, later
    assert proof.objection(chain.take(), 0.0) == ""
    proof.hear(other.commitment, 0.0)
    assert "two senders" in proof.objection(chain.take(), 0.0) and "two senders" in proof.objection(other.take(), 0.0)


def test_a_commitment_heard_before_the_command_it_belongs_to_does_not_use_it_up():
    chain = NonceChain(length=10)
    proof = heard(chain)
    nonce = chain.take()
    proof.hear(chain.commitment, 0.0)
    assert proof.objection(nonce, 0.0) == ""


def test_a_chain_that_is_used_up_proves_nothing_and_a_session_changes_before():
    chain = NonceChain(length=2)
    assert [chain.take(), chain.take()] and chain.take() == NOTHING and chain.left == 0
    assert heard(chain).objection(NOTHING, 0.0)
    assert not CommandSession().is_nearly_used_up and RESERVE < LENGTH


def test_made_up_sessions_drive_out_none_that_is_known():
    watch, chain = SupervisionWatch(), NonceChain(length=10)
    watch.tell(Supervision(1, commitment=chain.commitment), 0.0)
    watch.in_charge = 1
    for number in range(2, 100):
        watch.tell(Supervision(number, commitment=bytes([number]) * 32), 0.1)
    watch.tell(Supervision(1, commitment=bytes(32)), 0.2)
    assert watch.unproven(1, chain.take(), 0.2) == "" and len(watch._sessions) <= SESSIONS_KEPT
    assert watch.unproven(99, chain.take(), 0.2) == "from an unknown session"
