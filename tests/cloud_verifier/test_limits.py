"""What bounds a client is made of, each alone and in made-up time."""

from __future__ import annotations

from datetime import datetime, timezone
from io import StringIO

import msgspec
import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import (
    Ledger,
    Limits,
    TokenBucket,
    labour_of,
    units_of,
    vain_labour_of,
    weight_of,
)
from cloud_verifier.logs import EventLog
from cloud_verifier.net.clients import MOST_CLIENTS, ClientGone, Clients, Outbox, SessionTable
from cloud_verifier.observing.counts import SessionUse
from cloud_verifier.security.records import ClientKey, Quota
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.options import GenerationOptions
from tests.helpers.waiting import Clock


class TestLimits:
    def test_the_defaults_of_the_settings_are_those_of_the_bounds(self) -> None:
        assert ServerConfig("model").limits == Limits()

    @pytest.mark.parametrize(
        "settings",
        [{"max_draft_nodes": 0}, {"max_queued_mb": -1}, {"max_images": 65}, {"max_messages_per_s": "many"}],
    )
    def test_bad_bounds_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(VerifierError, match=next(iter(settings))):
            ServerConfig("model", **settings)  # type: ignore[arg-type]


class TestTokenBucket:
    def test_lets_a_burst_through_and_then_so_much_a_second(self) -> None:
        clock = Clock()
        bucket = TokenBucket(10, 20, clock)
        assert [bucket.take() for _ in range(21)] == [True] * 20 + [False]
        clock.now = 0.55
        assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
        clock.now = 1000.0
        assert sum(bucket.take() for _ in range(100)) == 20

    def test_what_is_larger_than_the_burst_passes_where_all_of_it_is_there(self) -> None:
        clock = Clock()
        bucket = TokenBucket(10, 20, clock)
        assert bucket.take(500) and not bucket.take()
        clock.now = 1.0
        assert not bucket.take(500)

    def test_what_passed_on_credit_is_paid_before_anything_else_passes(self) -> None:
        clock = Clock()
        bucket = TokenBucket(10, 20, clock)
        bucket.owe(25)
        clock.now += 0.5
        assert not bucket.take()
        clock.now += 0.15
        assert bucket.take() and not bucket.take()
        bucket.owe(1000)
        clock.now += 2.15
        assert bucket.take(), "nobody owes more than a burst"

    def test_what_takes_long_to_look_at_counts_for_more(self) -> None:
        ids = wire.Open(1, False, sampling_to_wire(GenerationOptions()), [1] * 3000, history=[1] * 500)
        assert labour_of(ids) == 3 and vain_labour_of(100_000) == 100
        assert labour_of(msgspec.structs.replace(ids, images=[b""] * 40)) == 43
        assert labour_of(wire.Ping(1)) == 0 and labour_of(wire.DraftUp(1, 1, 0, [1] * 4096)) == 4

    def test_long_messages_count_for_more(self) -> None:
        assert [units_of(size) for size in (0, 40, 65_536, 16 << 20)] == [1, 1, 2, 257]


class TestLedger:
    def test_counts_each_client_and_all_together(self) -> None:
        ledger, limits = Ledger(1000), Limits(queued_bytes=1024, queued_forwards=2)
        assert ledger.charge(b"a", 600, limits) == ""
        assert "600" not in ledger.charge(b"b", 300, limits)
        assert "all clients" in ledger.charge(b"b", 300, limits)
        assert ledger.charge(b"b", 50, limits) == ""
        assert "2 are allowed" in ledger.charge(b"b", 1, limits)
        for client, weight in ((b"a", 600), (b"b", 300), (b"b", 50), (b"c", 7)):
            ledger.give_back(client, weight)
        assert ledger.queued_bytes == 0 and ledger.account(b"a").queued_forwards == 0

    def test_a_single_message_may_always_wait(self) -> None:
        ledger, limits = Ledger(1000), Limits(queued_bytes=1024)
        assert ledger.charge(b"a", 5000, limits) == ""
        assert ledger.charge(b"a", 5000, limits) and ledger.charge(b"b", 1, limits)

    def test_messages_weigh_what_they_take_once_decoded(self) -> None:
        sampling = sampling_to_wire(GenerationOptions(4))
        assert weight_of(wire.Open(1, False, sampling, [1] * 1000, [b"x" * 5000], [2] * 1000)) > 80_000 + 5000
        assert weight_of(wire.SampledUp(1, 1, 0, [1], b"q" * 5000)) > 5000
        assert weight_of(wire.HiddenUp(1, 1, b"h" * 5000)) > 5000
        assert weight_of(wire.AloneUp(1, 1)) < 1000 < weight_of(wire.DraftUp(1, 1, 0, [1] * 100))


def key_of(name: str, **quota: float) -> ClientKey:
    return ClientKey(name, "p" * 40, datetime(2026, 1, 1, tzinfo=timezone.utc), quota=Quota(**quota))


class TestClients:
    def test_all_connections_of_a_key_have_what_one_may_have(self) -> None:
        clients = Clients(Limits(), 60, Clock())
        robot = key_of("robot", messages_per_s=5)
        first, second, other = (clients.heard_of(identity) for identity in (b"1", b"2", b"3"))
        clients.know(b"1", robot)
        clients.know(b"2", robot)
        clients.know(b"3", key_of("other", messages_per_s=5))
        assert first.owner == second.owner != other.owner
        assert sum(client.bucket.take() for client in (first, second) * 20) == 10 and other.bucket.take()
        table, use = SessionTable(10, 60), SessionUse("", EventLog(StringIO()))
        for identity in (b"1", b"2"):
            table.add((identity, 1), clients.heard_of(identity).owner, use)
        table.add((b"1", 1), first.owner, use)  # opened again
        assert table.owned_by(b"robot") == 2
        table.remove((b"1", 1))
        assert table.owned_by(b"robot") == 1 and table.owned_by(b"other") == 0

    def test_another_quota_in_the_file_holds_from_the_next_message_on(self) -> None:
        clients = Clients(Limits(), 60, Clock())
        clients.know(b"1", key_of("robot", sessions=3))
        clients.know(b"1", key_of("robot", sessions=5))
        assert clients.limits_of(b"1").sessions == 5

    def test_a_client_keeps_its_bounds_when_it_comes_again(self) -> None:
        clock = Clock()
        clients = Clients(Limits(messages_per_s=10, burst=10), 60, clock)
        first = clients.heard_of(b"a")
        clients.know(b"a", key_of("robot", sessions=1))
        clients.know(b"b", key_of("robot", sessions=1))
        while first.bucket.take():
            pass
        clients.heard_of(b"b")
        assert clients.resume(b"b", first.token) == b"a"
        assert clients.limits_of(b"b").sessions == 1 and clients.limits_of(b"a").sessions == 8
        assert not clients.heard_of(b"b").bucket.take(), "coming again is not a new burst"
        assert clients.resume(b"b", first.token) is None and clients.resume(b"c", b"?" * 16) is None
        assert len(clients) == 1

    def test_who_has_no_sessions_and_is_silent_is_forgotten(self) -> None:
        clock = Clock()
        clients = Clients(Limits(), 60, clock)
        silent, open_, talking = (clients.heard_of(name) for name in (b"silent", b"open", b"talking"))
        clock.now = 61.0
        clients.heard_of(b"talking")
        clients.expire(lambda identity: identity == b"open")
        assert len(clients) == 2 and clients.resume(b"x", silent.token) is None
        assert (
            clients.resume(b"x", open_.token) == b"open" and clients.resume(b"y", talking.token) == b"talking"
        )

    def test_new_identities_without_end_fill_no_memory(self) -> None:
        clients = Clients(Limits(), 60, Clock())
        for number in range(MOST_CLIENTS + 500):
            clients.heard_of(b"%d" % number)
            clients.expire(lambda identity: False)
        assert len(clients) == MOST_CLIENTS


class TestOutbox:
    def setup_method(self) -> None:
        self.clock, self.room, self.sent = Clock(), 0, list[bytes]()
        self.told: list[tuple[bytes, bool]] = []
        self.outbox = Outbox(self._send, lambda *given: self.told.append(given), self.clock)

    def _send(self, identity: bytes, payload: bytes) -> bool:
        if identity == b"gone":
            raise ClientGone("no route")
        if self.room == 0:
            return False
        self.room -= 1
        self.sent.append(payload)
        return True

    def _put(self, payload: bytes, needed: bool = True) -> None:
        self.outbox.put(b"slow", payload, 1000, needed)

    def test_what_is_not_taken_waits_in_order_and_too_much_is_told_once(self) -> None:
        self.room = 2
        for number in range(14):
            self._put(b"%d" % number)
        assert self.sent == [b"0", b"1"] and self.told == [(b"slow", True)] and self.outbox.full(b"slow")
        self.room = 5
        self.outbox.flush()
        assert self.outbox.full(b"slow"), "until all of it is read"
        self.room = 100
        self._put(b"14")
        self.outbox.flush()
        assert self.sent == [b"%d" % number for number in range(15)]
        assert self.told == [(b"slow", True), (b"slow", False)] and len(self.outbox) == 0

    def test_what_nobody_needs_is_dropped_in_the_end_and_verdicts_never(self) -> None:
        for _ in range(1000):
            self._put(b"pong", needed=False)
        self._put(b"verdict")
        self.room = 10_000
        self.outbox.flush()
        assert len(self.sent) < 30 and self.sent[-1] == b"verdict"

    def test_who_is_gone_or_reads_nothing_for_long_is_named(self) -> None:
        with pytest.raises(ClientGone):
            self.outbox.put(b"gone", b"x", 1000, True)
        self._put(b"x")
        self.clock.now = 5.0
        assert self.outbox.stuck(10.0) == [] and self.outbox.flush() == []
        self.clock.now = 11.0
        assert self.outbox.stuck(10.0) == [b"slow"]
        self.outbox.drop(b"slow")
        assert len(self.outbox) == 0
