"""The answer of ``explain``: the same fields whichever source it comes from. ``-o json`` writes it as it is."""

from msgspec import Struct

from cpg_api.scheduling.attempts import LastAttempt
from cpg_cli.analysis.assessment import PlannedEviction, PreemptionAnswer


class FitsIf(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change after which the tree is placed; with ``evictions``, once these pods have ended."""

    kind: str
    text: str
    checked: bool = True
    evictions: tuple[PlannedEviction, ...] = ()


class TreeName(Struct, frozen=True, rename="camel"):
    """The root of a tree, or a pod in no group; the flavour is crd or native, and empty for a pod."""

    flavour: str
    kind: str
    namespace: str
    name: str


class AnswerSource(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where an answer comes from: view, scheduler or status; and what is missing in it."""

    name: str
    text: str
    missing: tuple[str, ...] = ()


class ExplainAnswer(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a tree or pod waits, or where it is.

    ``state`` is Waiting, Nominated, Fits (it will be placed at the next attempt), Placed, Finished, Terminating or
    OtherScheduler. ``attempt`` has the fields of ``status.attempt``.
    """

    tree: TreeName
    state: str
    summary: str
    reason: str = ""
    message: str = ""
    attempt: LastAttempt | None = None
    preemption: PreemptionAnswer | None = None
    fits_if: tuple[FitsIf, ...] = ()
    unchecked: int = 0
    """Kinds of changes that there was no time to check."""
    next_attempt: str = ""
    source: AnswerSource
