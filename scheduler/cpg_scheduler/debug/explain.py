"""``/debug/explain``: why a unit is pending, by an attempt at it that binds nothing.

A decision is a pure function of the cache, so explanations are not stored. The attempt is made when a request comes,
with all details, and the ledger is left as it was.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from cpg_api.core.pod import Pod
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.probe_server import ProbeResponse
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.similar_names import similar_names
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.preemption.results import is_due
from cpg_scheduler.queueing.hints import signature_of
from cpg_scheduler.queueing.places import ACTIVE, BACKOFF, BINDING, POPPED, UNSCHEDULABLE
from cpg_scheduler.queueing.scheduling_queue import QueuePosition, SchedulingQueue
from cpg_scheduler.status.messages.attempts import group_messages, pod_messages
from cpg_scheduler.status.messages.preemption import eviction_message
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.units import SchedulableUnit, build_unit, owner_of, queue_key_of

USAGE = (
    b"usage: /debug/explain/                              all pending units, in queue order\n"
    b"       /debug/explain/<flavour>/<namespace>/<name>  a tree, by any group of it; flavours are crd and native\n"
    b"       /debug/explain/pod/<namespace>/<name>        a pod\n"
)
JSON = "application/json"
MAX_UNITS_LISTED = 500
"""Pending units on the page of all; the others are only counted."""
MAX_DOMAINS_EXPLAINED = 10
"""Per group."""
MAX_NAMES_SEARCHED = 2000
"""Names of a namespace among which similar ones to an unknown name are searched."""


class Explainer:
    """Explains the units of a cache."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        preemption: PreemptionMachine,
        *,
        options: SearchOptions,
        clock: Callable[[], float],
    ) -> None:
        """Decide by these options, but always in detail."""
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self._preemption = preemption
        self._options = msgspec.structs.replace(options, detail=True, candidates=MAX_DOMAINS_EXPLAINED)

    def page(self, path: str) -> ProbeResponse:
        """Answer for ``flavour/namespace/name``, or for all pending units if that is empty."""
        if not path:
            return ProbeResponse(b"", content_type=JSON, chunks=self._all_pending())
        parts = path.split("/")
        if len(parts) != len(("flavour", "namespace", "name")):
            return ProbeResponse(USAGE, status=404)
        unit = self.unit_of(*parts)
        if unit is None:
            similar = similar_names(parts[-1], self._names(*parts[:-1]))
            instead = f"; similar names: {', '.join(similar)}" if similar else ""
            return ProbeResponse(f"{'/'.join(parts)} not found{instead}\n".encode(), status=404)
        return ProbeResponse(b"", content_type=JSON, chunks=self._explained(unit, *parts))

    def _explained(self, unit: UnitKey, kind: str, namespace: str, name: str) -> Iterator[bytes]:
        """Yield an empty piece of the response after each part of the work, then the whole answer."""
        answer: dict[str, object] = {}
        for found in self._parts(unit):
            answer |= found
            yield b""
        pod = self._pod(namespace, name) if kind == "pod" else None
        if pod is not None and pod.spec.node_name:
            doing = "being bound" if pod.metadata.uid in self._cache.assumed else "bound"
            answer["pod"] = f"{pod.metadata.key} is {doing} to node {pod.spec.node_name}"
        yield _encoded(answer)

    def _all_pending(self) -> Iterator[bytes]:
        """Yield an empty piece of the response after each unit, then the whole answer."""
        units: list[dict[str, object]] = []
        answer = {"waiting": len(self._queue), "counts": self._queue.counts(), "roots": units}
        for position in self._queue.positions(MAX_UNITS_LISTED):
            units.append(self._row(position, len(units) + 1))
            yield b""
        yield _encoded(answer)

    def _row(self, position: QueuePosition, number: int) -> dict[str, object]:
        unit = position.queue_key.unit
        return {
            "root": str(unit.key),
            "flavour": unit.flavour,
            "owner": owner_of(self._cache, unit),
            "place": number,
            "queue": position.queue,
            "priority": -position.queue_key.importance,
            "since": position.queue_key.created,
            "attempts": position.attempts,
            "nextAttempt": _next_attempt(position, self._clock()),
            "why": self._why(position),
        }

    def _why(self, position: QueuePosition) -> str:
        """Return why the last attempt failed; empty if there was none."""
        unit = position.queue_key.unit
        if position.failure is None or queue_key_of(self._cache, unit) is None:
            return ""
        attempt = build_unit(self._cache, unit)
        if isinstance(attempt, Inadmissible):
            return inadmissible_text(attempt.problem).message
        failure = position.failure
        explanation = failure.explained_for(attempt.unit) if signature_of(attempt) == failure.signature else None
        explanation = explanation or failure.explanation
        return next(iter(pod_messages(explanation).values())) if explanation is not None else ""

    def explain(self, unit: UnitKey) -> dict[str, object]:
        """Return the result of an attempt at a unit."""
        answer: dict[str, object] = {}
        for found in self._parts(unit):
            answer |= found
        return answer

    def _parts(self, unit: UnitKey) -> Iterator[dict[str, object]]:
        """Yield the parts of an explanation: the decision, then the plan. Between them the cluster may change."""
        answer: dict[str, object] = {"root": str(unit.key), "flavour": unit.flavour}
        attempt = self._attempt(unit)
        if attempt is None:
            yield answer | {"waiting": False}
            return
        if isinstance(attempt, Inadmissible):
            text = inadmissible_text(attempt.problem)
            yield answer | {"waiting": True, "reason": text.reason, "message": text.message}
            return
        ignored = self._preemption.ignored_by(unit, attempt)
        decision = decide(self._cache.snapshot, attempt.unit, self._options, ignored=ignored)
        names = {uid: pod.metadata.key for uid, pod in attempt.pods.items()}
        yield answer | {
            "waiting": True,
            "explanation": decision.explanation,
            "messages": {str(key): message for key, message in group_messages(decision.explanation).items()},
            "binds": {names[bind.uid]: bind.node for bind in decision.binds},
        }
        now = self._attempt(unit)
        yield {"preemption": self._plan(unit, None if isinstance(now, Inadmissible) else now, decision)}

    def _attempt(self, unit: UnitKey) -> SchedulableUnit | Inadmissible | None:
        """Return a unit as it would be attempted now, or None if it does not wait."""
        return build_unit(self._cache, unit) if queue_key_of(self._cache, unit) is not None else None

    def unit_of(self, flavour: str, namespace: str, name: str) -> UnitKey | None:
        """Return the unit of a pod, or of a group by its name; a CompositePodGroup comes before a PodGroup."""
        if flavour == "pod":
            pod = self._pod(namespace, name)
            return self._cache.unit_of(pod) if pod is not None else None
        store = self._cache.stores.get(flavour)
        for kind in (CompositePodGroup.kind, PodGroup.kind):
            key = GroupKey(kind, namespace, name)
            if store is not None and key in store:
                return UnitKey(flavour, store.anchor(key))
        return None

    def _plan(self, root: UnitKey, attempt: SchedulableUnit | None, decision: Decision) -> dict[str, object]:
        """Return the active plan of a unit, or the one that preemption would make now."""
        record = self._preemption.active(root)
        plan = record.plan if record is not None else None
        if record is None and attempt is not None and attempt.preempts and is_due(decision, attempt.pods):
            plan = self._preemption.explain(root, attempt)
        pods = self._cache.pods
        evictions = plan.evictions if plan is not None else ()
        nominated = record.nominations if record is not None else {}
        return {
            "underWay": record is not None,
            "waitsFor": sorted(pods[uid].metadata.key for uid in (record.awaited if record else ()) if uid in pods),
            "nominated": {pods[uid].metadata.key: node for uid, node in nominated.items() if uid in pods},
            "outcome": plan.outcome if plan is not None else None,
            "considered": plan.considered if plan is not None else 0,
            "domains": plan.domains if plan is not None else 0,
            "outOfBudget": plan is not None and plan.exhausted,
            "evictions": [
                {
                    "unit": str(eviction.unit.key),
                    "priority": eviction.unit.priority,
                    "pods": [pods[uid].metadata.key for uid in eviction.unit.pods if uid in pods],
                    "reason": eviction_message(eviction.reason),
                    "violates": eviction.violates,
                }
                for eviction in evictions
            ],
        }

    def _pod(self, namespace: str, name: str) -> Pod | None:
        pods = self._cache.pods.values()
        return next((pod for pod in pods if (pod.metadata.namespace, pod.metadata.name) == (namespace, name)), None)

    def _names(self, flavour: str, namespace: str) -> list[str]:
        """Return the names of a namespace that an unknown name may have meant."""
        store = self._cache.stores.get(flavour)
        found = self._cache.pods.values() if flavour == "pod" else store if store is not None else ()
        return list(
            islice((one.metadata.name for one in found if one.metadata.namespace == namespace), MAX_NAMES_SEARCHED)
        )


def _next_attempt(position: QueuePosition, now: float) -> str:
    """Return when a unit is attempted next."""
    if position.until is not None:
        return f"in {max(position.until - now, 0.0):.1f} s"
    return {
        ACTIVE: "when it is first in the queue",
        POPPED: "now",
        BINDING: "none: it is being bound",
        BACKOFF: "now",
        UNSCHEDULABLE: "when an event may make it schedulable",
    }[position.queue]


def _encoded(answer: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(answer)) + b"\n"
