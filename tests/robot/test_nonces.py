"""Who can prove a command: the sender of its session, once, in order; nobody who has only listened."""

import hashlib

import pytest

from spec_vlm_nav.common.nonces import LENGTH, MOST_MISSED, NOTHING, NonceChain, SessionProof
from spec_vlm_nav.motion.watchdogs import SESSIONS_KEPT, Supervision, SupervisionWatch
from spec_vlm_nav.ros.session import RESERVE, Session


def heard(chain):
    proof = SessionProof()
    proof.hear(chain.commitment)
    return proof


def test_each_command_is_proven_once_and_in_order():
    chain = NonceChain(length=10)
    proof = heard(chain)
    said = [chain.take() for _ in range(3)]
    assert [proof.objection(nonce) for nonce in said] == ["", "", ""]
    for nonce in said:
        assert "not the next" in proof.objection(nonce)


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
    assert proof.objection(last) == "" and proof.objection(made(last))
    assert proof.objection(chain.take()) == ""


def test_commands_may_be_lost_but_not_without_end():
    chain = NonceChain(length=200)
    proof = heard(chain)
    for _ in range(MOST_MISSED - 1):
        chain.take()
    assert proof.objection(chain.take()) == ""
    for _ in range(MOST_MISSED):
        chain.take()
    assert proof.objection(chain.take()) != ""


def test_a_session_without_a_commitment_or_with_two_proves_nothing():
    chain, other = NonceChain(length=10), NonceChain(length=10)
    assert "has not said" in SessionProof().objection(chain.take())
    proof = heard(chain)
    proof.hear(NOTHING)
    assert proof.objection(chain.take()) == ""
    proof.hear(chain.commitment)  # the same chain, later
    assert proof.objection(chain.take()) == ""
    proof.hear(other.commitment)
    assert "two senders" in proof.objection(chain.take()) and "two senders" in proof.objection(other.take())


def test_a_commitment_heard_before_the_command_it_belongs_to_does_not_use_it_up():
    chain = NonceChain(length=10)
    proof = heard(chain)
    nonce = chain.take()
    proof.hear(chain.commitment)
    assert proof.objection(nonce) == ""


def test_a_chain_that_is_used_up_proves_nothing_and_a_session_changes_before():
    chain = NonceChain(length=2)
    assert [chain.take(), chain.take()] and chain.take() == NOTHING and chain.left == 0
    assert heard(chain).objection(NOTHING)
    assert not Session().is_nearly_used_up and RESERVE < LENGTH


def test_made_up_sessions_drive_out_none_that_is_known():
    watch, chain = SupervisionWatch(), NonceChain(length=10)
    watch.tell(Supervision(1, commitment=chain.commitment), 0.0)
    watch.in_charge = 1
    for number in range(2, 100):
        watch.tell(Supervision(number, commitment=bytes([number]) * 32), 0.1)
    watch.tell(Supervision(1, commitment=bytes(32)), 0.2)
    assert watch.unproven(1, chain.take()) == "" and len(watch._sessions) <= SESSIONS_KEPT
    assert watch.unproven(99, chain.take()) == "from a session never heard of"
