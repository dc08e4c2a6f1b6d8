"""Files and added lines, as git knows them."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"^\+\+\+ b/(.+?)\t?$")
_HUNK = re.compile(r"^@@ -\S+ \+(?P<first>\d+)(?:,(?P<count>\d+))? @@")


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return what git prints."""
    command = ["git", "-c", "core.quotePath=off", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=True).stdout  # noqa: S603 - the arguments are ours


def files(root: Path = ROOT) -> list[str]:
    """Return the files that are tracked or about to be."""
    listing = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", root=root)
    return sorted({path for path in listing.split("\0") if path and (root / path).is_file()})


def staged_lines(root: Path = ROOT) -> Mapping[str, AbstractSet[int]]:
    """Return the numbers of the lines that the next commit adds, by file."""
    return added_lines(git("diff", "--cached", "--unified=0", "--no-color", "--no-ext-diff", root=root))


def staged_text(path: str, root: Path = ROOT) -> str:
    """Return a file as the next commit has it."""
    return git("show", f":{path}", root=root)


def changed_lines(base: str, root: Path = ROOT) -> Mapping[str, AbstractSet[int]]:
    """Return the numbers of the lines that the working tree adds to a commit, by file; untracked files count whole."""
    found = dict(added_lines(git("diff", "--unified=0", "--no-color", "--no-ext-diff", base, root=root)))
    for path in git("ls-files", "-z", "--others", "--exclude-standard", root=root).split("\0"):
        if path and (root / path).is_file():
            found[path] = set(range(1, (root / path).read_bytes().count(b"\n") + 2))
    return found


def added_lines(diff: str) -> Mapping[str, AbstractSet[int]]:
    """Return the numbers of the lines that a diff without context adds, by file."""
    found: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in diff.splitlines():
        if file := _FILE.match(line):
            path = file[1]
        elif hunk := _HUNK.match(line):
            first = int(hunk["first"])
            found[path].update(range(first, first + int(hunk["count"] or 1)))
    return found
