"""The sentences of the scheduler's messages that scenarios compare, for playing them without a scheduler."""

from cpg_api.quantity import format_quantity
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.verdicts import Contradiction

_AMOUNTS = {"cpu": "{} CPU", "memory": "{} of memory", "ephemeral-storage": "{} of ephemeral storage", "pods": "room"}


def eviction_text(reason: EvictionReason) -> str:
    """Return why a pod is evicted, in the words of the scheduler's event."""
    where = f" ({reason.domain.key} {reason.domain.value})" if reason.domain else ""
    if reason.resource:
        amount = format_quantity(reason.resource, reason.amount)
        words = _AMOUNTS.get(reason.resource, "{} " + reason.resource).format(amount)
        return f"{reason.preemptor} needs its {words} on {reason.node}{where}"
    if reason.victim_node:
        return f"{reason.preemptor} cannot run on {reason.node} while it runs on {reason.victim_node}{where}"
    return f"{reason.preemptor} cannot run beside it on {reason.node}{where}"


def contradiction_text(found: Contradiction) -> str:
    """Return how running members contradict their tree."""
    if not found.domains:
        return f"a member of {found.group} runs on a node without the label {found.key}"
    listed = ", ".join(found.domains)
    return f"members of {found.group} run in {len(found.domains)} domains of {found.key}: {listed}"
