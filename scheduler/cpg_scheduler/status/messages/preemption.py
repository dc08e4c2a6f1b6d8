"""What preemption does for a unit, in kube-scheduler's words where it has the same, and why pods are evicted."""

from msgspec.structs import replace

from cpg_api.quantity import format_quantity
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.verdicts import Explanation
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.status.messages.attempts import pod_messages

RECOVERED = "its minimum has been placed again"
"""The condition of a group that was evicted as a whole."""
MAX_CHARACTERS_OF_EXPLANATION = 300
"""Characters of the explanation why all evictions together would not help."""
VERDICTS = {
    PreemptionVerdict.ONGOING: "ongoing preemption on nominated nodes",
    PreemptionVerdict.FORBIDDEN: "not eligible due to preemptionPolicy=Never.",
    PreemptionVerdict.NO_VICTIMS: "No preemption victims found for incoming preemptor",
    PreemptionVerdict.NOT_ENOUGH: "evicting all lower-priority pods would not make enough room",
    PreemptionVerdict.NO_HELP: "Preemption is not helpful for scheduling",
}
AMOUNTS = {"cpu": "{} CPU", "memory": "{} of memory", "ephemeral-storage": "{} of ephemeral storage", "pods": "room"}


def preemption_message(outlook: PreemptionOutlook | None) -> str:
    """Return what preemption does for a unit; empty if it was not asked."""
    if outlook is None:
        return ""
    details = _details(outlook.explanation) if outlook.verdict is PreemptionVerdict.NOT_ENOUGH else ""
    return preemption_cause(outlook) + details


def preemption_cause(outlook: PreemptionOutlook | None) -> str:
    """Return the message without what changes while nodes and pods come and go."""
    if outlook is None:
        return ""
    verdict = VERDICTS[outlook.verdict]
    if outlook.verdict is PreemptionVerdict.ONGOING and outlook.victims is not None:
        what = "pod" if outlook.kind == POD else "podgroup"
        verdict = f"found a placement for {what}, preempting {outlook.victims} victims"
    return f"{'' if outlook.kind == POD else 'pod group '}preemption: {verdict}"


def eviction_message(reason: EvictionReason) -> str:
    """Return why a pod is evicted: what the preemptor needs of it, and where."""
    where = f" ({reason.domain.key} {reason.domain.value})" if reason.domain else ""
    if reason.resource:
        amount = format_quantity(reason.resource, reason.amount)
        needed = AMOUNTS.get(reason.resource, "{} " + reason.resource).format(amount)
        return f"{reason.preemptor} needs its {needed} on {reason.node}{where}"
    if reason.victim_node:
        return f"{reason.preemptor} cannot run on {reason.node} while it runs on {reason.victim_node}{where}"
    return f"{reason.preemptor} cannot run beside it on {reason.node}{where}"


def resumed_eviction_message(preemptor: GroupKey) -> str:
    """Return why a pod is evicted for which an earlier leader has begun the eviction."""
    return f"{preemptor} needs its place"


def _details(explanation: Explanation | None) -> str:
    if explanation is None:
        return ""
    root = explanation.reports[0].key
    why = pod_messages(replace(explanation, next_step=None))[root]
    return f" ({why[:MAX_CHARACTERS_OF_EXPLANATION]})"
