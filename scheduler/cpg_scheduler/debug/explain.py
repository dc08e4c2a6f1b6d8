"""Answers to "why?": the attempt that would be made now, made on the spot, with every reason looked up.

A decision is a pure function of the state, so the explanation is not kept but computed again, in full detail, when
somebody asks. Nothing is bound, and the ledger is afterwards what it was.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice, takewhile

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
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.machine import Preemption
from cpg_scheduler.preemption.states import is_due
from cpg_scheduler.queueing.scheduling_queue import (
    ACTIVE,
    BINDING,
    PARKED,
    POPPED,
    WAITING,
    QueuePosition,
    SchedulingQueue,
)
from cpg_scheduler.status.messages import eviction_message, group_messages, pod_messages
from cpg_scheduler.units import Inadmissible, SchedulableUnit, build_unit, queue_key_of

USAGE = (
    b"ask for /debug/explain/<flavour>/<namespace>/<name of a group>, or /debug/explain/pod/<namespace>/<name>,\n"
    b"or for all who wait: /debug/explain/\n"
)
JSON = "application/json"
LISTED = 500
"""Roots on the page of all who wait; the others are counted."""
CANDIDATES = 10
"""Domains explained per group."""
SIMILAR = 2000
"""Names of which those that begin or end most like one that is not there are looked for."""
COMPARED = 50
"""Of these, names that are compared with it letter by letter: that takes the square of their length."""
LETTERS = 64
"""Letters of a name that are looked at, from its beginning and from its end."""


class Explainer:
    """Explains roots of a state."""

    def __init__(
        self,
        state: ClusterCache,
        pending: SchedulingQueue,
        preemption: Preemption,
        *,
        options: SearchOptions,
        clock: Callable[[], float],
    ) -> None:
        """Explain by these options, always in detail."""
        self._state = state
        self._pending = pending
        self._clock = clock
        self._preemption = preemption
        self._options = msgspec.structs.replace(options, detail=True, candidates=CANDIDATES)

    def page(self, path: str) -> ProbeResponse:
        """Answer for ``flavour/namespace/name``, or, without any of it, for all who wait."""
        if not path:
            return ProbeResponse(b"", content_type=JSON, chunks=self._waiting())
        parts = path.split("/")
        if len(parts) != len(("flavour", "namespace", "name")):
            return ProbeResponse(USAGE, status=404)
        root = self.root_of(*parts)
        if root is None:
            similar = _similar(parts[-1], self._names(*parts[:-1]))
            instead = f"; there is {', '.join(similar)}" if similar else ""
            return ProbeResponse(f"there is no {'/'.join(parts)}{instead}\n".encode(), status=404)
        told = self.explain(root)
        pod = self._pod(*parts[1:]) if parts[0] == "pod" else None
        if pod is not None and pod.spec.node_name:
            doing = "being bound" if pod.metadata.uid in self._state.assumed else "bound"
            told["pod"] = f"{pod.metadata.key} is {doing} to node {pod.spec.node_name}"
        return _json(told)

    def _waiting(self) -> Iterator[bytes]:
        """Yield who waits, in the order of the queue, and for what; and before that nothing, while it is looked up."""
        roots: list[dict[str, object]] = []
        told = {"waiting": len(self._pending), "counts": self._pending.counts(), "roots": roots}
        for place in self._pending.foremost(LISTED):
            roots.append(self._told(place, len(roots) + 1))
            yield b""
        yield _encoded(told)

    def _told(self, place: QueuePosition, number: int) -> dict[str, object]:
        root = place.order.key
        return {
            "root": str(root.key),
            "flavour": root.flavour,
            "place": number,
            "queue": place.queue,
            "priority": -place.order.importance,
            "since": place.order.created,
            "attempts": place.attempts,
            "nextAttempt": _next_attempt(place, self._clock()),
            "why": self._why(place),
        }

    def _why(self, place: QueuePosition) -> str:
        """Return what was wrong at the last attempt; empty where there was none."""
        root = place.order.key
        if place.failure is None or queue_key_of(self._state, root) is None:
            return ""
        attempt = build_unit(self._state, root)
        if isinstance(attempt, Inadmissible):
            return attempt.message
        explanation = (
            place.failure.explained_for(attempt.unit) if attempt.signature == place.failure.signature else None
        )
        explanation = explanation or place.failure.explanation
        return next(iter(pod_messages(explanation).values())) if explanation is not None else ""

    def explain(self, root: UnitKey) -> dict[str, object]:
        """Return what an attempt at a root would come to now."""
        told: dict[str, object] = {"root": str(root.key), "flavour": root.flavour}
        if queue_key_of(self._state, root) is None:
            return told | {"waiting": False}
        attempt = build_unit(self._state, root)
        if isinstance(attempt, Inadmissible):
            return told | {"waiting": True, "reason": attempt.reason, "message": attempt.message}
        ignored = self._preemption.ignored_by(root, attempt)
        decision = decide(self._state.snapshot, attempt.unit, self._options, ignored=ignored)
        names = {uid: pod.metadata.key for uid, pod in attempt.pods.items()}
        return told | {
            "waiting": True,
            "explanation": decision.explanation,
            "messages": {str(key): message for key, message in group_messages(decision.explanation).items()},
            "binds": {names[bind.uid]: bind.node for bind in decision.binds},
            "preemption": self._plan(root, attempt, decision),
        }

    def root_of(self, flavour: str, namespace: str, name: str) -> UnitKey | None:
        """Return the root of what is asked for: a pod, or a group by its name, the composite one first."""
        if flavour == "pod":
            pod = self._pod(namespace, name)
            return self._state.unit_of(pod) if pod is not None else None
        store = self._state.stores.get(flavour)
        for kind in (CompositePodGroup.kind, PodGroup.kind):
            key = GroupKey(kind, namespace, name)
            if store is not None and key in store:
                return UnitKey(flavour, store.anchor(key))
        return None

    def _plan(self, root: UnitKey, attempt: SchedulableUnit, decision: Decision) -> dict[str, object]:
        """Return the plan that is under way for a root, or the one that would be made now."""
        record = self._preemption.record(root)
        plan = record.plan if record is not None else None
        if record is None and attempt.preempts and is_due(decision, attempt.pods):
            plan = self._preemption.explain(root, attempt)
        pods = self._state.pods
        evictions = plan.evictions if plan is not None else ()
        nominated = record.nominations if record is not None else {}
        return {
            "underWay": record is not None,
            "waitsFor": sorted(pods[uid].metadata.key for uid in (record.victims if record else ()) if uid in pods),
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
        pods = self._state.pods.values()
        return next((pod for pod in pods if (pod.metadata.namespace, pod.metadata.name) == (namespace, name)), None)

    def _names(self, flavour: str, namespace: str) -> list[str]:
        """Return the names that there are where one was asked for that there is not."""
        store = self._state.stores.get(flavour)
        found = self._state.pods.values() if flavour == "pod" else store if store is not None else ()
        return list(islice((one.metadata.name for one in found if one.metadata.namespace == namespace), SIMILAR))


def _similar(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that come nearest to one, in a time that does not depend on what they are like."""
    nearest = heapq.nlargest(COMPARED, dict.fromkeys(names), key=lambda other: _ends_alike(name, other))
    by_beginning = {other[:LETTERS]: other for other in reversed(nearest)}
    return [by_beginning[found] for found in get_close_matches(name[:LETTERS], by_beginning)]


def _ends_alike(name: str, other: str) -> int:
    """Return how many letters two names have in common at their beginning and at their end."""
    ends = name[: -LETTERS - 1 : -1], other[: -LETTERS - 1 : -1]
    return _begin_alike(name[:LETTERS], other[:LETTERS]) + _begin_alike(*ends)


def _begin_alike(name: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False)))


def _next_attempt(place: QueuePosition, now: float) -> str:
    """Say when a root will be attempted."""
    if place.until is not None:
        return f"in {max(place.until - now, 0.0):.1f} s"
    return {
        ACTIVE: "as soon as it is its turn",
        POPPED: "now",
        BINDING: "none: it is being bound",
        WAITING: "now",
        PARKED: "when something happens that may help it",
    }[place.queue]


def _json(told: object) -> ProbeResponse:
    return ProbeResponse(_encoded(told), content_type=JSON)


def _encoded(told: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(told)) + b"\n"
