"""Compare groups with the templates that they name.

A template may change after its groups were made, so a difference is no fault: it is reported, and blocks nothing.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import TypeAlias

from cpg_api.conditions import find_condition
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.policies import (
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate

Template: TypeAlias = PodGroupTemplate | CompositePodGroupTemplate
Difference: TypeAlias = tuple[str, str, str]
"""A field, the group's value, and the template's."""

MATCHES_TEMPLATE = "MatchesTemplate"
"""Whether a group is as its template says. A group that has never differed from it has no such condition. It blocks
nothing: a template may change after its groups were made."""

REASON_DRIFTED = "Drifted"
"""Some fields differ; the message has both values of each."""

REASON_MATCHES = "Matches"
"""No field differs any more."""

REASON_NO_TEMPLATE = "NoTemplate"
"""Some fields differed, and the template does not exist any more."""


def find_differences(group: Group, template: Template, *, ignore_minimum: bool = False) -> Iterator[Difference]:
    """Yield the fields of an effective group that differ from its template; what the template leaves open is none."""
    spec = group.spec
    if spec.scheduling_policy is None:
        return
    own, wanted = _policy(spec.scheduling_policy), _policy(template.scheduling_policy)
    if own[0] != wanted[0]:
        yield "schedulingPolicy", own[0], wanted[0]
    elif own != wanted and not ignore_minimum:
        yield "minCount" if isinstance(group, PodGroup) else "minGroupCount", own[1], wanted[1]
    compared = [
        ("disruptionMode", _mode(spec.disruption_mode), _mode(template.disruption_mode)),
        ("required topology", _topology(spec.scheduling_constraints), _topology(template.scheduling_constraints)),
    ]
    if template.preemption_policy is not None and spec.preemption_policy is not None:
        compared.append(("preemptionPolicy", spec.preemption_policy, template.preemption_policy))
    if template.priority_class_name and (spec.priority_class_name or spec.priority is not None):
        compared.append(("priorityClassName", spec.priority_class_name or "empty", template.priority_class_name))
    if template.priority is not None and spec.priority is not None:
        compared.append(("priority", str(spec.priority), str(template.priority)))
    yield from (one for one in compared if one[1] != one[2])


def drift_condition(group: Group, place: str, template: Template | None, *, ignore_minimum: bool) -> Condition | None:
    """Return the condition to write for an effective group, without its time; None where nothing is to be written.

    ``place`` says which template it is, and ``template`` is None where there is none.
    """
    current = find_condition(group.status.conditions, MATCHES_TEMPLATE)
    found = find_differences(group, template, ignore_minimum=ignore_minimum) if template is not None else ()
    message = _message(found, place)
    if message:
        new = ("False", REASON_DRIFTED, message)
    elif current is None:
        return None
    elif template is None:
        new = ("Unknown", REASON_NO_TEMPLATE, f"there is no {place}")
    else:
        new = ("True", REASON_MATCHES, f"as {place} says")
    if current is not None and (current.status, current.reason, current.message) == new:
        return None
    status, reason, text = new
    return Condition(
        type=MATCHES_TEMPLATE,
        status=status,
        reason=reason,
        message=text,
        observed_generation=group.metadata.generation,
    )


def _message(found: Iterable[Difference], place: str) -> str:
    """Return the differences in words, with the place of the template in the first of them."""
    named = chain((place,), repeat("the template"))
    return "; ".join(
        f"{field} is {own}, {where} has {wanted}" for (field, own, wanted), where in zip(found, named, strict=False)
    )


def _policy(policy: PodGroupSchedulingPolicy | CompositePodGroupSchedulingPolicy) -> tuple[str, str]:
    """Return the kind of a policy, and its minimum."""
    if policy.gang is None:
        return "basic", ""
    gang = policy.gang
    return "gang", str(gang.min_count if isinstance(gang, GangSchedulingPolicy) else gang.min_group_count)


def _mode(mode: DisruptionMode | None) -> str:
    return "all" if mode is not None and mode.all is not None else "single"


def _topology(constraints: SchedulingConstraints | None) -> str:
    keys = [one.key for one in (constraints.topology or ())] if constraints is not None else []
    return ", ".join(keys) or "none"
