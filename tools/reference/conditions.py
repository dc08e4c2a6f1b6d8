"""The page of conditions and events: their names and reasons, each with what the code says where it is defined."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

from cpg_api.scheduling import health, names, partial_release
from cpg_api.scheduling.health import HealthReason
from cpg_operator.workloads import instantiation
from cpg_operator.workloads.plan import Reason
from cpg_scheduler.binding import binder
from reference.sources import UndocumentedError, escaped, need, told_about

HEADER = """\
# Conditions and events

<!-- Generated from the code by `python tools/generate_reference.py`. Do not edit. -->

What a group or pod is told stands in its conditions, and what is new in it is an event as well. Where a number in a
message is all that changes, it follows within seconds, and is no event. Messages are for people and may change; types
and reasons are what programs may rely on. Nothing is ever silent: the API server itself gives a new group the first
condition, with the reason `Pending`.

| on | condition | says whether |
| --- | --- | --- |
| pods | `PodScheduled`, `DisruptionTarget` | as with kube-scheduler |
| groups | `…InitiallyScheduled`, `DisruptionTarget` | it was ever placed; it is being evicted as a whole |
| groups | `Healthy` | its minimum is met now |
| roots | `Partial` | only a part of the minimum holds nodes |
| Workloads | `Instantiated` | its groups are there |
"""


@dataclass(frozen=True)
class Told:
    """A name, where it is defined, and in which module or class that is."""

    where: ModuleType | type[StrEnum]
    name: str

    @property
    def value(self) -> str:
        """What users see."""
        return str(getattr(self.where, self.name))

    @property
    def about(self) -> str:
        """What the code says about it."""
        return escaped(need(told_about(self.where), self.name, self.where))


@dataclass(frozen=True)
class Condition:
    """A condition with its reasons, by the status that each comes with."""

    names: tuple[Told, ...]
    writer: str
    reasons: tuple[tuple[str, Told], ...]


def _all(where: type[StrEnum], status: str, but: str = "") -> tuple[tuple[str, Told], ...]:
    return tuple((status, Told(where, one)) for one in where.__members__ if one != but)


CONDITIONS = (
    Condition(
        (Told(names, "POD_SCHEDULED"),),
        "the scheduler; True by the API server",
        (
            ("False", Told(names, "REASON_UNSCHEDULABLE")),
            ("False", Told(names, "REASON_SCHEDULER_ERROR")),
            ("False", Told(binder, "REASON_WAITING")),
            ("False", Told(binder, "REASON_IN_DOUBT")),
        ),
    ),
    Condition(
        (Told(names, "POD_GROUP_INITIALLY_SCHEDULED"), Told(names, "COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED")),
        "the scheduler; `Invalid` by the operator as well",
        (
            ("True", Told(names, "REASON_SCHEDULED")),
            ("False", Told(names, "REASON_UNSCHEDULABLE")),
            ("False", Told(names, "REASON_SCHEDULER_ERROR")),
            ("False", Told(names, "REASON_INVALID")),
            ("Unknown", Told(names, "REASON_PENDING")),
        ),
    ),
    Condition(
        (Told(health, "HEALTHY"),),
        "the operator",
        (("True", Told(HealthReason, "MINIMUM_MET")), *_all(HealthReason, "False", but="MINIMUM_MET")),
    ),
    Condition(
        (Told(partial_release, "PARTIAL"),), "the operator", (("True", Told(partial_release, "REASON_BELOW_MINIMUM")),)
    ),
    Condition(
        (Told(names, "DISRUPTION_TARGET"),),
        "the scheduler",
        (("True", Told(names, "REASON_PREEMPTION")), ("False", Told(names, "REASON_RESCHEDULED"))),
    ),
    Condition(
        (Told(instantiation, "CONDITION"),),
        "the operator",
        (
            ("True", Told(instantiation, "COMPLETE")),
            ("False", Told(instantiation, "INCOMPLETE")),
            ("False", Told(instantiation, "REFUSED")),
            *_all(Reason, "False"),
        ),
    ),
)


def page() -> str:
    """Return the page; raise for a reason that stands in no condition of it."""
    told = {reason.name for condition in CONDITIONS for _, reason in condition.reasons}
    for reason in _named("REASON_"):
        if reason.name not in told:
            raise UndocumentedError(f"{reason.name} stands in no condition of {__name__}.CONDITIONS")
    return HEADER + "".join(map(_section, CONDITIONS)) + _events() + _annotations()


def _section(condition: Condition) -> str:
    title = ", ".join(f"`{one.value}`" for one in condition.names)
    about = "".join(f"{one.about} " for one in dict.fromkeys(condition.names[:1]))
    rows = "".join(_reason(status, told) for status, told in condition.reasons)
    return (
        f"\n## {title}\n\n{about}Written by {condition.writer}.\n\n"
        f"| status | reason | what it means |\n| --- | --- | --- |\n{rows}"
    )


def _reason(status: str, told: Told) -> str:
    return f"| {status} | `{told.value}` | {told.about} |\n"


def _events() -> str:
    rows = "".join(f"| `{told.value}` | {told.about} |\n" for told in _named("EVENT_"))
    others = (
        "The operator tells `Invalid`, and each change of the condition `Instantiated`, by its reason, as an event too."
    )
    return f"\n## Events\n\n| reason | what it tells |\n| --- | --- |\n{rows}\n{others}\n"


def _annotations() -> str:
    ours = ("POD_GROUP_LABEL", "FINALIZER", "INSTANTIATE", "INSTANTIATED")
    listed = [*(Told(names, name) for name in ours), Told(partial_release, "RELEASE_ANNOTATION")]
    rows = "".join(f"| `{told.value}` | {told.about} |\n" for told in listed)
    return f"\n## Labels, annotations and the finalizer\n\n| name | what it does |\n| --- | --- |\n{rows}"


def _named(prefix: str) -> Iterator[Told]:
    """Yield the names that begin so, in the order of the code: one that is new has its row by itself."""
    return (Told(names, name) for name in vars(names) if name.startswith(prefix))
