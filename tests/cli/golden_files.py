"""Golden files: expected texts beside the tests, written anew with REWRITE_GOLDEN=1."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """Compare a text with its file, or write the file."""
    path = FOLDER / name
    if os.environ.get("REWRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
