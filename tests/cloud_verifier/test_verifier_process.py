"""The server as a process: ready line, signals, exit codes, one-line errors."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost, TargetChanged
from specdec.models import chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verdict_log import VerdictLog, read_verdicts
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.tuned import tuned
from tests.helpers.verifier import started, verifier

pytestmark = pytest.mark.graph


HEARD = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
HUNG_UP = pytest.param("SIGHUP", marks=pytest.mark.skipif(not HEARD, reason="SIGHUP is ignored under nohup"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", HUNG_UP])
def test_signals_end_it_with_exit_code_zero_and_json_to_the_end(model_root: Path, name: str) -> None:
    with verifier(model_root / "text-target", afresh=name == "SIGTERM") as (process, address, out, err):
        with connect(address) as link:
            link.ensure_connected()
            process.send_signal(getattr(signal, name))
            assert process.wait(10) == 0
        assert out.read() == ""
        assert [json.loads(line)["event"] for line in err][-1] == "stopped"


def test_sigterm_lets_an_answer_in_flight_end(model_root: Path, text_pair: Pair) -> None:
    prompt, options = chat_prompt(text_pair.target, "x" * 20), GenerationOptions(60, 3.0, seed=1)
    got: list[int] = []
    with verifier(model_root / "text-target") as (process, address, *_), connect(address) as link:
        for chunk in EdgeDecoder(link, text_pair.draft, "sd").generate(prompt, options):
            got.extend(chunk)
            if len(got) == len(chunk):
                process.terminate()
        assert process.wait(10) == 0
    assert got == generate_local(text_pair.target, prompt, options)


def test_ctrl_c_in_the_middle_of_an_answer_tells_the_client(model_root: Path, text_pair: Pair) -> None:
    with verifier(model_root / "text-target") as (process, address, *_), connect(address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "ar")
        with pytest.raises(LinkLost, match=r"shutting down|closed the connection"):
            for _ in decoder.generate(
                chat_prompt(text_pair.target, "x" * 20), GenerationOptions(400, 3.0, seed=1)
            ):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(10)
        assert process.returncode == 0


def test_killed_verifier_is_noticed_and_its_successor_continues(model_root: Path, text_pair: Pair) -> None:
    prompt = chat_prompt(text_pair.target, "kill me")
    options = GenerationOptions(100, temperature=0.9, seed=3)
    right = generate_local(text_pair.target, prompt, options)
    got: list[int] = []
    with verifier(model_root / "text-target") as (process, address, *_):
        link = connect(address, connect_timeout_s=0.5, reply_timeout_s=1.0)
        decoder = EdgeDecoder(link, text_pair.draft)
        with pytest.raises(LinkLost):
            for chunk in decoder.generate(prompt, options):
                got.extend(chunk)
                if len(got) > 10 and process.poll() is None:
                    process.kill()
                    process.wait(5)
                    killed = time.monotonic()
        assert time.monotonic() - killed < 1.5
        assert got == right[: len(got)]
    with verifier(model_root / "text-target", bind=address):
        for chunk in decoder.generate(prompt, options, history=got):
            got.extend(chunk)
    assert got == right


@pytest.mark.parametrize("method", ["auto", "pipesd+length:dual:learned"])
def test_a_successor_with_a_tuned_target_begins_anew_and_mixes_nothing(
    model_root: Path, text_pair: Pair, tmp_path: Path, method: str
) -> None:
    """An edge that keeps a verdict log goes on over the change; the draft, and what is known of it, stay."""
    prompt, options = chat_prompt(text_pair.target, "kill me"), GenerationOptions(80)
    folder = tuned(model_root / "text-target", tmp_path / "tuned")
    other = load_model(folder)
    old, new = (generate_local(model, prompt, options) for model in (text_pair.target, other))
    assert old != new
    log = VerdictLog(tmp_path / "log", "prompts")
    with ExitStack() as stack:
        process, address, *_ = stack.enter_context(verifier(model_root / "text-target"))
        link = stack.enter_context(patiently_connected(address))
        decoder = EdgeDecoder(link, text_pair.draft, method, 3, 60.0, verdict_log=log)
        assert [token for chunk in decoder.generate(prompt, options) for token in chunk] == old
        got: list[int] = []
        with pytest.raises(TargetChanged):
            for chunk in decoder.generate(prompt, options):
                got.extend(chunk)
                if len(got) > 10 and process.poll() is None:
                    known = decoder._measured
                    of_the_edge = known.draft_s is None, known.rtt_s is None
                    assert known.verify_s is not None or method == "auto"
                    process.kill()
                    process.wait(5)
                    stack.enter_context(verifier(folder, bind=address))
        assert 10 < len(got) < len(old) and got == old[: len(got)]
        assert known.verify_s is None and known.chain.drafts == 0, "of the target nothing is kept"
        assert (known.draft_s is None, known.rtt_s is None) == of_the_edge, "of draft and link all is"
        assert decoder._measured is known and decoder.draft_model is text_pair.draft
        if trigger := decoder._length.trigger:
            assert vars(trigger)["chain"] == 0.5 and vars(trigger)["token"] == 0.3, "as at first"
        assert [token for chunk in decoder.generate(prompt, options) for token in chunk] == new
    log.close()
    told = [(one.target, one.answer[: len(new)]) for one in read_verdicts(tmp_path / "log")]
    assert told == [(text_pair.target.weights_digest, tuple(old)), (other.weights_digest, tuple(new))]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/nowhere/model"], "does not exist"),
        (["--model", "/nowhere/model", "--bind", "{taken}"], "cannot listen"),
        (["--model", "/nowhere/model", "--metrics", "{taken}"], "metrics cannot be served"),
        (["--model", "{model}", "--keys", "/nowhere"], "cannot read the server's key /nowhere/server.key"),
        (["--model", "{model}", "--draft-model", "{model}", "--gguf", "threads=2"], "leave gguf out"),
    ],
    ids=["model", "port-in-use", "metrics-in-use", "keys", "gguf-draft"],
)
def test_mistakes_are_one_line_and_an_exit_code(
    model_root: Path, text_pair: Pair, servers: dict[str, str], arguments: list[str], words: str
) -> None:
    model, taken = str(model_root / "text-target"), servers[text_pair.target.path]
    filled = [argument.replace("{model}", model).replace("{taken}", taken) for argument in arguments]
    if "--metrics" in filled:
        filled[-1] = filled[-1].removeprefix("tcp://")
    with started(filled, afresh="/nowhere/model" in filled) as (process, _, err):
        said = err.read()
        assert process.wait(60) != 0
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith("{")]
    assert len(lines) == 1 and words in lines[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--nope"], "--model"),
        (["--model", "x", "--threads", "many"], "threads must be a whole number from 0 to 1024, got 'many'"),
        (["--model", "x", "--threads", "5000"], "threads must be a whole number from 0 to 1024, got 5000"),
        (["--model", "x", "--verify-ms", "72:"], "72:"),
        (["--model", "x", "--bind", "nonsense"], "tcp://HOST:PORT"),
        (["--model", "x", "--bind", "tcp://0.0.0.0:0"], "give --keys FOLDER"),
        (["--model", "x", "--max-sessions", "0"], "max_sessions must be a whole number from 1 to 100000, got 0"),
        (["--model", "x", "--quantize", "3bit"], "quantize"),
        (["--model", "x", "--gguf", "threads=2"], "gguf needs a GGUF draft"),
        (["--model", "x", "--draft-model", "x", "--gguf", "threads"], "give NAME=VALUE"),
        (["--model", "x", "--energy-root", "/dev/null"], "energy_root must be a folder"),
    ],
)
def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    from cloud_verifier.__main__ import main

    with pytest.raises(SystemExit) as end:
        main(given)
    told = capsys.readouterr().err
    assert end.value.code == 2 and told.count("\n") == 1 and said in told
