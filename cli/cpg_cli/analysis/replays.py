"""One decision, made again from a dump."""

from typing import Any

from msgspec import Struct

from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_engine.verdicts import Finding
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.messages.wording import counted


class Replayed(Struct, frozen=True):
    """What was found about a unit, in a line and in full."""

    root: str
    text: str
    waits: bool
    explanation: dict[str, Any]


def replayed(scheduler: OfflineScheduler, unit: UnitKey) -> Replayed:
    """Decide about a unit as the scheduler would."""
    found: dict[str, Any] = scheduler.explainer.explain(unit)
    explanation = found.get("explanation")
    if not found["waiting"]:
        return Replayed(str(unit.key), "does not wait", waits=False, explanation=found)
    if explanation is None:
        return Replayed(str(unit.key), f"waits: {found['message']}", waits=True, explanation=found)
    if explanation.finding is Finding.PLACED:
        binds = found["binds"]
        text = f"is placed: {counted(len(binds), 'pod')} on {counted(len(set(binds.values())), 'node')}"
        return Replayed(str(unit.key), text, waits=False, explanation=found)
    message = next((one for one in found["messages"].values() if one), explanation.finding.value)
    victims = sum(len(one["pods"]) for one in found["preemption"]["evictions"])
    preemption = f"; it would evict {counted(victims, 'pod')}" if victims else ""
    return Replayed(str(unit.key), f"waits: {message}{preemption}", waits=True, explanation=found)
