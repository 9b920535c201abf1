"""The log of verdicts: what it holds, that it stays small, and that nothing meets half of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.models import chat_prompt
from specdec.options import GenerationOptions
from specdec.verdict_log import LoggedAnswer, VerdictLog, VerdictLogError, read_verdicts
from tests.helpers.servers import Pair, StartServer, patiently_connected

SAID = LoggedAnswer(b"12345678", (1, 2, 3), ((2, 1),), 0.5, (7, 8), (b"picture",))


@pytest.mark.parametrize(
    ("contents", "kept"), [("tokens", ((), ())), ("prompts", ((7, 8), ())), ("pictures", ((7, 8), (b"picture",)))]
)
def test_words_and_pictures_are_kept_only_where_asked_for(
    tmp_path: Path, contents: str, kept: tuple[tuple[int, ...], tuple[bytes, ...]]
) -> None:
    log = VerdictLog(tmp_path, contents)
    log.add(SAID)
    log.close()
    (found,) = read_verdicts(tmp_path)
    assert (found.prompt, found.images) == kept
    assert (found.answer, found.rounds, found.temperature) == ((1, 2, 3), ((2, 1),), 0.5)
    whole = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert (b"picture" in whole) == (contents == "pictures")


@pytest.mark.slow
def test_the_oldest_parts_go_and_the_bound_holds(tmp_path: Path) -> None:
    log = VerdictLog(tmp_path, most_bytes=2000, part_bytes=200)
    for number in range(200):
        log.add(LoggedAnswer(b"12345678", (number, *range(30))))
        if number % 20 == 19:
            while not log._queue.empty():
                pass
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000
    found = [one.answer[0] for one in read_verdicts(tmp_path)]
    assert found == list(range(200 - len(found), 200)) and 10 < len(found) < 100


def test_an_answer_larger_than_the_log_is_left_out_and_deletes_no_other(tmp_path: Path) -> None:
    log = VerdictLog(tmp_path, "pictures", most_bytes=2000, part_bytes=500)
    for number, picture in ((1, b"small"), (2, bytes(3000)), (3, bytes(400)), (4, bytes(1540)), (5, bytes(200))):
        log.add(LoggedAnswer(b"12345678", (number,), images=(picture,)))
    log.close()
    assert [one.answer[0] for one in read_verdicts(tmp_path)] == [4, 5] and log.dropped == 1
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000


def test_a_part_that_goes_while_others_are_read_is_passed_over(tmp_path: Path) -> None:
    for _ in range(3):
        log = VerdictLog(tmp_path)
        log.add(SAID)
        log.close()
    reading = read_verdicts(tmp_path)
    next(reading)
    sorted(tmp_path.iterdir())[1].unlink()
    assert len(list(reading)) == 1


def test_a_log_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        log = VerdictLog(tmp_path)
        log.add(SAID)
        log.close()
    assert len(list(read_verdicts(tmp_path))) == 2


def test_several_may_log_into_one_folder(tmp_path: Path) -> None:
    logs = [VerdictLog(tmp_path) for _ in range(3)]  # each has counted the parts before the others wrote any
    for number, log in enumerate(logs):
        log.add(LoggedAnswer(b"12345678", (number,)))
    for log in logs:
        log.close()
    assert sorted(one.answer for one in read_verdicts(tmp_path)) == [(0,), (1,), (2,)]
    assert not any(log.dropped for log in logs)


@pytest.mark.slow
def test_a_part_appears_in_time_though_answers_never_pause(tmp_path: Path) -> None:
    log = VerdictLog(tmp_path, part_s=0.2)
    end = time.monotonic() + 30.0
    while not list(tmp_path.glob("verdicts-*")) and time.monotonic() < end:
        log.add(SAID)
        time.sleep(0.02)
    assert list(read_verdicts(tmp_path))
    log.close()


def test_a_full_disk_loses_answers_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    log = VerdictLog(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    log.add(SAID)
    log.close()
    assert log.dropped == 1 and list(tmp_path.iterdir()) == []


def test_what_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(VerdictLogError, match="must be a folder that"):
        list(read_verdicts(tmp_path))
    (tmp_path / "verdicts-000001.msgpack").write_bytes(b"\x93nonsense")
    with pytest.raises(VerdictLogError, match="remove it"):
        list(read_verdicts(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(VerdictLogError, match="give another folder"):
        VerdictLog(tmp_path / "file")
    with pytest.raises(VerdictLogError, match="unknown: choose tokens"):
        VerdictLog(tmp_path, "everything")


def test_an_edge_logs_what_it_was_told(text_pair: Pair, servers: dict[str, str], tmp_path: Path) -> None:
    prompt = chat_prompt(text_pair.target, "say something")
    log = VerdictLog(tmp_path, "prompts")
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3, verdict_log=log)
        said = [t for c in decoder.generate(prompt, GenerationOptions(12)) for t in c]
        stats = decoder.stats
    log.close()
    (found,) = read_verdicts(tmp_path)
    assert found.answer[: len(said)] == tuple(said) and found.prompt == prompt.ids
    assert found.rounds == tuple((one.drafted, one.accepted) for one in stats.rounds)
    assert found.vocabulary == text_pair.target.vocabulary_fingerprint


def test_an_answer_that_was_whole_already_is_not_logged_and_the_decoder_answers_on(
    text_pair: Pair, tmp_path: Path
) -> None:
    prompt, log = chat_prompt(text_pair.target, "say something"), VerdictLog(tmp_path)
    decoder = EdgeDecoder(connect("tcp://127.0.0.1:9"), text_pair.draft, verdict_log=log)
    history = text_pair.draft.tokenizer("the end")["input_ids"]
    for _ in range(2):
        assert list(decoder.generate(prompt, GenerationOptions(12, stop=("end",)), history=history)) == []
    log.close()
    assert decoder.stats.finish == "stop" and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_verifier_logs_what_it_has_said_when_a_session_ends(
    text_pair: Pair, start_server: StartServer, tmp_path: Path
) -> None:
    prompt = chat_prompt(text_pair.target, "say something")
    server = start_server(text_pair.target, verdict_log=str(tmp_path))
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        said = [t for c in decoder.generate(prompt, GenerationOptions(12)) for t in c]
        list(decoder.generate(prompt, GenerationOptions(4)))  # the first session is closed for certain
    server.stop()
    found = next(iter(read_verdicts(tmp_path)))
    assert found.answer[: len(said)] == tuple(said) and found.prompt == () and found.rounds
