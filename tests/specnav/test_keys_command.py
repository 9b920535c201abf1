"""`specnav keys …`, and the keys of commands that reach a verifier: what is written, said and refused."""

from __future__ import annotations

import json
from functools import partial

import pytest
import zmq

from cloud_verifier.security.folder import KeyFolder
from specdec.link.keys import read_key
from specnav.supervise.children import verifier_spec
from tests.helpers.commands import run_here

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CURVE")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """run(*arguments) -> exit code, stdout, stderr, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(run_here, monkeypatch, capsys)


def refused(result, said):
    code, _, err = result
    assert code == 1 and said in err and len(err.splitlines()) == 1 and "Traceback" not in err


@pytest.mark.slow
def test_a_key_is_made_listed_handed_out_rotated_and_revoked(run, tmp_path):
    code, out, _ = run(
        "keys", "new", "robot-1", "--class", "robot", "--max-sessions", 4, "--messages-per-s", 200
    )
    assert code == 0 and "specnav keys export robot-1 --to robot-1.key" in out
    assert run("keys", "new", "runs", "--class", "batch", "--queued-mb", 1.5)[0] == 0
    code, out, _ = run("keys", "list")
    assert code == 0 and "4 sessions, 200 messages/s" in out and "1.5 MB queued" in out and "batch" in out
    rows = json.loads(run("keys", "list", "--json")[1])
    assert [row["name"] for row in rows] == ["robot-1", "runs"]

    assert run("keys", "export", "robot-1", "--to", "robot-1.key")[0] == 0
    key = read_key(tmp_path / "robot-1.key")
    assert (key.name, key.verifier) == ("robot-1", KeyFolder(tmp_path / "keys").server_key().public)
    assert (tmp_path / "robot-1.key").stat().st_mode & 0o077 == 0
    assert json.loads(run("keys", "export", "robot-1")[1])["secret"] == key.secret
    assert key.secret not in run("keys", "list")[1] + run("keys", "list", "--json")[1]

    code, out, _ = run("keys", "rotate", "robot-1")
    assert code == 0 and "the previous one stays valid until" in out
    assert run("keys", "export", "robot-1", "--to", "robot-1.key", "--forget")[0] == 0
    assert read_key(tmp_path / "robot-1.key").public != key.public
    refused(run("keys", "export", "robot-1"), "the secret of robot-1 is no longer stored here")

    assert run("keys", "rotate", "--server")[0] == 0
    assert KeyFolder(tmp_path / "keys").server_key().public != key.verifier
    assert run("keys", "revoke", "robot-1")[0] == 0
    assert "revoked 20" in run("keys", "list")[1]
    refused(run("keys", "export", "robot-1"), "specnav keys rotate robot-1 makes a new one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new", "x", "--class", "pilot"], "class 'pilot' does not exist: choose robot, interactive, batch"),
        (["new", "../x"], "name '../x' is not usable"),
        (["new", "x", "--keys", __file__], "(Not a directory): choose another folder"),
        (["new", "there"], "a client named there exists already"),
        (["revoke", "nobody"], "there is no client nobody in keys: specnav keys list"),
        (["rotate", "nobody"], "there is no client nobody"),
        (["export", "nobody"], "there is no client nobody"),
        (["rotate"], "give the NAME of a client, or --server"),
        (["rotate", "there", "--server"], "give the NAME of a client, or --server"),
        (["export", "there", "--to", "/nowhere/x.key"], "cannot write /nowhere/x.key"),
        (["list", "--keys", "/nowhere"], "cannot read the server's key /nowhere/server.key"),
        (["new", "x", "--keys", "/proc/nowhere"], "cannot write in /proc/nowhere"),
    ],
)
def test_wrong_input_is_one_clear_line(run, arguments, said):
    run("keys", "new", "there")
    refused(run("keys", *arguments), said)


def test_a_client_file_that_is_none_is_a_line_and_the_others_are_listed(run, tmp_path):
    run("keys", "new", "good")
    (tmp_path / "keys/clients/bad.json").write_text("{")
    code, out, err = run("keys", "list")
    assert code == 0 and "good" in out and "ignored:" in err and "bad.json" in err


def test_a_server_beyond_loopback_wants_keys(run):
    refused(run("serve", "--bind", "tcp://0.0.0.0:5555"), "there are no keys: give --keys FOLDER")
    refused(run("serve", "--bind", "tcp://0.0.0.0:5555", "--keys", "keys"), "cannot read the server's key")
    refused(run("serve", "--keys", "keys", "--insecure"), "exclude each other")


def test_a_key_file_that_cannot_be_used_is_told_before_a_model_is_loaded(run, tmp_path):
    refused(run("generate", "hi", "--key", "robot-1.key"), "give its address with --connect")
    refused(
        run("generate", "hi", "--connect", "tcp://127.0.0.1:1", "--key", "no.key"),
        "cannot read key file no.key",
    )


def test_a_started_verifier_is_told_of_its_keys():
    from cloud_verifier.config import ServerConfig

    argv = verifier_spec(ServerConfig("model", "tcp://0.0.0.0:0", keys="ring"), {}).argv
    assert argv[argv.index("--keys") + 1] == "ring" and "--insecure" not in argv
    assert "--insecure" in verifier_spec(ServerConfig("model", "tcp://0.0.0.0:0", insecure=True), {}).argv
