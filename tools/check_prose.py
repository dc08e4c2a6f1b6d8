"""Check prose for riddle words: the whole tree, some paths, or only the lines that a change adds.

Without options the density of each area is printed. With paths, ``--staged`` or ``--since`` every riddle word found is
printed, and the check fails where there is one.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from prose.repository import ROOT, changed_lines, files, staged_lines, staged_text
from prose.riddles import ADVICE, Density, Riddle, area, density, is_checked, riddles, total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help="files or folders to search")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--staged", action="store_true", help="search the lines that the next commit adds")
    scope.add_argument("--since", metavar="COMMIT", help="search the lines that the working tree adds to a commit")
    given = parser.parse_args(arguments)
    if not (given.paths or given.staged or given.since):
        print_densities()
        return 0
    found = list(search(given))
    print(*found, sep="\n", end="\n" * bool(found))
    if found:
        print(f"{len(found)} riddle words; {ADVICE}.", file=sys.stderr)
    return int(bool(found))


def search(given: argparse.Namespace) -> Iterator[Riddle]:
    """Yield the riddle words of what the command line names."""
    if given.staged:
        for path, lines in staged_lines().items():
            if is_checked(path) and lines:
                yield from riddles(path, staged_text(path), lines)
    elif given.since:
        for path, lines in changed_lines(given.since).items():
            if is_checked(path):
                yield from riddles(path, _text(path), lines)
    else:
        folders = tuple(f"{path.rstrip('/')}/" for path in given.paths)
        for path in files():
            if is_checked(path) and (path in given.paths or path.startswith(folders)):
                yield from riddles(path, _text(path))


def densities() -> dict[str, Density]:
    """Return the density of each area of the tree."""
    found: dict[str, list[Density]] = defaultdict(list)
    for path in files():
        if is_checked(path):
            found[area(path)].append(density(path, _text(path)))
    return {name: total(found[name]) for name in sorted(found)}


def print_densities() -> None:
    """Print a row for each area, and the sum."""
    rows = densities()
    for name, one in [*rows.items(), ("all", total(rows.values()))]:
        print(f"{name:26} {one.riddles:5} of {one.words:7,} words  {one.per_thousand:5.1f} per 1,000")


def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main())
