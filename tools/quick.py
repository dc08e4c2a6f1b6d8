"""Check what has changed, in less than a minute: style, types, import contracts, prose, and the unit tests concerned.

What has changed is what the working tree adds to the last commit; where it is clean, what the last commit changed.
``selection`` decides which tests concern it. Run by ``make quick``; ``make test`` checks everything.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from prose.repository import ROOT, git
from selection import select_tests

BIN = Path(sys.executable).parent
MAX_MODULES_PER_PROCESS = 4
"""So few test files run faster in one process than on several workers, which have to start first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks, one after the other; return the exit code of the first that failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", metavar="COMMIT", help="check what has changed since this commit")
    given = parser.parse_args(arguments)
    base = given.since or base_of(ROOT)
    changed = changed_files(base, ROOT)
    if not changed:
        print(f"Nothing has changed since {base}.")
        return 0
    began = time.monotonic()
    failed: dict[str, int] = {}
    for command in commands(changed, base, ROOT):
        shown = " ".join(map(_shown, command))
        print(f"$ {shown}", flush=True)
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603 - our own tools
            failed[shown] = code
    print(*(f"FAILED: {shown}" for shown in failed), sep="\n", end="\n" * bool(failed))
    print(f"{len(changed)} changed files checked in {time.monotonic() - began:.0f} s; make test checks everything.")
    return next(iter(failed.values()), 0)


def base_of(root: Path) -> str:
    """Return the commit to compare with: the last one, or the one before where the working tree is clean."""
    is_clean = not git("status", "--porcelain", root=root).strip()
    has_parent = is_clean and len(git("rev-list", "--max-count=2", "HEAD", root=root).split()) > 1
    return "HEAD~1" if has_parent else "HEAD"


def changed_files(base: str, root: Path) -> list[str]:
    """Return the files that differ from a commit, deleted and untracked ones included."""
    tracked = git("diff", "--name-only", "--no-renames", "-z", base, root=root)
    untracked = git("ls-files", "-z", "--others", "--exclude-standard", root=root)
    return sorted({*tracked.split("\0"), *untracked.split("\0")} - {""})


def commands(changed: Sequence[str], base: str, root: Path) -> list[list[str]]:
    """Return the commands that check these files, in order: the fastest first."""
    python = [path for path in changed if path.endswith(".py") and (root / path).exists()]
    found = (
        [[_tool("ruff"), "check", "--force-exclude", *python], [_tool("ruff"), "format", "--check", *python]]
        if python
        else []
    )
    found.append([sys.executable, "tools/check_prose.py", "--since", base])
    if python or "pyproject.toml" in changed:
        found += [[_tool("mypy")], [_tool("lint-imports"), "--no-logo"]]
    tests = select_tests(changed, root)
    workers = ["-n", "auto"] if len(tests) > MAX_MODULES_PER_PROCESS else []
    found.append([sys.executable, "-m", "pytest", "-q", "-m", "not e2e and not speed", *workers, *tests])
    return found


def _tool(name: str) -> str:
    return str(BIN / name)


def _shown(word: str) -> str:
    """Return a word of a command as a reader wants to see it."""
    short = os.path.relpath(word, ROOT) if Path(word).is_absolute() else word
    return f'"{short}"' if " " in short else short


if __name__ == "__main__":
    sys.exit(main())
