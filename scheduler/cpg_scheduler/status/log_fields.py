"""Fields of log lines that need sentences."""

from collections.abc import Mapping

from cpg_api.core.pod import Pod
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import Eviction, PreemptionPlan
from cpg_scheduler.status.messages.preemption import eviction_message


def plan_fields(pods: Mapping[str, Pod], plan: PreemptionPlan) -> dict[str, object]:
    """Return the fields of a plan, with the reason for each victim."""
    return {
        "victims": [_victim(pods, eviction) for eviction in plan.evictions],
        "violated": sorted({name for eviction in plan.evictions for name in eviction.violates}),
        "nominated": {pods[found.uid].metadata.key: found.node for found in plan.nominations},
        "considered": plan.considered,
        "domains": plan.domains,
        "exhausted": plan.exhausted,
    }


def _victim(pods: Mapping[str, Pod], eviction: Eviction) -> dict[str, object]:
    unit = eviction.unit
    named = {} if unit.key.kind == POD else {"pods": sorted(pods[uid].metadata.key for uid in unit.pods)}
    return {"unit": str(unit.key), "priority": unit.priority, **named, "why": eviction_message(eviction.reason)}
