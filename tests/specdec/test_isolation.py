"""Workers: the same answers as in this process, limits that hold, and nothing that a worker can do to who uses it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import numpy as np
import pytest

from specdec.errors import ModelError, OptionsError
from specdec.isolation import grammars, wire
from specdec.isolation.accounts import Account, OverSpent, charged
from specdec.isolation.grammars import IsolatedGrammars
from specdec.isolation.pictures import PictureWorkers
from specdec.isolation.turns import QUICK_S, Turns
from specdec.isolation.workers import JobCancelled, Launcher, Limit, OverLimit, Worker
from specdec.pictures.decoding import decode_image, open_picture
from specdec.sampling.choices import choices_after
from specdec.sampling.grammar import Grammars
from tests.helpers.hostile_inputs import BOMB, encoded, with_empty_scans
from tests.helpers.table_models import LETTERS, LetterTokenizer
from tests.helpers.waiting import until

VOCAB = 1 + len(LETTERS)
ENDS = {0}
GOOD = 'start: ("ab" | "cd" | "cde")+ "f"'


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    one = Launcher()
    yield one
    one.close()


@pytest.fixture
def isolated(launcher: Launcher) -> IsolatedGrammars:
    return IsolatedGrammars(launcher, LetterTokenizer(VOCAB), VOCAB, ENDS)


def slow_picture() -> bytes:
    return with_empty_scans(encoded((1000, 1000), progressive=True), 150)


# -- grammars


@pytest.mark.slow
@pytest.mark.parametrize("text", [GOOD, "start: /[a-c]{1,4}x?/", 'start: "ab" ("a" | "ab") "c"?'])
def test_a_grammar_in_a_worker_says_what_one_here_says(isolated: IsolatedGrammars, text: str) -> None:
    there, here = isolated.compile(text), Grammars(LetterTokenizer(VOCAB), VOCAB, ENDS).compile(text)
    assert there.shortest == here.shortest
    far, near, draw = there.follow(), here.follow(), random.Random(7)
    ids: list[int] = []
    for _ in range(25):
        tails = [(), (1,), (1, 2)]
        masks = near.masks(ids, tails)
        assert (far.masks(ids, tails).result(10) == masks).all()
        assert far.forced(ids, 9).result(10) == near.forced(ids, 9)
        place = near.place(ids)
        assert place is not None
        found, expected = far.choices(ids, 32).result(10), choices_after(here, place, 32)
        assert (found.tree.ids, found.tree.parents, found.sizes) == (
            expected.tree.ids,
            expected.tree.parents,
            expected.sizes,
        )
        allowed = [token for token in np.flatnonzero(masks[0]).tolist() if token not in ENDS]
        ids = [*ids, draw.choice(allowed)] if allowed and draw.random() < 0.8 else ids[: len(ids) // 2]


def test_more_answers_than_a_worker_remembers_are_told_to_it_again(isolated: IsolatedGrammars) -> None:
    grammar = isolated.compile(GOOD)
    followers = [grammar.follow() for _ in range(70)]
    for _ in range(2):
        for one in followers:
            assert np.flatnonzero(one.masks([1, 2], [()]).result(10)[0]).tolist() == [1, 3, 6]


@pytest.mark.slow
@pytest.mark.realtime
def test_a_grammar_that_does_not_come_to_an_end_is_given_up_refused_by_its_text_and_charged(
    isolated: IsolatedGrammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "COMPILING", Limit(0.3, 20.0))
    honest, account = isolated.compile(GOOD), Account(share=0.0)  # nothing is given back
    token = charged.set(account)
    try:
        bomb = isolated.compile_soon(BOMB)
        charged.reset(token)
        began = time.monotonic()
        assert honest.follow().forced([3, 4, 5], 9).result(10) == []
        assert time.monotonic() - began < 5 and not bomb.done()
        with pytest.raises(OverLimit, match="more time or memory"):
            bomb.result(20)
    finally:
        charged.set(None)
    assert 0.2 < account.owed_s < 1.0
    began = time.monotonic()
    with pytest.raises(ModelError, match="more time or memory"):
        isolated.compile(BOMB)
    assert time.monotonic() - began < 0.1, "known by its text"
    isolated.compile(GOOD)


@pytest.mark.slow
def test_a_step_that_does_not_come_to_an_end_ends_its_process_and_the_next_one_finds_another(
    isolated: IsolatedGrammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "COMPILING", Limit(20.0, 60.0))
    grammar = isolated.compile('start: "' + "ab" * 1500 + '"')
    monkeypatch.setattr(grammars, "STEP", Limit(0.01, 30.0))
    slow = grammar.follow().forced([], 64)
    with pytest.raises(OverLimit):
        slow.result(20)
    monkeypatch.setattr(grammars, "STEP", Limit(20.0, 60.0))
    assert grammar.follow().forced([], 2).result(60) == [1, 2]


def test_what_nobody_wants_any_more_ends(isolated: IsolatedGrammars) -> None:
    isolated.compile(GOOD)
    bomb = isolated.compile_soon(BOMB)
    grammar = isolated._known[BOMB]
    until(lambda: grammar._worker is not None and grammar._worker._pid > 0)
    assert grammar._worker is not None
    pid = grammar._worker._pid
    bomb.abandon()
    until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.slow
def test_a_client_that_leaves_while_its_grammar_compiles_spoils_it_for_nobody(isolated: IsolatedGrammars) -> None:
    """Leaving says nothing about the grammar: others get it at once, however often that happens."""
    isolated.compile(GOOD)
    for end in "abcdef":
        text = f'start: ("ab" | "cd")+ "{end}"'
        for _ in range(grammars.MOST_TRIES + 1):
            left, other = isolated.compile_soon(text), isolated.compile_soon('start: "f"')
            left.abandon()
            comes_next = isolated.compile_soon(text)
            assert comes_next.result(30).shortest > 1
            other.result(30)
            isolated._known.pop(text).rest()
    assert not isolated._refused and not isolated._doubtful


@pytest.mark.slow
def test_a_client_that_leaves_while_its_grammar_waits_for_its_turn_spoils_it_for_nobody(
    isolated: IsolatedGrammars,
) -> None:
    isolated.compile(GOOD)
    before = [isolated.compile_soon(BOMB + "\n" * number) for number in range(grammars.MOST + 1)]
    text = 'start: "abcdef"'
    isolated.compile_soon(text).abandon()
    for one in before:
        one.abandon()
    assert isolated.compile(text).shortest > 1


def test_wrong_grammars_are_told_as_before(isolated: IsolatedGrammars) -> None:
    with pytest.raises(OptionsError, match="cannot be used"):
        isolated.compile("start: nothing")
    with pytest.raises(OptionsError, match="at least"):
        isolated.compile('start: "abcabc"').check_room(3)


# -- pictures


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
@pytest.mark.parametrize("sizing", [(28, 3136, 100_000), (0, 0, 50_000)])
def test_a_picture_opened_in_a_worker_is_the_one_opened_here(
    launcher: Launcher, kind: str, sizing: tuple[int, int, int]
) -> None:
    data = encoded((640, 480), kind)
    assert PictureWorkers(launcher).start(data, *sizing).result(20).tobytes() == open_picture(data, *sizing).tobytes()


@pytest.mark.realtime
def test_a_jpeg_of_very_many_scans_is_refused_and_a_usual_one_is_not() -> None:
    began = time.monotonic()
    with pytest.raises(ModelError, match="scans"):
        decode_image(with_empty_scans(encoded((1000, 1000), progressive=True), 40_000))
    assert time.monotonic() - began < 0.5
    assert decode_image(encoded((1000, 1000), progressive=True)).size == (1000, 1000)


@pytest.mark.slow
def test_what_is_no_picture_and_what_is_too_much_is_told_and_the_next_one_is_opened(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.isolation.pictures.MEMORY", 8 << 20)
    workers, good = PictureWorkers(launcher), encoded((64, 64))
    for bad in (good[: len(good) // 2], encoded((3000, 3000)), encoded((3000, 3000), "PNG")):
        with pytest.raises(ModelError):
            workers.start(bad, 0, 0, 10**6).result(20)
        assert workers.start(good, 0, 0, 10**6).result(20).size == (64, 64)


@pytest.mark.parametrize("seed", range(6))
def test_broken_bytes_end_nothing(launcher: Launcher, seed: int) -> None:
    draw, workers = random.Random(seed), PictureWorkers(launcher)
    for kind in ("JPEG", "PNG", "WEBP", "BMP"):
        data = bytearray(encoded((48, 40), kind, seed))
        for _ in range(draw.randrange(1, 12)):
            data[draw.randrange(8, len(data))] = draw.randrange(256)
        try:
            mine: Any = open_picture(bytes(data), 0, 0, 10**6).tobytes()
        except ModelError:
            mine = None
        try:
            theirs: Any = workers.start(bytes(data), 0, 0, 10**6).result(20).tobytes()
        except ModelError:
            theirs = None
        assert mine == theirs


# -- limits


def test_a_client_in_debt_is_refused_until_it_has_waited() -> None:
    now = [0.0]
    account = Account(lambda: now[0], burst_s=2.0, share=0.5)
    account.spend(1.9)
    account.check()
    account.spend(3.1)
    with pytest.raises(OverSpent, match="try again in 7 s"):
        account.check()
    now[0] = 6.1
    account.check()
    now[0] = 100.0
    assert account.owed_s == 0.0


def test_a_client_that_has_lately_used_much_gives_way_from_the_start_of_its_jobs(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    gave_way: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda which, pid, nice: gave_way.append(nice))
    monkeypatch.setattr("specdec.isolation.workers._QUICK_S", 20.0)  # no job here lasts so long
    picture = encoded((64, 64))
    for owed_s, expected in ((0.0, []), (2.0, [19])):
        account = Account()
        account.spend(owed_s)
        token = charged.set(account)
        try:
            PictureWorkers(launcher).start(picture, 0, 0, 10**6).result(20)
        finally:
            charged.reset(token)
        assert gave_way == expected


class _Held:
    """A worker whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.asked: Future[wire.WorkerReply] = Future()
        self.cancelled = False

    def begin(self) -> tuple[Any, Future[wire.WorkerReply]]:
        return self, self.asked

    def cancel(self, future: Future[wire.WorkerReply]) -> None:
        self.cancelled = True
        if not future.done():
            future.set_exception(ModelError("given up"))


@pytest.mark.slow
@pytest.mark.realtime
def test_one_clients_slow_jobs_leave_turns_for_anothers() -> None:
    turns = Turns(quick=1, most=2, name="test")
    hostile, honest = Account(), Account()

    def take(account: Account) -> tuple[_Held, Any]:
        token = charged.set(account)
        try:
            held = _Held()
            return held, turns.take(held.begin, lambda reply: reply)
        finally:
            charged.reset(token)

    many = [take(hostile) for _ in range(20)]
    time.sleep(QUICK_S * 3)
    began = time.monotonic()
    held, ticket = take(honest)
    until(lambda: held.asked.running() or held in [one.worker for one in turns._running])
    held.asked.set_result(wire.WorkerReply())
    ticket.result(5)
    assert time.monotonic() - began < 3 * QUICK_S + 0.5, "and not behind twenty"
    for _, one in many:
        one.abandon()


def test_a_job_that_is_given_up_before_its_worker_begins_is_refused_as_any_other() -> None:
    held = _Held()
    ticket = Turns(quick=1, most=1, name="test").take(held.begin, lambda reply: reply)
    until(lambda: held.asked.cancel())
    with pytest.raises(JobCancelled, match="in favour of another client"):
        ticket.result(5)


@pytest.mark.slow
def test_a_killed_launcher_is_replaced(isolated: IsolatedGrammars, launcher: Launcher) -> None:
    isolated.compile(GOOD)
    os.kill(launcher.pid, signal.SIGKILL)
    time.sleep(0.05)
    isolated.compile('start: "abc"')


@pytest.mark.slow
def test_workers_see_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "s3cret")
    own = Launcher()
    pid, connection, _ = own.fork(1 << 26)
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"s3cret" not in file.read()
    connection.close()
    own.close()


class _TakenOver(Launcher):
    """Its workers answer what the test says."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer
        self._stand_in = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def fork(self, memory: int, vocabulary: int | None = None) -> tuple[int, socket.socket, int]:
        ours, theirs = socket.socketpair()

        def answer() -> None:
            with theirs:
                theirs.recv(1 << 16)
                theirs.sendall(self._answer)

        threading.Thread(target=answer, daemon=True).start()
        return self._stand_in.pid, ours, 0

    def reap(self, pid: int) -> int:
        return self._stand_in.wait()


def frame(message: Any) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        b"\x05\x00\x00\x00hello",
        b"\x80\x04\x95",
        frame({"status": "ok", "ids": "no list"}),
        frame(wire.WorkerReply(width=1 << 20, height=1 << 20)),
        frame(wire.WorkerReply(width=64, height=64, data=b"short")),
        frame(wire.WorkerReply("made up", text="x" * 5000)),
    ],
)
def test_what_a_worker_that_was_taken_over_says_is_an_error_and_no_more(answer: bytes) -> None:
    workers = PictureWorkers(_TakenOver(answer))
    with pytest.raises(ModelError) as raised:
        workers.start(encoded((64, 64)), 0, 0, 10**6).result(20)
    assert len(str(raised.value)) < 1100


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["none", "uvloop"])
def test_the_process_ends_in_time_though_a_library_holds_all_of_its_threads(loop: str) -> None:
    script = """
        import asyncio
        import signal
        import sys
        from specdec.isolation.workers import Launcher
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        launcher = Launcher()
        launcher.end_in_time(-2.5)  # of the grace of three seconds
        launcher.fork(1 << 26)

        async def work():
            launcher.hear_signals()
            print("ready", flush=True)
            sum(range(10**12))  # not interrupted, and nothing else runs meanwhile

        asyncio.run(work()) if sys.argv[1] == "none" else __import__(sys.argv[1]).run(work())
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), loop], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGKILL
    assert time.monotonic() - began < 10


def test_a_limit_holds_for_a_worker_of_any_kind(launcher: Launcher) -> None:
    worker = Worker(launcher, 1 << 28, "the image")
    job = wire.Picture(0, 0, 10**6)
    with pytest.raises(OverLimit):
        worker.ask(lambda: job, Limit(0.01, 20.0), beside=slow_picture()).result(20)
    assert worker.ask(lambda: job, Limit(5.0, 20.0), beside=encoded((64, 64))).result(20).width == 64
    worker.close()


@pytest.mark.slow
def test_without_descriptors_a_job_fails_in_one_line_and_the_next_one_is_done(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(launcher, 1 << 28, "the image")
    job, limit, picture = wire.Picture(28, 784, 1_000_000), Limit(5.0, 20.0), encoded((56, 56))

    def refuses(pid: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuses)
        with pytest.raises(ModelError, match="no process can be started to read the image"):
            worker.ask(lambda: job, limit, beside=picture).result(20)
    assert worker.ask(lambda: job, limit, beside=picture).result(20).width == 56
    with pytest.raises(OverLimit):
        worker.ask(lambda: job, Limit(0.01, 20.0), beside=slow_picture()).result(20)
    assert worker.ask(lambda: job, limit, beside=picture).result(20).width == 56
    worker.close()
