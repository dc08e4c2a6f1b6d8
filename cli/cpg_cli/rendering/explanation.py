"""An explanation as text: a headline, then one labelled line for each thing a reader wants to know."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from cpg_api.scheduling.attempts import (
    AttemptFinding,
    BlockingGroup,
    ConsideredDomains,
    LastAttempt,
    NodeRejection,
    SuggestedStep,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.analysis.answers import ExplainAnswer
from cpg_cli.rendering.ages import short_age

LABEL_WIDTH = 12
WIDTH = 100
CHECKED = "checked"
MAX_REASONS = 5
DOUBTS: Mapping[str, str] = {
    AttemptFinding.OUT_OF_BUDGET: "the search has used up its budget, and a placement may exist; at last ",
    AttemptFinding.NOT_FOUND: "no placement was found, and one may exist; at last ",
}
"""What comes first where a failed search proves nothing."""
MINUTE, HOUR = 60, 3600


def print_explanation(console: Console, answer: ExplainAnswer, *, now: float) -> None:
    """Print an answer as text."""
    for label, line in _lines(answer, now):
        text = Text(line)
        if label:
            text = Text.assemble((label.ljust(LABEL_WIDTH), "bold cyan"), line)
        elif not line.startswith(" "):
            text.stylize("bold")
        if line.endswith(CHECKED):
            text.stylize("green", len(text) - len(CHECKED))
        console.print(text)


def _lines(answer: ExplainAnswer, now: float) -> Iterator[tuple[str, str]]:
    yield "", _headline(answer, now)
    for label, text in _facts(answer):
        yield from _wrapped(label, [text])
    yield from _aligned("FITS IF", [one.text for one in answer.fits_if])
    if answer.unchecked:
        yield from _wrapped("", [f"{answer.unchecked} more kinds of changes were not checked: no time left"])
    if answer.attempt is not None and answer.attempt.next_step is not None:
        yield from _wrapped("NEXT", [_next_text(answer.attempt.next_step, answer.message)])
    yield from _wrapped("SOURCE", [answer.source.text, *answer.source.missing])


def _headline(answer: ExplainAnswer, now: float) -> str:
    details = []
    if answer.attempt is not None and answer.attempt.number:
        details.append(f"attempt {answer.attempt.number}")
    if answer.attempt is not None and answer.attempt.time:
        details.append(f"{short_age(answer.attempt.time, now)} ago")
    facts = "; ".join(filter(None, [", ".join(details), answer.next_attempt]))
    name = answer.tree.name if answer.tree.kind != "Pod" else f"pod {answer.tree.name}"
    return f"{name} {answer.summary}" + (f" ({facts})" if facts else "")


def _next_text(step: SuggestedStep, message: str) -> str:
    """Return the next step; where it only repeats what is wrong, which object is to be corrected."""
    if step.text and not message.startswith(step.text):
        return step.text
    return f"correct {step.kind} {step.name} or its pods; fields that cannot be changed need a new object"


def _facts(answer: ExplainAnswer) -> Iterator[tuple[str, str]]:
    attempt = answer.attempt
    if attempt is not None and attempt.blocked_at is not None:
        yield "BLOCKED AT", blocked_text(attempt.blocked_at, attempt)
    elif attempt is not None and attempt.next_step is not None and attempt.next_step.name:
        yield "BLOCKED AT", f"{attempt.next_step.kind} {attempt.next_step.name}"
    if answer.state in {"Waiting", "Nominated"}:
        yield "WHY", why_text(answer)
        if attempt is not None and attempt.devices is not None:
            yield "DEVICES", attempt.devices.text
    if answer.preemption is not None:
        yield "PREEMPTION", answer.preemption.text


def blocked_text(blocking: BlockingGroup, attempt: LastAttempt) -> str:
    """Return which group blocks, for how much of it there is room, and which domain is closest."""
    parts = []
    closest = attempt.domains.closest[0] if attempt.domains and attempt.domains.closest else None
    if blocking.kind == "Pod":
        parts.append(f"0 of {attempt.nodes} nodes are available" if attempt.nodes else "no node is available")
    elif attempt.finding == AttemptFinding.INADMISSIBLE and blocking.minimum is not None:
        missing = attempt.next_step.count if attempt.next_step and attempt.next_step.count else 0
        parts.append(f"has {blocking.minimum - missing} of {_members(blocking, blocking.minimum)}")
    elif closest is not None and closest.shortage:
        parts.append(f"room for {closest.fits} of {_members(blocking, closest.fits + closest.shortage, pods=True)}")
    elif blocking.minimum is not None:
        parts.append(f"room for {blocking.scheduled or 0} of {_members(blocking, blocking.minimum)}")
    if closest is not None and attempt.domains is not None:
        parts.append(_closest_text(attempt.domains))
    return f"{blocking.name}: {'; '.join(parts)}" if parts else f"{blocking.kind} {blocking.name}"


def _members(blocking: BlockingGroup, number: int, *, pods: bool = False) -> str:
    noun = "pod" if pods or blocking.kind == PodGroup.kind else "group"
    return f"{number} {noun}{'s' * (number != 1)}"


def _closest_text(domains: ConsideredDomains) -> str:
    if not domains.closest:
        return ""
    noun = level_name(domains.key)
    if domains.considered == 1:
        return f"{domains.closest[0].domain} is the only possible {noun}"
    return f"{domains.closest[0].domain} is the closest of {domains.considered} {noun}s"


def level_name(key: str) -> str:
    """Return how people call the domains of a label: its last word."""
    return key.rpartition("/")[2].rpartition(".")[2]


def why_text(answer: ExplainAnswer) -> str:
    """Return the reasons of the nodes, or else the message of the scheduler."""
    attempt = answer.attempt
    if attempt is None:
        return answer.message
    reasons: Sequence[NodeRejection] = attempt.reasons or ()
    if not reasons and attempt.domains is not None and attempt.domains.closest:
        reasons = attempt.domains.closest[0].reasons or ()
    if attempt.finding == AttemptFinding.INADMISSIBLE or not (reasons or attempt.domains):
        return answer.message or attempt.finding
    if not reasons and attempt.domains is not None:
        lacking = "devices" if attempt.devices is not None else "nodes"
        return f"none of {attempt.domains.considered} {level_name(attempt.domains.key)}s has enough {lacking}"
    return DOUBTS.get(attempt.finding, "") + ", ".join(map(_reason_text, reasons[:MAX_REASONS]))


def _reason_text(reason: NodeRejection) -> str:
    text = reason.text.removeprefix("node(s) ")
    is_of_nodes = text != reason.text or text.startswith("Insufficient ")
    return f"{reason.nodes} node{'s' * (reason.nodes != 1)} {text}" if is_of_nodes else text


def _aligned(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield texts, each with the mark that it was checked, in a column where there is room for it."""
    room = WIDTH - LABEL_WIDTH - len(CHECKED) - 2
    column = min(max(map(len, texts), default=0), room)
    for text in texts:
        *before, last = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        for line in before:
            yield label, line
            label = " "
        yield label, f"{last.ljust(column)}  {CHECKED}"
        label = " "


def _wrapped(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        for line in textwrap.wrap(text, WIDTH - LABEL_WIDTH, break_on_hyphens=False):
            yield label or " ", line
            label = " "
