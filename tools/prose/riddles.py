"""Riddle words: personal pronouns for objects, which hide the subject of a sentence.

The subject is the thing: the pod, the group, the node, the plan, the request. So ``the pods that wait`` and not "who
waits", ``no pod fits`` and not "nobody fits". A few in a thousand words are left for people.
"""  # prose: quotation

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath
from typing import NamedTuple

from prose.extraction import Line, is_readable, prose

RIDDLE = re.compile(r"\b(who|whom|whoever|whose|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
ADVICE = "name the thing instead: pod, group, unit, node, plan, request, replica; for people: users, operators"
EXCLUDED = {
    "LICENSE": "the text of the licence",
    "tools/prose/riddles.py": "lists the words",
    "tests/tools/prose/test_riddles.py": "searches for the words",
}
_IN_FOLDERS = ("bench/results/", "lab/go/promcheck/histories/")
_WORD = re.compile(r"[A-Za-z']{2,}")
_CONTEXT = 45
"""Characters that are shown before and after a riddle word."""


class Riddle(NamedTuple):
    """A riddle word, its place, and the words around it."""

    path: str
    line: int
    word: str
    context: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.word}" in "{self.context}"'


class Density(NamedTuple):
    """Riddle words among all words."""

    riddles: int
    words: int

    @property
    def per_thousand(self) -> float:
        """Riddle words in 1,000 words."""
        return 1000 * self.riddles / max(self.words, 1)


def is_checked(path: str) -> bool:
    """Return whether the prose of a file counts."""
    return is_readable(path) and path not in EXCLUDED and not path.startswith(_IN_FOLDERS)


def riddles(path: str, text: str, only: AbstractSet[int] | None = None) -> Iterator[Riddle]:
    """Yield the riddle words of a file, or those on some of its lines."""
    for line in prose(path, text):
        if only is None or line.number in only:
            yield from _in_line(path, line)


def _in_line(path: str, line: Line) -> Iterator[Riddle]:
    for match in RIDDLE.finditer(line.text):
        around = line.text[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT]
        yield Riddle(path, line.number, match[0], " ".join(around.split()))


def density(path: str, text: str) -> Density:
    """Return how many riddle words a file has among how many words."""
    lines = [line.text for line in prose(path, text)]
    return Density(sum(len(RIDDLE.findall(line)) for line in lines), sum(len(_WORD.findall(line)) for line in lines))


def total(densities: Iterable[Density]) -> Density:
    """Return the density of several files together."""
    counts: Counter[str] = Counter()
    for one in densities:
        counts.update(riddles=one.riddles, words=one.words)
    return Density(counts["riddles"], counts["words"])


def area(path: str) -> str:
    """Return the part of the tree to which a file belongs: a package, a folder of tests, or a folder at the top."""
    folders = PurePosixPath(path).parts[:-1]
    has_parts = folders[:1] and folders[0] in {"api", "scheduler", "tests"}
    return "/".join(folders[: 2 if has_parts else 1]) or "."
