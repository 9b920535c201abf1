# SPDX-License-Identifier: Apache-2.0
"""`specnav keys …`: changes a folder of keys and reports the result. Only `export` prints a secret."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cloud_verifier.classes import class_named
from cloud_verifier.security.folder import KeyFolder, client_files, new_pair, read_client
from cloud_verifier.security.keyring import utc_now
from cloud_verifier.security.records import ClientKey, Quota, check_name
from specdec.link.keys import write_key
from specdec.settings import REQUIRED, same_as, setting
from specdec.whole_files import pretty_json
from specnav.errors import UsageError

THE_SERVERS = "the server's bound"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Settings of every `specnav keys` command."""

    keys: Path = setting(Path("keys"), "Folder of keys; a running verifier sees every change.", metavar="FOLDER")

    @property
    def option(self) -> str:
        """The --keys option to suggest for the next command."""
        return "" if self.keys == Keys.keys else f" --keys {self.keys}"


@dataclass(frozen=True, kw_only=True)
class OneClient(Keys):
    """Settings of `revoke`."""

    name: str = setting(REQUIRED, "Name of the client.", metavar="NAME", positional=True)


@dataclass(frozen=True, kw_only=True)
class NewClient(OneClient):
    """Settings of `new`."""

    client_class: str = setting(
        "interactive", "Priority class: robot comes first, then interactive, then batch.", flags=("--class",)
    )
    max_sessions: int | None = setting(None, "Most sessions at a time.", 1, 100_000, shown=THE_SERVERS)
    messages_per_s: float | None = setting(None, "Most messages a second.", 1, 1_000_000, shown=THE_SERVERS)
    queued_mb: float | None = setting(None, "Most megabytes of waiting messages.", 0.001, 100_000, shown=THE_SERVERS)


@dataclass(frozen=True, kw_only=True)
class Rotated(Keys):
    """Settings of `rotate`."""

    name: str | None = same_as(OneClient, "name", default=None)
    server: bool = setting(False, "Rotate the verifier's own key, used from its next start on.")
    grace_hours: float = setting(24.0, "The client's previous key stays valid for this long.", 0, 8760, unit="h")


@dataclass(frozen=True, kw_only=True)
class Exported(OneClient):
    """Settings of `export`."""

    to: Path | None = setting(None, "File to write, mode 0600.", metavar="FILE", shown="stdout")
    forget: bool = setting(False, "Delete the client's secret here afterwards.")


def new_client(asked: NewClient) -> None:
    """Add a client with a new key. Raises VerifierError."""
    name = asked.name
    quota = Quota(asked.max_sessions, asked.messages_per_s, asked.queued_mb)
    of_class = class_named(asked.client_class)
    public, secret = new_pair()
    ring = KeyFolder(asked.keys)
    client = ClientKey(check_name(name), public, utc_now(), of_class, quota)
    ring.create()
    ring.new(client, secret)
    print(f"{name} ({of_class.value}) is admitted; its machine needs the file that this command writes:")
    print(f"  specnav keys export {name} --to {name}.key{asked.option}")


def list_clients(folder: Path, as_json: bool) -> None:
    """Print all clients; invalid client files are reported on stderr. Raises VerifierError for an invalid folder."""
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
        sys.stdout.buffer.write(pretty_json(clients))
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
        print(f"ignored: {line}", file=sys.stderr)


def revoke_client(asked: OneClient) -> None:
    """Revoke a client's key. Raises VerifierError."""
    KeyFolder(asked.keys).revoke(asked.name, utc_now())
    print(f"{asked.name} is revoked; a running verifier shuts it out within about a second")


def rotate(asked: Rotated) -> None:
    """Rotate a client's key or the server's. Raises VerifierError, UsageError."""
    name, ring = asked.name, KeyFolder(asked.keys)
    if asked.server == (name is not None):
        raise UsageError("give the NAME of a client, or --server")
    if name is None:
        ring.rotate_server()
        print(
            "the verifier uses the new key from its next start on; every edge then needs a newly exported key file"
        )
        return
    client = ring.rotate(name, utc_now(), timedelta(hours=asked.grace_hours))
    until = (
        f"the previous one stays valid until {_time(client.previous.until)}"
        if client.previous
        else "the previous one is no longer valid"
    )
    print(f"{name} has a new key, {until}; its machine needs the file that this command writes:")
    print(f"  specnav keys export {name} --to {name}.key{asked.option}")


def export_client(asked: Exported) -> None:
    """Print or write a client's key file. Raises VerifierError, UsageError."""
    name, to, ring = asked.name, asked.to, KeyFolder(asked.keys)
    key = ring.export(name)
    if to is None:
        sys.stdout.buffer.write(pretty_json(key))
        sys.stdout.flush()
    else:
        try:
            write_key(to, key)
        except OSError as error:
            raise UsageError(f"cannot write {to} ({error.strerror})") from error
        print(f"wrote {to}: copy it to {name}'s machine, readable by its user only", file=sys.stderr)
    if asked.forget:
        ring.forget_secret(name)


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
        return f"valid; previous key valid until {_time(client.previous.until)}"
    return "valid"


def _day(when: datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _time(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")
