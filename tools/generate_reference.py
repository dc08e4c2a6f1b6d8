"""Generate the pages of the reference from the code; ``--check`` only compares."""

import argparse
import difflib
import sys
from pathlib import Path

from reference import api, conditions, executables, settings

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES = {"api.md": api, "conditions.md": conditions, "settings.md": settings, "executables.md": executables}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and show what differs")
    expected = {FOLDER / name: module.page() for name, module in PAGES.items()}
    if not parser.parse_args().check:
        for path, text in expected.items():
            path.write_text(text, "utf-8")
        return 0
    differences = [line for path, text in expected.items() for line in _difference(path, text)]
    sys.stdout.writelines(differences)
    return bool(differences)


def _difference(path: Path, text: str) -> list[str]:
    now = path.read_text("utf-8") if path.exists() else ""
    lines = (now.splitlines(keepends=True), text.splitlines(keepends=True))
    return list(difflib.unified_diff(*lines, f"{path.name} (current)", f"{path.name} (expected)"))


if __name__ == "__main__":
    sys.exit(main())
