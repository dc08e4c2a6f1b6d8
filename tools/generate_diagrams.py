"""Generate the diagrams in the documents from the code; ``--check`` only compares.

Each diagram stands between two markers in a document, and everything around them is written by hand.
"""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from cpg_scheduler.preemption.states import TRANSITIONS, Guard, PreemptionState

FILE = Path(__file__).parents[1] / "docs" / "concepts" / "preemption.md"
BEGIN = "<!-- States: generated from cpg_scheduler/preemption/states.py by `make generate`. Do not edit. -->\n"
END = "<!-- End of states. -->\n"


class MarkersMissingError(ValueError):
    """A document without the markers between which its diagram belongs."""


def state_diagram() -> Iterator[str]:
    """Yield the lines of the states of a preemption and the transitions between them."""
    yield "```mermaid\n"
    yield "stateDiagram-v2\n"
    for row in TRANSITIONS:
        guard = f" [{row.guard}]" if row.guard is not Guard.ALWAYS else ""
        source, target = ("[*]" if state is PreemptionState.NEW else state for state in (row.state, row.target))
        yield f"    {source} --> {target}: {row.trigger}{guard}\n"
    yield "```\n"


def with_diagram(document: str) -> str:
    """Return a document with the diagram of now between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise MarkersMissingError(f"expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{''.join(state_diagram())}\n{end}{after}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and show what differs")
    now = FILE.read_text("utf-8")
    expected = with_diagram(now)
    if not parser.parse_args().check:
        FILE.write_text(expected, "utf-8")
        return 0
    difference = difflib.unified_diff(
        now.splitlines(keepends=True), expected.splitlines(keepends=True), "current", "expected"
    )
    sys.stdout.writelines(difference)
    return int(now != expected)


if __name__ == "__main__":
    sys.exit(main())
