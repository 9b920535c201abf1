"""The key ring on disk, the edges' key files, and where a verifier may listen without any."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
import zmq

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import Limits
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from cloud_verifier.security.folder import new_pair
from cloud_verifier.security.keyring import Keyring, utc_now
from cloud_verifier.security.records import Quota
from specdec.edge.decoder import connect
from specdec.errors import KeyRefused, OptionsError
from specdec.link.binding import is_loopback
from specdec.link.directory import FleetRoute
from specdec.link.keys import read_key
from tests.helpers.keys import Keys
from tests.helpers.servers import Pair

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CURVE")


@pytest.mark.slow
def test_a_key_ring_is_never_seen_half_written(keys: Keys) -> None:
    keys.new("robot-1", Quota(sessions=2))
    ring = Keyring(keys.folder.path, log := EventLog(stream := StringIO()))
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                keys.folder.rotate("robot-1", utc_now(), timedelta(hours=1))
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    changes = 0
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        changes += ring.refresh()
        assert ring.client("robot-1").quota == Quota(sessions=2)
    stop.set()
    writer.join()
    assert log and not failures and changes > 2 and "client_left_out" not in stream.getvalue()
    assert not [file for file in keys.folder.path.rglob("*.tmp")]


def test_one_look_tells_whether_any_key_was_changed(keys: Keys) -> None:
    """Also of a change in the same step of the folder's clock as the last reading; who only knocks changes nothing."""
    keys.new("robot-1")
    clients = keys.folder.path / "clients"
    ring = Keyring(keys.folder.path, EventLog(StringIO()))
    about = clients.stat()
    keys.folder.revoke("robot-1", utc_now())
    os.utime(clients, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert ring.is_touched and ring.refresh()

    long_ago = about.st_mtime_ns - 10**9
    os.utime(clients, ns=(long_ago, long_ago))
    assert not ring.refresh() and not ring.is_touched
    keys.folder.rotate("robot-1", utc_now(), timedelta(0))
    assert ring.is_touched and ring.refresh()


def test_a_client_whose_file_could_not_be_read_is_admitted_once_it_can(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner or mode was wrong, and with that nothing but the time of its last change of state is new."""
    keys.new("robot-1")
    place = keys.folder.path / "clients" / "robot-1.json"
    with monkeypatch.context() as patch:
        patch.setattr("cloud_verifier.security.folder.read_file", _refuse)
        ring = Keyring(keys.folder.path, EventLog(StringIO()))
    assert ring.client("robot-1") is None
    place.chmod(0o640)
    assert ring.refresh() and ring.client("robot-1") is not None


def _refuse(path: Path, _: int) -> bytes:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_changes_of_one_key_at_the_same_time_come_one_after_another(keys: Keys) -> None:
    """Otherwise a rotation could undo a revocation that it did not see."""
    keys.new("robot-1")
    publics = {keys.folder.client("robot-1").public}
    with ThreadPoolExecutor(8) as several:
        rotated = several.map(lambda _: keys.folder.rotate("robot-1", utc_now(), timedelta(hours=1)), range(24))
        clients = list(rotated)
    publics |= {client.public for client in clients}
    last = keys.folder.client("robot-1")
    assert {client.previous.public for client in clients if client.previous} == publics - {last.public}
    assert keys.folder.export("robot-1").public == last.public


def test_secrets_are_their_owners_only(keys: Keys) -> None:
    file = keys.new("robot-1")
    for secret in (file, keys.folder.path / "server.key", keys.folder.path / "edges/robot-1.key"):
        assert secret.stat().st_mode & 0o077 == 0, secret
    about = (keys.folder.path / "clients/robot-1.json").read_text()
    assert read_key(file).secret not in about and read_key(file).public in about
    assert read_key(file).secret not in repr(read_key(file))
    (keys.folder.path / "server.key").chmod(0o640)
    with pytest.raises(VerifierError, match=r"others may read the server's key .*: chmod 600"):
        Keyring(keys.folder.path, EventLog(StringIO()))


def test_a_class_that_does_not_exist_shuts_out_its_client_and_nobody_else(keys: Keys) -> None:
    good, bad = (read_key(keys.new(name)).public for name in ("good", "bad"))
    file = keys.folder.path / "clients/bad.json"
    file.write_text(file.read_text().replace('"robot"', '"pilot"'))
    ring = Keyring(keys.folder.path, EventLog(stream := StringIO()))
    assert ring.holder(good) and ring.holder(bad) is None
    (line,) = stream.getvalue().splitlines()
    assert "'pilot'" in line and json.loads(line)["client"] == "bad"
    ring.refresh()
    assert len(stream.getvalue().splitlines()) == 1  # said once


@pytest.mark.parametrize("kind", ["fifo", "large", "link", "loop", "device"])
@pytest.mark.realtime
def test_what_is_no_clients_file_holds_up_nobody_and_shuts_out_nobody_else(kind: str, keys: Keys) -> None:
    good = read_key(keys.new("good")).public
    ring = Keyring(keys.folder.path, EventLog(stream := StringIO()))
    odd = keys.folder.path / "clients/odd.json"
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "large":
        with odd.open("wb") as file:
            file.truncate(1_500_000_000)
    else:
        odd.symlink_to({"link": "good.json", "loop": "odd.json", "device": "/dev/zero"}[kind])
    began = time.monotonic()
    assert ring.refresh() and time.monotonic() - began < 1.0
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "client_left_out" and ring.holder(good)
    keys.folder.revoke("good", utc_now())
    assert ring.refresh() and ring.holder(good) is None, "what changes beside it still counts"


def test_a_quota_takes_the_place_of_the_servers_bounds() -> None:
    usual = Limits()
    assert Quota().within(usual) == usual
    expected = replace(usual, sessions=2, messages_per_s=50.0, burst=100, queued_bytes=3 * 2**19)
    assert Quota(2, 50.0, 1.5).within(usual) == expected


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "a b", "x" * 65, "ä", "a\n"])
def test_a_name_that_could_leave_the_folder_is_refused(keys: Keys, name: str) -> None:
    with pytest.raises(VerifierError, match="is not usable"):
        keys.new(name)


def change(file: Path, **fields: object) -> None:
    """Replace fields of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize("spoil", [lambda key: "#" * 40, lambda key: key + "\n"], ids=["too large", "line end"])
def test_a_clients_file_whose_key_can_never_match_is_left_out_and_told(keys: Keys, spoil) -> None:
    public = read_key(keys.new("robot-1")).public
    file = keys.folder.path / "clients/robot-1.json"
    previous = {"public": spoil(public), "until": (utc_now() + timedelta(hours=1)).isoformat()}
    for fields in ({"public": spoil(public)}, {"public": public, "previous": previous}):
        change(file, **fields)
        ring = Keyring(keys.folder.path, EventLog(stream := StringIO()))
        assert len(ring) == 0 and '"client_left_out"' in stream.getvalue()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: file.unlink(), "cannot read key file"),
        (lambda file: file.chmod(0o644), "chmod 600"),
        (lambda file: file.write_text("secret: hunter2"), "is not a key file of an edge"),
        (lambda file: file.write_text("{}"), "is not a key file of an edge"),
        (lambda file: file.write_bytes(b"\xff" * 1000), "is not a key file of an edge"),
        (lambda file: change(file, verifier="#" * 40), "is not a key file of an edge"),
        (lambda file: change(file, verifier=read_key(file).verifier + "\n"), "is not a key file of an edge"),
        (lambda file: (file.unlink(), file.mkdir(0o700)), "cannot read key file"),
        (
            lambda file: file.write_text(file.read_text().replace(read_key(file).public, new_pair()[0])),
            "do not match",
        ),
    ],
)
def test_a_key_file_that_cannot_be_used_is_one_line(keys: Keys, spoil, said: str) -> None:
    file = keys.new("robot-1")
    spoil(file)
    with pytest.raises(OptionsError, match=said) as refused:
        connect("tcp://127.0.0.1:5555", key=file)
    assert str(file) in str(refused.value) and "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_key_file_that_is_lost_later_is_a_refusal_and_no_wrong_option(keys: Keys) -> None:
    """The HTTP API blamed the client's request, and a robot the operator's."""
    file = keys.new("robot-1")
    link, route = connect("tcp://127.0.0.1:1", key=file), FleetRoute("fleet://127.0.0.1:1", file)
    file.unlink()
    with pytest.raises(KeyRefused, match="cannot read key file"):
        link.ensure_connected()
    route._at = "tcp://127.0.0.1:1"
    assert not route.begin([1], []), "what is connected goes on"
    with pytest.raises(KeyRefused, match="cannot read key file"):
        route.next(0.0, lambda: True)


def test_a_key_file_of_another_user_is_refused_with_the_owner_that_it_needs(monkeypatch, tmp_path: Path) -> None:
    def denied(path: Path, *_: object, **__: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("specdec.link.keys.read_file", denied)  # root may read every file
    with pytest.raises(OptionsError, match=f"Permission denied.*chown {os.geteuid()} {tmp_path}/a.key$"):
        read_key(tmp_path / "a.key")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]", "lo"])
def test_a_bind_on_this_machine_needs_no_keys(host: str) -> None:
    assert is_loopback(f"tcp://{host}:5555")
    ServerConfig("model", f"tcp://{host}:5555")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "*", "[::]", "192.168.1.10", "eth0", "cloud.example", "[::ffff:1.2.3.4]"]
)
def test_a_bind_beyond_this_machine_wants_keys_or_insecure(host: str) -> None:
    bind = f"tcp://{host}:5555"
    with pytest.raises(VerifierError, match="open to other machines and there are no keys"):
        ServerConfig("model", bind)
    assert ServerConfig("model", bind, insecure=True).insecure
    assert ServerConfig("model", bind, keys="ring").keys
    with pytest.raises(VerifierError, match="exclude each other"):
        ServerConfig("model", bind, keys="ring", insecure=True)


def test_a_key_ring_that_is_none_is_told_before_anything_else(tmp_path: Path, text_pair: Pair) -> None:
    config = ServerConfig(text_pair.target.path, "tcp://127.0.0.1:0", keys=str(tmp_path / "nowhere"))
    with pytest.raises(VerifierError, match=r"cannot read the server's key .*: specnav keys new NAME"):
        Server(config, text_pair.target, EventLog(StringIO()))
