"""A seeded run: random operations on owners in a namespace with nodes of its own, and the comparison with the model."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from tests.e2e.owners.checks import BindHistory, Places, domain_problems, fits, overcommitted
from tests.e2e.owners.model import KINDS, Group, Job, LeaderWorkerSet, Owner, Slot
from tests.e2e.owners.observer import Observer
from tests.e2e.owners.real_controllers import RealControllers
from tests.e2e.owners.simulated_controllers import Made, SimulatedControllers

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_lab.nodes import NodePool, manifest

Plain = dict[str, Any]
Groups = dict[str, Group]
Key = tuple[str, str]
OPERATIONS = 12
MAX_OWNERS = 4
SECONDS_BETWEEN_POLLS = 0.05
PROMISED_SECONDS = 5.0
Act = Callable[[], Awaitable[None]]


class SeededRun:
    """One run. ``history`` has its operations.

    Of each quiet time ``quiet_seconds`` has how long the cluster took, and ``group_seconds`` how long the groups took:
    pods of a tree that was attempted before may wait for the end of its backoff.
    """

    def __init__(self, connection: Connection, observer: Observer, seed: int, patience: float) -> None:
        """Prepare a namespace that only this run uses."""
        self.namespace = f"run-{seed}"
        self.history: list[str] = []
        self.quiet_seconds: list[float] = []
        self.group_seconds: list[float] = []
        self.late: list[Plain] = []
        """Quiet times of which groups took more than 5 s, with what was missing, and the operations before."""
        self.rng = Random(seed)  # noqa: S311  # a run can be repeated
        self._connection = connection
        self._observer = observer
        self._patience = patience
        self._slots_of_node = self.rng.choice((2, 3, 6))
        self._pool = NodePool(counts=(2, 2, 2), prefix=self.namespace, labels=(("example.com/run", self.namespace),))
        self._places = Places(self._pool, self._slots_of_node)
        self.template = _pod_template(self.namespace)
        self.controllers: SimulatedControllers | RealControllers = SimulatedControllers(
            connection, self.namespace, self.template, self.rng
        )
        self._possible: dict[Key, list[Groups]] = {}

    async def run(self) -> list[str]:
        """Play all operations; return the problems, none if the run succeeds."""
        await self._prepare()
        problems = []
        for number in range(OPERATIONS):
            await self._operate()
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.random() * 0.4)
            await self.controllers.reconcile(self._is_bound)
            if self.rng.random() < 0.2 or number == OPERATIONS - 1:
                problems = await self._await_quiet()
            if problems:
                return problems
        while self.controllers.kept and not problems:  # what waits gets its room at last
            await self._delete(self.rng.choice(sorted(self.controllers.kept)))
            problems = await self._await_quiet()
        problems = problems or BindHistory().replay(self._observer.history[self.namespace])
        await self._clean_up()
        return problems

    def pod_gone(self, uid: str) -> None:
        """Take the end of a pod."""
        self.controllers.forget_pod(uid)

    async def _prepare(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pool = replace(self._pool, capacity=(("cpu", str(self._slots_of_node)), ("memory", "9Gi"), ("pods", "99")))
        await self._connection.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for place in pool.positions():
            await self._connection.post("/api/v1/nodes", manifest(pool, place, now=now))

    async def _clean_up(self) -> None:
        for name in self._pool.names():
            await self._connection.delete(f"/api/v1/nodes/{name}")
        self._observer.forget(self.namespace)

    async def _operate(self) -> None:
        """Do one random operation that is possible."""
        kept = self.controllers.kept
        key = self.rng.choice(sorted(kept)) if kept else None
        weights: list[tuple[float, Act]] = [(2 if len(kept) < MAX_OWNERS else 0, self._create)]
        if key is not None:
            owner = kept[key].owner
            others: list[tuple[float, Callable[[Key], Awaitable[None]]]] = [
                (1, self._delete),
                (0.7, self._recreate),
                (1 if self.controllers.can_restart(owner) else 0, self._restart),
                (1.5 if self.controllers.can_resize(owner) else 0, self._resize),
                (0 if isinstance(owner, LeaderWorkerSet) else 3 if owner.suspended else 1, self._toggle),
            ]
            weights += [(weight, partial(act, key)) for weight, act in others]
        (chosen,) = self.rng.choices([act for _, act in weights], [weight for weight, _ in weights])
        await chosen()

    async def _create(self) -> None:
        kind = self.rng.choice(sorted(KINDS))
        taken = {name for _, name in self.controllers.kept}
        free = [name for name in (f"{kind}a", f"{kind}b") if name not in taken]
        if free:
            await self._make(KINDS[kind].random(self.rng.choice(free), self.rng))

    async def _make(self, owner: Owner) -> None:
        if self.rng.random() < 0.15 and not isinstance(owner, LeaderWorkerSet):
            owner = replace(owner, suspended=True)
        self._note("create", owner)
        while True:
            try:
                await self.controllers.create(owner)
            except ApiError as error:
                if not error.is_already_exists:  # a Job that is being deleted keeps its name
                    raise
                await asyncio.sleep(SECONDS_BETWEEN_POLLS)
            else:
                break
        self._possible[owner.plural, owner.name] = [{}]
        self._expect(owner)

    async def _delete(self, key: Key) -> None:
        owner = self.controllers.kept[key].owner
        self._note("delete", owner)
        await self.controllers.delete(owner)
        del self._possible[key]

    async def _recreate(self, key: Key) -> None:
        """Delete an owner, and create another of its name at once."""
        owner = self.controllers.kept[key].owner
        await self._delete(key)
        await self._make(type(owner).random(owner.name, self.rng))

    async def _restart(self, key: Key) -> None:
        owner = self.controllers.kept[key].owner
        self._note("restart", owner)
        await self.controllers.restart(owner)

    async def _resize(self, key: Key) -> None:
        await self._change("resize", self.controllers.kept[key].owner.resized(self.rng))

    async def _toggle(self, key: Key) -> None:
        owner = self.controllers.kept[key].owner
        changed = replace(owner, suspended=not owner.suspended)
        await self._change("resume" if owner.suspended else "suspend", changed)

    async def _change(self, what: str, owner: Owner) -> None:
        self._note(what, owner)
        await self.controllers.update(owner)
        self._expect(owner)

    def _note(self, what: str, owner: Owner) -> None:
        self.history.append(f"{what} {owner}")

    def _expect(self, owner: Owner) -> None:
        """Note the groups of an owner. While it is suspended, the operator leaves those of any state it has seen.

        The minimum of a Job follows its size, also while it is suspended.
        """
        if not owner.suspended or isinstance(owner, Job):
            self._possible[owner.plural, owner.name].append(owner.groups())

    def _is_bound(self, pod: Made | None) -> bool:
        found = self._observer.pods(self.namespace).get(pod.uid) if pod is not None else None
        return found is not None and bool(found["spec"].get("nodeName"))

    async def _await_quiet(self) -> list[str]:
        """Wait until all is as the model says; return what is not in the end."""
        began = complete = time.monotonic()
        self.history.append("quiet")
        late: Plain = {}
        while True:
            await self.controllers.reconcile(self._is_bound)
            groups, pods = [*self._group_problems()], [*self._pod_problems()]
            if groups:
                complete = time.monotonic()
            if groups and not late and complete > began + PROMISED_SECONDS:
                late = {"missing": groups, "after": self.history[-5:-1]}
            if not (groups or pods) or time.monotonic() > began + self._patience:
                break
            await asyncio.sleep(SECONDS_BETWEEN_POLLS)
        self.quiet_seconds.append(time.monotonic() - began)
        self.group_seconds.append(complete - began)
        if late:
            self.late.append({"seed": self.namespace, "seconds": round(self.group_seconds[-1], 1), **late})
        return groups + pods

    def _pod_problems(self) -> Iterator[str]:
        """Yield pods that are lost, left over, in a wrong domain, or wait although they have room."""
        pods = self._observer.pods(self.namespace)
        nodes = {uid: one["spec"].get("nodeName", "") for uid, one in pods.items()}
        used = [node for node in nodes.values() if node]
        yield from overcommitted(self._places, used, self._slots_of_node)
        free, expected = self._places.free(used), set[str]()
        for kept in self.controllers.kept.values():
            owner, slots = kept.owner, [] if kept.owner.suspended else kept.owner.slots()
            expected |= {made.uid for made in kept.pods.values()}
            places = {name: nodes.get(made.uid, "") for name, made in kept.pods.items()}
            yield from domain_problems(owner, places, slots, self._places)
            missing = [slot for slot in slots if slot.name not in kept.pods]
            yield from (f"{slot.name} has no pod" for slot in missing if all(map(places.get, slot.after)))
            waiting = [slot for slot in slots if slot.name in kept.pods and not places.get(slot.name)]
            for part in _placed_together(owner, waiting):
                if fits(owner, part + _expected(owner, part, slots, kept.pods), places, self._places, free):
                    yield f"{[slot.name for slot in part]} have room and wait; free: {dict(free)}"
        yield from (f"pod {pods[uid]['metadata']['name']} is left" for uid in pods.keys() - expected)
        yield from (f"pod {uid} is lost" for uid in expected - pods.keys())

    def _group_problems(self) -> Iterator[str]:
        """Yield the groups that differ from the model."""
        left = {name: _read_group(one) for name, one in self._observer.groups(self.namespace).items()}
        for key, possible in self._possible.items():
            owner = self.controllers.kept[key].owner
            known = {name for groups in possible for name in groups}
            found = {name: left.pop(name) for name in known if name in left}
            accepted = possible if owner.suspended else possible[-1:]
            if found not in accepted:
                yield f"{owner.name} has groups {found}, expected {accepted}"
            elif not owner.suspended:
                self._possible[key] = possible[-1:]
        for name in left:
            meta = self._observer.groups(self.namespace)[name]["metadata"]
            state = {key: meta.get(key) for key in ("creationTimestamp", "deletionTimestamp", "finalizers")}
            yield f"group {name} is left: {state}"


def _pod_template(namespace: str) -> Plain:
    """Return the template of pods of which a node of the run holds a few."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"example.com/run": namespace},
        "containers": [container],
    }
    return {"spec": spec}


def _placed_together(owner: Owner, slots: list[Slot]) -> list[list[Slot]]:
    """Return slots by the units that are placed as a whole."""
    units: dict[str, list[Slot]] = {}
    for slot in slots:
        units.setdefault("" if owner.is_gang else slot.group, []).append(slot)
    return [*units.values()]


def _expected(owner: Owner, part: list[Slot], slots: list[Slot], pods: Mapping[str, Made]) -> list[Slot]:
    """Return the workers that are created later than a leader, and have to have room beside it."""
    if not isinstance(owner, LeaderWorkerSet):
        return []
    groups = {slot.group for slot in part}
    return [slot for slot in slots if slot.group in groups and slot.name not in pods]


def _read_group(one: Plain) -> Group:
    gang = one["spec"]["schedulingPolicy"].get("gang")
    minimum = gang.get("minCount", gang.get("minGroupCount")) if gang is not None else None
    return Group(one["spec"].get("parentCompositePodGroupName", ""), minimum)
