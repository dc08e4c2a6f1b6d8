"""Which interesting states the nights reach: what fails while a preemption, a batch of binds or a write stands where.

It tells whether the nights differ enough, and which combinations none of them has.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from unittest import mock

from msgspec import Struct

from cpg_api.scheduling.names import DISRUPTION_TARGET
from cpg_client.errors import ApiError, ClientError
from cpg_client.reflector import Reflector
from cpg_client.resources import LEASES, PODS
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.preemption.states import ActivePreemption, Guard, PreemptionState, Trigger
from cpg_simulation.apiserver.values import Object, Request, Write
from cpg_simulation.faults.requests import is_hit
from cpg_simulation.nights.manifests import TREE_LABEL
from cpg_simulation.nights.plan import Fault
from cpg_simulation.simulation import Simulation
from cpg_simulation.virtual.process import RUNNING
from cpg_simulation.world.cluster_client import key

SORTS = ("binds", "evictions", "nominations", "leases")
SECONDS_IN_FLIGHT = 0.005
"""For which a request counts as under way."""
SECONDS_OF_BATCH = 5.0
"""A bind this long after the first of its tree joins pods that run."""


class StateCounter:
    """Counts states by what failed at the time."""

    def __init__(self, simulation: Simulation) -> None:
        """Count nothing yet."""
        self.counts: Counter[str] = Counter()
        self._simulation = simulation
        self._faults = simulation.faults.active
        self._sent: dict[str, float] = {}
        self._preemptions: dict[str, list[ActivePreemption]] = defaultdict(list)
        self._first_binds: dict[str, float] = {}
        self._bound: set[str] = set()
        self._holder = ""

    def install(self) -> None:
        """Count what the scheduler does and what is written from now on."""
        put, advance, fail = EventInbox.put, ActivePreemption.advance, Reflector._failed

        def counted_put(inbox: EventInbox, event: object) -> None:
            self.count(type(event).__name__)
            put(inbox, event)

        def counted_advance(active: ActivePreemption, trigger: Trigger, guard: Guard = Guard.ALWAYS) -> None:
            before: PreemptionState = active.state
            advance(active, trigger, guard)
            self.count(f"preemption {before}, {trigger}: {active.state}")
            if before is PreemptionState.NEW and RUNNING.thread is not None:
                self._preemptions[RUNNING.thread.process.name].append(active)

        def counted_fail(reflector: Reflector[Struct, Struct], error: ClientError, wait: float) -> None:
            reason = error.reason if isinstance(error, ApiError) else type(error).__name__
            self.count(f"watch or list ended by {reason}")
            fail(reflector, error, wait)

        mock.patch.object(EventInbox, "put", counted_put).start()
        mock.patch.object(ActivePreemption, "advance", counted_advance).start()
        mock.patch.object(Reflector, "_failed", counted_fail).start()
        self._simulation.server.on_write.append(self._on_write)

    def count(self, state: str) -> None:
        """Count a state, alone and with each fault that is active."""
        self.counts[state] += 1
        for kind in {fault.kind for fault in self._faults.values()}:
            self.counts[f"{state} | {kind}"] += 1

    def sent(self, request: Request) -> None:
        """Note that a process sends a request."""
        for sort in SORTS:
            if is_hit(request, sort):
                self._sent[sort] = self._simulation.coordinator.now

    def ended(self, process: str) -> None:
        """Forget what a process knew that has ended."""
        self._preemptions.pop(process, None)

    def hit(self, fault: Fault, process: str, request: Request | None) -> None:
        """Count a fault that hits a request or begins, with what it interrupts."""
        if request is not None:
            for sort in SORTS:
                if is_hit(request, sort):
                    self.counts[f"{fault.kind} hits {sort}"] += 1
            return
        now = self._simulation.coordinator.now
        interrupted = [f"{sort} in flight" for sort, at in self._sent.items() if now - at < SECONDS_IN_FLIGHT]
        interrupted += [
            f"preemption {active.state}" for active in self._preemptions.get(process, ()) if active.is_reserving
        ]
        for what in interrupted:
            self.counts[f"{fault.kind} interrupts {what}"] += 1

    def restored(self) -> None:
        """Count what is undone by a restore of etcd."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._simulation.server.objects(key(PODS))}
        there = {uid for uid, pod in pods.items() if pod["spec"].get("nodeName")}
        for what, undone in (("binds", self._bound & set(pods) - there), ("deletions", there - self._bound)):
            if undone:
                self.counts[f"restore undoes {what}"] += 1
        self._bound = there

    def _on_write(self, write: Write) -> None:
        if write.resource == key(PODS):
            self._on_pod(write)
        elif write.resource == key(LEASES) and write.name == "cpg-scheduler":
            self._on_lease(write)
        if write.subresource == "status" and write.user.startswith(("scheduler", "operator")) and write.new:
            before = set(_reasons(write.old or {}))
            for reason in _reasons(write.new):
                if reason not in before:
                    self.counts[f"{write.resource.partition('.')[0]} {reason}"] += 1

    def _on_pod(self, write: Write) -> None:
        if write.new is None and write.old is not None:
            self._bound.discard(write.old["metadata"]["uid"])
        if write.new is None or write.verb != "bind":
            return
        now, tree = self._simulation.coordinator.now, write.new["metadata"]["labels"].get(TREE_LABEL, "")
        if now - self._first_binds.setdefault(tree, now) > SECONDS_OF_BATCH:
            self.count("bind joins a tree that runs")
        self._bound.add(write.new["metadata"]["uid"])

    def _on_lease(self, write: Write) -> None:
        holder: str = write.new["spec"].get("holderIdentity") or "" if write.new else ""
        if not holder or holder == self._holder:
            return
        if self._holder:
            for what in ("takeover", *self._unfinished()):
                self.count(what)
        self._holder = holder

    def _unfinished(self) -> Iterator[str]:
        """Yield what a replica has to take over."""
        pods = list(self._simulation.server.objects(key(PODS)))
        if any(pod["status"].get("nominatedNodeName") for pod in pods if not pod["spec"].get("nodeName")):
            yield "takeover with nominated pods"
        victims = [pod for pod in pods if any(text.startswith(DISRUPTION_TARGET) for text in _reasons(pod))]
        if any(pod["metadata"].get("deletionTimestamp") for pod in victims):
            yield "takeover with victims that end"
        if any(not pod["metadata"].get("deletionTimestamp") for pod in victims):
            yield "takeover with victims that were not deleted yet"
        last = self._sent.get("binds", -1.0)
        if self._simulation.coordinator.now - last < 20 and _is_half_bound(pods):
            yield "takeover with a tree that is bound in part"


def _reasons(found: Object) -> Iterator[str]:
    for one in (found.get("status") or {}).get("conditions") or ():
        yield f"{one['type']}={one.get('status')} {one.get('reason')}"


def _is_half_bound(pods: Iterable[Object]) -> bool:
    found: dict[str, set[bool]] = defaultdict(set)
    for pod in pods:
        found[pod["metadata"].get("labels", {}).get(TREE_LABEL, "")].add(bool(pod["spec"].get("nodeName")))
    return any(len(kinds) == 2 for kinds in found.values())
