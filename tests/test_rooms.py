"""The rooms: who may import whom, no circles of modules or folders. Reads the files, imports nothing."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"spec_vlm_nav": ROOT / "ros2_ws/src/spec_vlm_nav"}
MAY_IMPORT = {
    "specdec": set(),
    "cloud_verifier": {"specdec"},
    "spec_vlm_nav": {"specdec"},
    "navsim": set(),
    "specnav": {"specdec", "cloud_verifier", "navsim", "spec_vlm_nav"},
}
"""The rooms of the house and what each may import beside itself."""
ONLY_FROM = {
    "specnav.cli": set(),
    "specnav.recipes": {"specnav.cli", "specnav.record"},
}
"""Folders that only these others may import."""


@cache
def modules() -> dict[str, Path]:
    """Every module of every room by its full name; a package by the name of its folder."""
    found = {}
    for room in MAY_IMPORT:
        base = PLACES.get(room, ROOT)
        for path in sorted((base / room).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> dict[str, set[str]]:
    """The modules of the house that each one imports, wherever in its text: in functions and for types as well."""
    return {name: imported_by(path.read_text(encoding="utf-8")) - {name} for name, path in modules().items()}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement; `ast.walk` would go through all expressions, too."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, part, ()):
            yield node
            yield from statements(node)


def imported_by(text: str) -> set[str]:
    found = set()
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the house imports by full names"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules() else str(node.module))
    return {name for name in found if name.split(".")[0] in MAY_IMPORT}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes each of which can be reached from every other (Tarjan), and nodes that point to themselves."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            place = stack.index(node)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1 or node in graph.get(node, ()):
                found.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return found


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    assert circles(imports()) == []


def folder_cycles(imported: dict[str, set[str]]) -> list[list[str]]:
    """At every level: the children of one folder, modules and folders as wholes, that import each other in a circle."""
    parents: dict[str, dict[str, set[str]]] = {}
    for name, others in imported.items():
        for other in others:
            here, there = name.split("."), other.split(".")
            level = next(
                (at for at, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), None
            )
            if level:
                children = parents.setdefault(".".join(here[:level]), {})
                children.setdefault(here[level], set()).add(there[level])
    return [
        [f"{parent}.{child}" for child in cycle] for parent, of in parents.items() for cycle in circles(of)
    ]


def test_no_folders_import_each_other_in_a_circle():
    assert folder_cycles(imports()) == []


def test_a_circle_of_folders_is_found_where_no_modules_make_one():
    through_files = {"room.a.x": {"room.b.y"}, "room.b.z": {"room.a.w"}, "room.a.w": {"room.a.x"}}
    assert circles(through_files) == []
    assert folder_cycles(through_files) == [["room.a", "room.b"]]
    module_and_folder = {"room.config": {"room.net.limits"}, "room.net.server": {"room.config"}}
    assert folder_cycles(module_and_folder) == [["room.config", "room.net"]]


def test_no_folders_of_the_benchmark_its_reports_and_the_planner_import_each_other_in_a_circle():
    def folder(name: str) -> str:
        return name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]

    graph: dict[str, set[str]] = {}
    for name, others in imports().items():
        found = {folder(other) for other in others if other in modules()} - {folder(name)}
        graph.setdefault(folder(name), set()).update(found)
    mine = ("specnav.bench", "specnav.report", "specnav.results", "specnav.plan")
    assert not [group for group in circles(graph) if any(name.startswith(mine) for name in group)]


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room):
    found = {
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name.split(".")[0] == room and other.split(".")[0] not in {room, *MAY_IMPORT[room]}
    }
    assert not found


@pytest.mark.parametrize("folder", ONLY_FROM)
def test_a_folder_at_the_top_is_imported_by_few(folder):
    def lies_in(name: str, place: str) -> bool:
        return name == place or name.startswith(f"{place}.")

    found = {
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if lies_in(other, folder) and not any(lies_in(name, place) for place in (folder, *ONLY_FROM[folder]))
    }
    assert not found


def test_what_is_imported_is_there():
    """A name that no module has would slip past the other tests."""
    found = {other for others in imports().values() for other in others} - set(modules())
    assert not found
