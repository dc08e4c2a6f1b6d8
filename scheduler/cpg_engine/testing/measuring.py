"""How much work something is, whatever machine it is done on."""

import sys
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called in some work: a measure of it that does not depend on the machine."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
