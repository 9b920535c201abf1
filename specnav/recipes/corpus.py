# SPDX-License-Identifier: Apache-2.0
"""The corpus: the running interpreter's standard library without its tests, which every machine has.

A *document* is a cleaned source file or a help topic. A *talk* is a question and its answer, made from one function:
the question is its docstring or name, the answer its source or docstring. Whole files are held back for validation,
never parts of them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import random
import re
import sysconfig
import textwrap
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

from specnav.recipes.errors import TrainingError

TEST_FOLDERS = frozenset({"test", "tests", "idle_test", "__phello__", "site-packages", "dist-packages"})
TABLE_FOLDERS = frozenset({"encodings"})
"""Folders of character tables: much of the library's size, but nothing to learn."""
TOPICS = "pydoc_data/topics.py"
VALIDATION_ONE_IN = 20
SHORTEST_FILE = 200
LONGEST_QUESTION = 400
SHORTEST_ANSWER, LONGEST_ANSWER, SHORTEST_PROSE = 120, 1200, 160
"""In characters. Accessors of two lines would teach the model to give empty answers."""

CODE_QUESTIONS = (
    "{about}",
    "Write a function that does the following: {about}",
    "{about} Show me the code.",
    "Implement this in Python. {about}",
    "How would you write it? {about}",
)
NAME_QUESTIONS = (
    "Write the function {name} of {module}.",
    "What does the code of {name} look like?",
    "Implement {name}.",
    "Show me how {module} does {name}.",
)
PROSE_QUESTIONS = (
    "What does {name} do?",
    "Explain {name} in the module {module}.",
    "Describe what {name} is for, and how it is used.",
    "Can you tell me about {name}?",
    "How does {name} work?",
)


@dataclass(frozen=True)
class Talk:
    """One question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class CorpusPart:
    """One half of the corpus. prose: English paragraphs, for questions of no particular form."""

    files: tuple[str, ...]
    documents: tuple[str, ...]
    talks: tuple[Talk, ...]
    prose: tuple[str, ...]

    @property
    def characters(self) -> int:
        """Length of all documents."""
        return sum(map(len, self.documents))


@dataclass(frozen=True)
class Corpus:
    """The training and validation parts of the corpus."""

    train: CorpusPart
    validation: CorpusPart


def library_folder() -> Path:
    """The running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def library_files(root: Path) -> list[str]:
    """Source files below `root` as sorted POSIX paths, without tests and character tables."""
    found = []
    for file in root.rglob("*.py"):
        path = file.relative_to(root)
        if not (TEST_FOLDERS | TABLE_FOLDERS) & set(path.parts[:-1]) and not path.parts[0].startswith(
            "config-"
        ):
            found.append(path.as_posix())
    return sorted(found)


def is_held_back(path: str) -> bool:
    """Whether a file is for validation; depends only on its name, so that the split is stable across versions."""
    return hashlib.sha256(path.encode()).digest()[0] % VALIDATION_ONE_IN == 0


@functools.cache
def library() -> Corpus:
    """The corpus of this interpreter's library, read once: it takes seconds. Raises TrainingError."""
    return read_corpus(library_folder())


def read_corpus(root: Path) -> Corpus:
    """Read and split the library below `root`. Raises TrainingError if there is too little to train on."""
    halves: dict[bool, dict[str, list]] = {
        held_back: {"files": [], "documents": [], "talks": [], "prose": []} for held_back in (False, True)
    }
    seen: set[str] = set()
    for path in library_files(root):
        source = read_source(root / path)
        if source is None or len(source) < SHORTEST_FILE or source in seen:
            continue
        seen.add(source)
        half = halves[is_held_back(path)]
        topics = read_topics(source) if path == TOPICS else []
        half["files"].append(path)
        half["documents"].extend([text for _, text in topics] or [source])
        half["talks"].extend(topic_talks(topics) or source_talks(source, path))
        half["prose"].extend(
            [part for _, text in topics for part in paragraphs(text)] or source_prose(source)
        )
    parts = [
        CorpusPart(**{name: tuple(found) for name, found in halves[held_back].items()})
        for held_back in (False, True)
    ]
    if any(not part.talks for part in parts):
        raise TrainingError(
            f"{root} has no Python sources to train on: use an interpreter with its library's .py files, "
            "or name another folder with --library"
        )
    return Corpus(*parts)


def read_source(file: Path) -> str | None:
    """Read and clean a source file; None if it is not text in its declared encoding."""
    try:
        with tokenize.open(file) as opened:
            return clean(opened.read())
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def clean(source: str) -> str:
    """Remove the licence at the top, trailing blanks and runs of empty lines."""
    lines = [line.rstrip() for line in source.expandtabs(8).splitlines()]
    head = 0
    while head < len(lines) and (not lines[head] or lines[head].startswith("#")):
        head += 1
    if re.search(r"copyright|licen[sc]e", "\n".join(lines[:head]), re.IGNORECASE):
        lines = lines[head:]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines).strip("\n") + "\n")


def read_topics(source: str) -> list[tuple[str, str]]:
    """(name, text) of the interpreter's help topics, which are prose; empty if they are not in one dict."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            found = ast.literal_eval(node.value)
            return [(name, clean(text)) for name, text in found.items()]
    return []


def topic_talks(topics: list[tuple[str, str]]) -> list[Talk]:
    """One talk per topic: a question about it, answered by its beginning."""
    return [
        Talk(_pick(PROSE_QUESTIONS[:-1], name).format(name=name, module="python"), answer)
        for name, text in topics
        if (answer := _beginning(re.sub(r"^.*\n[*=]{4,}\n+", "", text)))
    ]


def source_talks(source: str, path: str) -> list[Talk]:
    """One or two talks for every function of a module."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if (tree := _parsed(source)) is None:
        return []
    talks, lines = [], source.split("\n")
    for owner, node in _functions(tree):
        code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        if not SHORTEST_ANSWER <= len(code) <= LONGEST_ANSWER:
            continue
        name = f"{owner}.{node.name}" if owner else node.name
        said = ast.get_docstring(node)
        about = first_paragraph(said) if said else ""
        question = _pick(CODE_QUESTIONS if about else NAME_QUESTIONS, module + name)
        talks.append(Talk(question.format(about=about, name=name, module=module), code))
        if said and len(said) >= SHORTEST_PROSE and (answer := _beginning(said)):
            talks.append(Talk(_pick(PROSE_QUESTIONS, name + module).format(name=name, module=module), answer))
    return talks


def source_prose(source: str) -> list[str]:
    """The paragraphs of a module's docstrings."""
    if (tree := _parsed(source)) is None:
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    return [part for text in said if text for part in paragraphs(text)]


def paragraphs(text: str) -> list[str]:
    """Paragraphs of unindented prose, each on one line."""
    found = []
    for part in re.split(r"\n\s*\n", text):
        words = " ".join(part.split())
        if (
            not part.startswith((" ", ">>>"))
            and 40 <= len(words) <= LONGEST_QUESTION
            and words.count(" ") >= 6
        ):
            found.append(words)
    return found


def first_paragraph(text: str) -> str:
    """The first paragraph on one line, cut after a sentence if it is long."""
    words = " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())
    if len(words) <= LONGEST_QUESTION:
        return words
    return words[:LONGEST_QUESTION].rsplit(". ", 1)[0].rstrip(".") + "."


def invent_questions(part: CorpusPart, count: int, rng: random.Random) -> list[str]:
    """Questions for a model: half are the part's own questions, half are one or two paragraphs of prose."""
    questions = []
    for index in range(count):
        if index % 2 or not part.prose:
            questions.append(rng.choice(part.talks).question)
        else:
            questions.append(" ".join(rng.sample(part.prose, min(1 + index // 2 % 2, len(part.prose)))))
    return questions


def _parsed(source: str) -> ast.Module | None:
    """The parsed source; None if this interpreter cannot parse it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in third-party code
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _beginning(text: str) -> str:
    """The first whole paragraphs of a text, as many as fit into an answer."""
    out = ""
    for part in re.split(r"(?<=\n)\n+", text.strip() + "\n"):
        if len(out) + len(part) > LONGEST_ANSWER:
            break
        out += ("\n" if out else "") + part
    return out.strip("\n")


def _functions(tree: ast.Module):
    """Functions of a module and of its classes, in order: (class name or "", node)."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield node.name, inner


def _pick(choices: tuple[str, ...], key: str) -> str:
    """A choice determined by the key."""
    return choices[int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % len(choices)]
