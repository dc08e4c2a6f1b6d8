"""The page of conditions and events: names and reasons, each with its docstring."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

from cpg_api import drift
from cpg_api.scheduling import health, names, partial_release
from cpg_api.scheduling.attempts import MAX_ATTEMPT_BYTES, AttemptFinding
from cpg_api.scheduling.health import HealthReason
from cpg_operator.workloads import instantiation
from cpg_operator.workloads.plan import ObstacleReason
from cpg_scheduler.status import reasons
from reference.sources import UndocumentedError, docstring, docstrings_of, escaped

HEADER = """\
# Conditions and events

<!-- Generated from the code by `python tools/generate_reference.py`. Do not edit. -->

Conditions show the state of groups and pods; a change is also an event. If only a number in a message changes, the
condition follows within seconds, without an event. Programs can rely on types and reasons; messages can change. A new
group gets its first condition, with the reason `Pending`, from the API server itself.

| object | condition | meaning |
| --- | --- | --- |
| pods | `PodScheduled`, `DisruptionTarget` | as with kube-scheduler |
| groups | `…InitiallyScheduled`, `DisruptionTarget` | its minimum was placed once; it is evicted as a whole |
| groups | `Healthy` | its minimum is met now |
| groups | `MatchesTemplate` | it is as its template says; only on groups that have differed |
| roots | `Partial` | some pods have nodes, too few for the minimum |
| Workloads | `Instantiated` | its groups exist |
"""


ATTEMPTS = f"""
## The last attempt

`status.attempt` of a group says what the last attempt at its tree has found: the `finding`, the group that blocks it
(`blockedAt`), why (`reasons`, or the closest `domains`), which `devices` are missing, what `preemption` came to, and
the `nextStep`. The [API](api.md) has the fields, and `kubectl get -o wide` the column `Blocked`. The scheduler writes
it in the request of the condition, with the same cause and at most {MAX_ATTEMPT_BYTES} bytes. Groups of the native
API have no such field.

While nothing but its numbers changes, it is written again after one minute, then after 2, 4, 8 and every 16, so
`number` and `time` lag behind. A group that shares the result of an equivalent tree has those of the time when that was
reported.
"""


@dataclass(frozen=True)
class Name:
    """A name and the module or class that defines it."""

    where: ModuleType | type[StrEnum]
    name: str

    @property
    def value(self) -> str:
        """The value that users see."""
        return str(getattr(self.where, self.name))

    @property
    def about(self) -> str:
        """The docstring."""
        return escaped(docstring(docstrings_of(self.where), self.name, self.where))


@dataclass(frozen=True)
class Condition:
    """A condition and its reasons, each with its status."""

    names: tuple[Name, ...]
    writer: str
    reasons: tuple[tuple[str, Name], ...]


def _all(where: type[StrEnum], status: str, but: str = "") -> tuple[tuple[str, Name], ...]:
    return tuple((status, Name(where, one)) for one in where.__members__ if one != but)


FAILURES = (
    *(
        ("False", Name(names, f"REASON_{one}"))
        for one in ("UNSCHEDULABLE", "WAITING_FOR_GROUP", "PLACEMENT_NOT_FOUND", "SCHEDULER_ERROR")
    ),
    ("False", Name(reasons, "REASON_WAITING_FOR_VOLUMES")),
    ("False", Name(reasons, "REASON_WAITING_FOR_DEVICES")),
    ("False", Name(reasons, "REASON_BIND_IN_DOUBT")),
)
"""The reasons of pods and groups that are not scheduled."""

CONDITIONS = (
    Condition(
        (Name(names, "POD_SCHEDULED"),),
        "the scheduler; True is written by the API server",
        (
            *FAILURES,
            ("False", Name(names, "REASON_INVALID")),
        ),
    ),
    Condition(
        (
            Name(names, "POD_GROUP_INITIALLY_SCHEDULED"),
            Name(names, "COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED"),
        ),
        "the scheduler; `Invalid` also by the operator",
        (
            ("True", Name(names, "REASON_SCHEDULED")),
            *FAILURES,
            ("False", Name(names, "REASON_INVALID")),
            ("Unknown", Name(names, "REASON_PENDING")),
        ),
    ),
    Condition(
        (Name(health, "HEALTHY"),),
        "the operator",
        (("True", Name(HealthReason, "MINIMUM_MET")), *_all(HealthReason, "False", but="MINIMUM_MET")),
    ),
    Condition(
        (Name(partial_release, "PARTIAL"),),
        "the operator",
        (("True", Name(partial_release, "REASON_BELOW_MINIMUM")),),
    ),
    Condition(
        (Name(drift, "MATCHES_TEMPLATE"),),
        "the operator",
        (
            ("False", Name(drift, "REASON_DRIFTED")),
            ("True", Name(drift, "REASON_MATCHES")),
            ("Unknown", Name(drift, "REASON_NO_TEMPLATE")),
        ),
    ),
    Condition(
        (Name(names, "DISRUPTION_TARGET"),),
        "the scheduler",
        (("True", Name(names, "REASON_PREEMPTION")), ("False", Name(names, "REASON_RESCHEDULED"))),
    ),
    Condition(
        (Name(instantiation, "CONDITION"),),
        "the operator",
        (
            ("True", Name(instantiation, "COMPLETE")),
            ("False", Name(instantiation, "INCOMPLETE")),
            ("False", Name(instantiation, "REFUSED")),
            *_all(ObstacleReason, "False"),
        ),
    ),
)

ANNOTATIONS = (
    "POD_GROUP_LABEL",
    "FINALIZER",
    "INSTANTIATE",
    "INSTANTIATED",
    "DERIVED_FROM",
    "REPLICAS",
    "TEMPLATE_HASH",
    "ADOPT",
    "GANG",
)
"""Labels, annotations and the finalizer, by the names of their constants."""


def page() -> str:
    """Return the page; raise for a reason without a condition."""
    name = {reason.name for condition in CONDITIONS for _, reason in condition.reasons}
    for reason in _named("REASON_"):
        if reason.name not in name:
            raise UndocumentedError(f"{reason.name} is in no condition of {__name__}.CONDITIONS")
    return HEADER + "".join(map(_section, CONDITIONS)) + _findings() + _events() + _annotations()


def _section(condition: Condition) -> str:
    title = ", ".join(f"`{one.value}`" for one in condition.names)
    about = "".join(f"{one.about} " for one in dict.fromkeys(condition.names[:1]))
    rows = "".join(_reason(status, name) for status, name in condition.reasons)
    return (
        f"\n## {title}\n\n{about}Written by {condition.writer}.\n\n"
        f"| status | reason | meaning |\n| --- | --- | --- |\n{rows}"
    )


def _reason(status: str, name: Name) -> str:
    return f"| {status} | `{name.value}` | {name.about} |\n"


def _findings() -> str:
    rows = "".join(_finding(Name(AttemptFinding, one)) for one in AttemptFinding.__members__)
    return f"{ATTEMPTS}\n| finding | meaning |\n| --- | --- |\n{rows}"


def _finding(name: Name) -> str:
    return f"| `{name.value}` | {name.about} |\n"


def _events() -> str:
    rows = "".join(f"| `{name.value}` | {name.about} |\n" for name in _named("EVENT_"))
    others = (
        "The operator also writes events for `Invalid` and for each change of `Instantiated`, "
        "with the reason of the condition. Owners, such as JobSets, get events with the reason for which they wait."
    )
    return f"\n## Events\n\n| reason | meaning |\n| --- | --- |\n{rows}\n{others}\n"


def _annotations() -> str:
    listed = [*(Name(names, name) for name in ANNOTATIONS), Name(partial_release, "RELEASE_ANNOTATION")]
    rows = "".join(f"| `{name.value}` | {name.about} |\n" for name in listed)
    return f"\n## Labels, annotations and the finalizer\n\n| name | meaning |\n| --- | --- |\n{rows}"


def _named(prefix: str) -> Iterator[Name]:
    """Yield the names with a prefix, in the order of the code."""
    return (Name(names, name) for name in vars(names) if name.startswith(prefix))
