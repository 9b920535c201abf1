# SPDX-License-Identifier: Apache-2.0
"""Reads sqlite3 files of a bag (`.db3`), including a killed recording's write-ahead log or journal.

Recordings are never modified: sqlite repairs a copy. Rows are read by row number, without the file's indexes.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from specnav.bags.storage import (
    BagMessage,
    BrokenFile,
    Budget,
    FileTally,
    MessageRun,
    TooLarge,
    not_cdr,
    plain_message,
    type_name,
)

_WAL_HEADER, _FRAME_HEADER = 32, 24
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")

_MOST_TOPICS = 10_000
_LOWEST_ROW = -(2**63)

DAMAGED = "the database is damaged"
TOO_MANY = "there are more of them than is allowed for a file of this size"
NO_TOPIC = "the file does not define their topics"
NO_VALUE = "their row has no time or no data"
BROKEN_MESSAGE = "they are cut off or cannot be decompressed"


class SqliteStorage:
    """A database file, scanned completely when it is opened. Raises BrokenFile, OSError."""

    def __init__(self, path: Path, name: str = "") -> None:
        """name: the original name, if it was unpacked from another file."""
        self.path, self.name, self.tally = path.resolve(), name or path.name, FileTally()
        path = self.path  # resolved, because a log lies next to the file itself
        self._database, self._unchanged = path, True
        self._size = path.stat().st_size
        self._topics: dict[int, tuple[str, str]] = {}  # name, type
        self._rows: dict[int, tuple[array[int], array[int]]] = {}  # times and row numbers, by topic number
        if beside := [file for file in (_beside(path, "-wal"), _beside(path, "-journal")) if file is not None]:
            self._copy(beside)
        elif not self._size:
            raise BrokenFile("it is empty")
        try:
            with closing(self._connect()) as database:
                self._read_topics(database)
                self._look(database)
        except (sqlite3.Error, ValueError) as error:
            raise BrokenFile(str(error)) from error

    def runs(self, wanted: Mapping[str, str]) -> Iterable[MessageRun]:
        """One run for every wanted topic; rows are read on demand."""
        for number, (name, kind) in self._topics.items():
            times, rows = self._rows.get(number, (array("q"), array("q")))
            if wanted.get(name) == kind and times:
                order = sorted(range(len(times)), key=times.__getitem__)
                yield MessageRun(times[order[0]], 0, partial(self._load, name, times, rows, order))

    def _load(self, topic: str, times: array[int], rows: array[int], order: list[int]) -> Iterator[BagMessage]:
        budget = Budget.from_file_bytes(self._size)
        with closing(self._connect()) as database:
            for place in order:
                query = "SELECT data FROM messages WHERE rowid=?"
                (data,) = database.execute(query, (rows[place],)).fetchone()
                yield BagMessage(topic, times[place], plain_message(data, budget))

    def _connect(self) -> sqlite3.Connection:
        uri = self._database.absolute().as_uri() + ("?mode=ro&immutable=1" if self._unchanged else "")
        database = sqlite3.connect(uri, uri=True)
        database.execute("PRAGMA trusted_schema=OFF")
        database.text_factory = lambda data: data.decode(errors="replace")
        return database

    def _copy(self, beside: list[Path]) -> None:
        """Let sqlite repair a copy: in place it would modify the recording, which read-only media do not allow."""
        folder = Path(mkdtemp(prefix="specnav-bag-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            for file in (self.path, *beside):
                shutil.copyfile(file, folder / file.name)
        except OSError as error:
            raise BrokenFile(
                f"{beside[0].name} next to it is also needed, and cannot be copied to {folder.parent}: "
                f"{error.strerror or error}"
            ) from error
        self._size += sum(file.stat().st_size for file in beside)
        self._database, self._unchanged = folder / self.path.name, False
        for file in beside:
            if file.name.endswith("-wal"):
                self._say_log(file)
            else:
                self.tally.skip(f"{file.name} next to it rolls back an unfinished transaction", None)

    def _say_log(self, log: Path) -> None:
        frames, held = _frames_of(log)
        try:
            with closing(self._connect()) as database:
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                (_, read, _) = database.execute("PRAGMA wal_checkpoint").fetchone()
        except sqlite3.Error:
            return  # the database is unreadable, which is reported later
        self.tally.notes.append(f"{self.name}: the recording was killed; {log.name} is read as well")
        if 0 <= read < held:
            self.tally.skip(
                f"{held - read} of {frames} pages in {log.name} are damaged or incomplete", None
            )

    def _read_topics(self, database: sqlite3.Connection) -> None:
        tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type='table'"))
        for table in ("topics", "messages"):
            if table not in tables:
                raise BrokenFile(f"it has no table {table}")
            # Computed columns could hold anything, of any size.
            query = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden<>0"
            (computed,) = database.execute(query, (table,)).fetchone()
            if computed or not str(tables[table]).upper().startswith("CREATE TABLE"):
                raise BrokenFile(f"its table {table} is not one of rosbag2's")
        formats = {}
        columns = {row[1] for row in database.execute("PRAGMA table_info(topics)")}
        offered = "offered_qos_profiles" if "offered_qos_profiles" in columns else "''"
        query = f"SELECT id, name, type, serialization_format, {offered} FROM topics LIMIT {_MOST_TOPICS}"
        for number, name, kind, encoding, profiles in database.execute(query):
            if isinstance(name, str) and isinstance(kind, str):
                formats[number] = encoding
                self._topics[number] = (name, type_name(kind))
                self.tally.offer(name, str(profiles or ""))
        self._formats = formats
        with suppress(sqlite3.DatabaseError):  # messages can be read without definitions
            self._read_definitions(database, tables)

    def _read_definitions(self, database: sqlite3.Connection, tables: Mapping[str, str]) -> None:
        if "message_definitions" in tables:
            query = (
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions "
                f"LIMIT {_MOST_TOPICS}"
            )
            for kind, encoding, text in database.execute(query):
                self.tally.definitions[type_name(str(kind))] = (str(text), str(encoding))
        if "schema" in tables:
            columns = {row[1] for row in database.execute("PRAGMA table_info(schema)")}
            if "ros_distro" in columns and (row := database.execute("SELECT ros_distro FROM schema").fetchone()):
                self.tally.distro = str(row[0] or "")

    def _look(self, database: sqlite3.Connection) -> None:
        """Read every row: forward up to any damage, then backward from the end."""
        budget = Budget.from_file_bytes(self._size)
        last = self._read_rows(database, "rowid >= ? ORDER BY rowid", _LOWEST_ROW, budget)
        if last is None:
            return
        lowest = self._read_rows(database, "rowid > ? ORDER BY rowid DESC", last, budget)
        known = lowest is not None and lowest > last > _LOWEST_ROW  # assumes row numbers without gaps
        self.tally.skip(DAMAGED, lowest - last - 1 if known and lowest is not None else None)

    def _read_rows(self, database: sqlite3.Connection, where: str, bound: int, budget: Budget) -> int | None:
        """Read rows; returns the last one read if damage ended the reading, else None."""
        last = bound
        # "AS" is needed because a damaged column name may not be valid text, which Python refuses.
        query = f"SELECT rowid AS id, topic_id AS topic, timestamp AS time, data AS data FROM messages WHERE {where}"
        rows = database.execute(query, (bound,))
        try:
            for row, topic, time_ns, data in rows:
                budget.take(len(data) if isinstance(data, bytes) else 0, 1)
                last = row
                self._take(row, topic, time_ns, data, budget)
        except sqlite3.DatabaseError:
            return last
        except TooLarge:
            self.tally.skip(TOO_MANY, None)
        return None

    def _take(self, row: int, topic: object, time_ns: object, data: object, budget: Budget) -> None:
        if not isinstance(topic, int) or topic not in self._topics:
            self.tally.skip(NO_TOPIC)
        elif self._formats[topic] != "cdr":
            self.tally.skip(not_cdr(str(self._formats[topic])))
        elif not isinstance(time_ns, int) or not isinstance(data, bytes):
            self.tally.skip(NO_VALUE)
        else:
            try:
                plain = plain_message(data, budget)
            except (ValueError, TooLarge):
                self.tally.skip(BROKEN_MESSAGE)
                return
            name, kind = self._topics[topic]
            times, rows = self._rows.setdefault(topic, (array("q"), array("q")))
            times.append(time_ns)
            rows.append(row)
            self.tally.add(name, kind, time_ns, plain)


def _beside(path: Path, ending: str) -> Path | None:
    """The log or journal of a database, if it exists and holds data."""
    file = path.with_name(path.name + ending)
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        begins = stream.read(len(_JOURNAL_MAGIC))
    # A journal without its magic bytes is finished; a log that is only a header is empty.
    useful = begins == _JOURNAL_MAGIC if ending == "-journal" else file.stat().st_size > _WAL_HEADER
    return file if useful else None


def _frames_of(log: Path) -> tuple[int, int]:
    """(pages in a write-ahead log, pages of its last use); pages after those are leftovers."""
    size = log.stat().st_size
    with log.open("rb") as stream:
        header = stream.read(_WAL_HEADER)
        (page,) = struct.unpack_from(">I", header, 8)
        if not 512 <= page <= 65536:
            return 0, 0
        frames = (size - _WAL_HEADER) // (page + _FRAME_HEADER)
        held = 0
        for number in range(frames):
            stream.seek(_WAL_HEADER + number * (page + _FRAME_HEADER) + 8)
            if stream.read(8) != header[16:24]:
                break
            held = number + 1
    return frames, held
