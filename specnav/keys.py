# SPDX-License-Identifier: Apache-2.0
"""`specnav keys …`: changes to a folder of keys, and what is said of them. Only `export` prints what is secret."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from cloud_verifier.classes import class_named
from cloud_verifier.security.folder import KeyFolder, client_files, new_pair, read_client
from cloud_verifier.security.keyring import utc_now
from cloud_verifier.security.records import ClientKey, Quota, check_name
from specdec.link.keys import write_key
from specnav.errors import UsageError


def new_client(
    folder: Path,
    name: str,
    client_class: str,
    sessions: int | None,
    messages_per_s: float | None,
    queued_mb: float | None,
) -> None:
    """Raises VerifierError."""
    quota = Quota(sessions, messages_per_s, queued_mb)
    of_class = class_named(client_class)
    public, secret = new_pair()
    ring = KeyFolder(folder)
    client = ClientKey(check_name(name), public, utc_now(), of_class, quota)
    ring.create()
    ring.new(client, secret)
    print(f"{name} ({of_class.value}) may come in; its machine needs the file that this writes:")
    print(f"  specnav keys export {name} --to {name}.key{_where(folder)}")


def list_clients(folder: Path, as_json: bool) -> None:
    """Raises VerifierError for a folder that is none; a client's file that is none is a row that says so."""
    KeyFolder(folder).server_key()
    from cloud_verifier.errors import VerifierError

    clients: list[ClientKey] = []
    broken: list[str] = []
    try:
        files = client_files(folder)
    except OSError as error:
        raise UsageError(f"cannot read {folder} ({error.strerror})") from error
    for file in files:
        try:
            clients.append(read_client(file))
        except VerifierError as error:
            broken.append(str(error))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(clients), indent=1) + b"\n")
    elif not clients and not broken:
        print(f"no clients in {folder}: specnav keys new NAME makes one")
    elif clients:
        table = Table("name", "class", "quota", "key since", "state", box=None, pad_edge=False)
        for client in clients:
            table.add_row(
                client.name,
                client.client_class.value,
                _quota(client.quota),
                _day(client.created),
                _state(client),
            )
        Console(soft_wrap=True).print(table)
    for line in broken:
        print(f"left out: {line}", file=sys.stderr)


def revoke_client(folder: Path, name: str) -> None:
    """Raises VerifierError."""
    KeyFolder(folder).revoke(name, utc_now())
    print(f"{name} is revoked; a running verifier has shut it out within about a second")


def rotate_client(folder: Path, name: str, grace_hours: float) -> None:
    """Raises VerifierError."""
    client = KeyFolder(folder).rotate(name, utc_now(), timedelta(hours=grace_hours))
    until = (
        f"the previous one is good until {_time(client.previous.until)}"
        if client.previous
        else "only it is good"
    )
    print(f"{name} has a new key, {until}; its machine needs the file that this writes:")
    print(f"  specnav keys export {name} --to {name}.key{_where(folder)}")


def rotate_server(folder: Path) -> None:
    """Raises VerifierError."""
    KeyFolder(folder).rotate_server()
    print(
        "the verifier has a new key from its next start on; from then on every edge needs its file exported anew"
    )


def export_client(folder: Path, name: str, to: Path | None, forget: bool) -> None:
    """Raises VerifierError, UsageError."""
    ring = KeyFolder(folder)
    key = ring.export(name)
    if to is None:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(key), indent=1) + b"\n")
        sys.stdout.flush()
    else:
        try:
            write_key(to, key)
        except OSError as error:
            raise UsageError(f"cannot write {to} ({error.strerror})") from error
        print(f"wrote {to}: copy it to {name}'s machine, readable by its user only", file=sys.stderr)
    if forget:
        ring.forget_secret(name)


def _where(folder: Path) -> str:
    return "" if folder == Path("keys") else f" --keys {folder}"


def _quota(quota: Quota) -> str:
    given = [
        (quota.sessions, "{:d} sessions"),
        (quota.messages_per_s, "{:g} messages/s"),
        (quota.queued_mb, "{:g} MB queued"),
    ]
    return ", ".join(words.format(value) for value, words in given if value is not None) or "the server's"


def _state(client: ClientKey) -> str:
    if client.revoked is not None:
        return f"revoked {_day(client.revoked)}"
    if client.previous is not None and utc_now() < client.previous.until:
        return f"good; the previous key until {_time(client.previous.until)}"
    return "good"


def _day(when: datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _time(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")
