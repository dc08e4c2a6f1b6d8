"""Parts of sentences: counted nouns, lists of reasons, and the cut of long texts."""

from collections.abc import Sequence

from cpg_engine.verdicts import FilterReason, InvalidPod

MAX_REASONS_LISTED = 4
MAX_CHARACTERS = 1000
"""Characters of a message; an event takes a little more."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed_reasons(reasons: Sequence[FilterReason]) -> str:
    """Return the first reasons, each with its number of nodes, and how many more there are."""
    listed = [f"{reason.nodes} {reason.text}" for reason in reasons[:MAX_REASONS_LISTED]]
    rest = len(reasons) - len(listed)
    return ", ".join([*listed, *([f"and {counted(rest, 'more reason')}"] if rest else [])])


def first_problem(pod: InvalidPod) -> str:
    """Return the first problem of an invalid pod, and how many more there are."""
    rest = len(pod.problems) - 1
    more = f" (and {counted(rest, 'more problem')})" if rest else ""
    return f"{pod.problems[0]}{more}"


def shortened(text: str, ending: str = "") -> str:
    """Return a text with its ending; a text that is too long is cut between two words, and its ending stays whole."""
    room = MAX_CHARACTERS - len(ending)
    if len(text) <= room:
        return text + ending
    return text[: room - 1].rsplit(" ", 1)[0].rstrip(",;:.") + "…" + ending
