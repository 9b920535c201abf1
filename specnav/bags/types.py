# SPDX-License-Identifier: Apache-2.0
"""Message types of a bag: from the bag's own definitions, else from a ROS release, plus types of our own.

Older sqlite3 bags (Humble) hold no definitions; the messages read here did not change between Humble and Kilted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from specnav.bags.storage import BagTopic
from specnav.results.errors import EvaluationError, one_line

DISTROS = {
    "humble": Stores.ROS2_HUMBLE,
    "iron": Stores.ROS2_IRON,
    "jazzy": Stores.ROS2_JAZZY,
    "kilted": Stores.ROS2_KILTED,
}
NEWEST = "kilted"
MOST_CHARS, MOST_FIELDS = 128 * 1024, 1000
"""Bounds on a type definition in a bag; the longest in use have a tenth of this."""
# A damaged message or type definition can make the generated code fail anywhere.
_NOT_A_MESSAGE = (
    SerdeError, TypesysError, LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError,
    MemoryError, RecursionError, struct.error,
)  # fmt: skip
_NO_DEFINITION = (TypesysError, LookupError, ValueError, TypeError, RecursionError)
_MSG_RULE = "=" * 80
_IDL_RULE = f"{_MSG_RULE}\n"


class Types:
    """Decodes and builds messages. own: definitions of types that no ROS release has, by name (package/msg/Name)."""

    def __init__(self, own: Mapping[str, str], distro: str = NEWEST) -> None:
        """distro: a name of DISTROS; for other names the newest is used."""
        self._store = get_typestore(DISTROS.get(distro, DISTROS[NEWEST]))
        self._own = dict(own)
        self._known: dict[str, Typestore] = {}
        self._tried: set[str] = set()
        added = {}
        for name, text in own.items():
            added.update(get_types_from_msg(text, name))
        self._store.register(added)

    @property
    def store(self) -> Typestore:
        """The release's types and our own."""
        return self._store

    def learn(self, topic: BagTopic) -> None:
        """Learn the bag's definition of a topic's type; an unusable one is ignored."""
        if not topic.definition or len(topic.definition) > MOST_CHARS or topic.kind in self._tried:
            return
        self._tried.add(topic.kind)
        try:
            if topic.encoding == "ros2msg":
                types = get_types_from_msg(topic.definition, topic.kind)
            else:
                types = {}
                for part in topic.definition.split(_IDL_RULE)[1:] or [topic.definition]:
                    types.update(
                        get_types_from_idl(part.split("\n", 1)[1] if part.startswith("IDL: ") else part)
                    )
            check_definitions(types)
            store = get_typestore(Stores.EMPTY)
            store.register(types)
        except _NO_DEFINITION:
            return
        if topic.kind in store.types:
            self._known[topic.kind] = store

    def add_missing(self, kind: str, find: Callable[[str], str | None]) -> None:
        """Register a type and the types it contains, if they are unknown. find: returns the .msg text of a type.

        Raises EvaluationError that names a type that cannot be found.
        """
        if kind in self._store.types:
            return
        text = find(kind)
        if text is None:
            raise EvaluationError(f"the definition of {kind} is not installed")
        added = get_types_from_msg(text, kind)
        for name in [node[1] for _, fields in added.values() for _, node in fields if node[0].name == "NAME"]:
            self.add_missing(str(name), find)
        for name in [node[1][0][1] for _, fields in added.values() for _, node in fields if _is_list(node)]:
            self.add_missing(str(name), find)
        self._store.register(added)

    def decode(self, kind: str, data: bytes) -> Any:
        """Decode a message into an object with the fields of its type. Raises EvaluationError if it does not fit."""
        store = self._known.get(kind, self._store)
        if kind not in store.types:
            raise EvaluationError(f"messages of type {kind} cannot be read: the bag does not define it")
        try:
            return store.deserialize_cdr(data, kind)
        except _NOT_A_MESSAGE as error:
            what = one_line(error)
            raise EvaluationError(f"a message is not a {kind}: {what}") from error

    def encode(self, kind: str, values: Mapping[str, Any]) -> bytes:
        """Encode a message; missing fields are zero or empty, nested ones are mappings."""
        return bytes(self._store.serialize_cdr(self._make(kind, values), kind))

    def _make(self, kind: str, values: Mapping[str, Any]) -> Any:
        made: dict[str, Any] = {}
        fields: Any = self._store.fielddefs[kind][1]  # (name, (node type, its details)), nested
        for name, (node, detail) in fields:
            given = values.get(name)
            if node.name == "BASE":
                made[name] = _base(detail[0]) if given is None else given
            elif node.name == "NAME":
                made[name] = self._make(detail, given or {})
            else:
                made[name] = self._array(detail, given)
        if unknown := set(values) - set(made):
            raise EvaluationError(f"{kind} has no field {', '.join(sorted(unknown))}")
        return self._store.types[kind](**made)

    def _array(self, detail: Any, given: Any) -> Any:
        (node, inner), length = detail
        if node.name == "NAME":
            items = given if given is not None else [{}] * length
            return [self._make(inner, item) for item in items]
        if inner[0] == "string":
            return list(given) if given is not None else [""] * length
        kind = {"bool": "bool", "byte": "uint8", "octet": "uint8", "char": "uint8"}.get(inner[0], inner[0])
        return np.zeros(length, kind) if given is None else np.asarray(given, kind)


def fields_of(kind: str, definition: str) -> Any:
    """The fields of a type by its .msg text, however they are written: types with or without their package, defaults
    or none. The text of a type that cannot be read.

    The text may be followed by those of the types it contains.
    """
    text = definition.partition(_MSG_RULE)[0]
    try:
        return get_types_from_msg(text, kind)[kind][1] if len(text) <= MOST_CHARS else text
    except _NO_DEFINITION:
        return text


def check_definitions(types: Mapping[str, Any]) -> None:
    """Raise ValueError for types that would take too long to compile or to read.

    An array of messages without fields takes no bytes, so its length is unbounded.
    """
    if sum(len(fields) for _, fields in types.values()) > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS} fields")
    for _, fields in types.values():
        for _, node in fields:
            if _is_list(node) and not _takes_bytes(str(node[1][0][1]), types):
                raise ValueError("an array of messages without fields")


def _takes_bytes(name: str, types: Mapping[str, Any]) -> bool:
    """Whether a message of a type takes at least one byte."""
    for _, (node, detail) in types[name][1]:
        if node.name in ("BASE", "SEQUENCE"):
            return True
        inner = detail if node.name == "NAME" else detail[0][1]
        if node.name == "ARRAY" and detail[0][0].name == "BASE" and detail[1]:
            return True
        if isinstance(inner, str) and inner in types and _takes_bytes(inner, types):
            return True
    return False


def _is_list(node: Any) -> bool:
    """Whether a field is an array or a sequence of messages."""
    return node[0].name in ("ARRAY", "SEQUENCE") and node[1][0][0].name == "NAME"


def _base(kind: str) -> Any:
    if kind == "string":
        return ""
    if kind == "bool":
        return False
    return 0.0 if kind.startswith("float") else 0
