"""Plays all scenarios at the same time, once for each scheduler, and compares what becomes of their pods and claims."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import msgspec
from tests.e2e.devices.scenario_forms import KINDS, Plain, Run

from cpg_api.scheduling.names import POD_SCHEDULED, SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import NAMESPACES, PODS, RESOURCE_CLAIMS, STATUS

ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
"""The label of namespaces in which claims may ask for admin access."""
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
PATIENCE_SECONDS = 60.0
QUIET_SECONDS = 1.5
"""For this time nothing may change after the outcome is the expected one."""
SECONDS_BETWEEN_POLLS = 0.2
PEER, OURS = "peer", "ours"
Outcome = dict[str, Any]
VERDICTS = {
    "": ("False WaitingForDevices",),
    "False Unschedulable": ("False WaitingForDevices", "False PlacementNotFound"),
    "False SchedulerError": ("False Unschedulable", "False PlacementNotFound"),
}
"""Status and reason of pending pods with kube-scheduler, and ours in their place.

Ours also explains what a pod waits for that kube-scheduler does not try yet or is about to bind, tells exhausted
searches from proofs, and has no attempts that end with an error.
"""


@dataclass
class Comparison:
    """The outcomes of one scenario after each of its steps."""

    peer: list[Outcome] = field(default_factory=list)
    ours: list[Outcome] = field(default_factory=list)


class PlayedScenarios:
    """All scenarios on one cluster."""

    def __init__(self, connection: Connection, runs: Iterable[Run]) -> None:
        """Nothing is created yet."""
        self._connection = connection
        self._runs = list(runs)
        self.comparisons: dict[str, Comparison] = defaultdict(Comparison)

    async def play(self) -> None:
        """Play step by step, and keep the outcomes."""
        await self._create(
            (NAMESPACES.path(), {"metadata": {"name": run.here, "labels": ADMIN_ACCESS}}) for run in self._runs
        )
        number = 0
        while playing := [run for run in self._runs if run.scenario.has_step(number)]:
            await self._perform(playing, number)
            outcomes = await self._settled(playing, number)
            for run in playing:
                getattr(self.comparisons[run.scenario_name], run.name).append(outcomes[run.here])
            number += 1

    async def _perform(self, playing: Sequence[Run], number: int) -> None:
        for run in playing:
            for name in run.scenario.steps[number].finish:
                await self._connection.patch(PODS.path(run.here, name, STATUS), {"status": {"phase": "Succeeded"}})
            for path in run.deleted(number):
                await self._connection.delete(path)
        await self._create(_request(one) for run in playing for one in run.objects(number))
        for run in playing:
            for name, allocation in run.allocations(number).items():
                await self._allocate(run, name, allocation)
            for name, conditions in run.scenario.steps[number].conditions.items():
                await self._report_conditions(run, name, conditions)
        for turn in zip_longest(*(run.pods(number) for run in playing)):
            await self._create(_request(pod) for pod in turn if pod is not None)

    async def _create(self, requests: Iterable[tuple[str, Plain]]) -> None:
        """Create objects; unknown fields are an error."""
        async with asyncio.TaskGroup() as group:
            for path, body in requests:
                group.create_task(self._connection.post(path, body, {"fieldValidation": "Strict"}))

    async def _allocate(self, run: Run, name: str, allocation: Plain) -> None:
        path = RESOURCE_CLAIMS.path(run.here, name)
        await self._connection.patch(path, {"metadata": {"finalizers": [DELETE_PROTECTION]}})
        status = {"status": {"allocation": {**allocation, "allocationTimestamp": _now()}}}
        await self._connection.patch(RESOURCE_CLAIMS.path(run.here, name, STATUS), status)

    async def _report_conditions(self, run: Run, name: str, conditions: dict[str, bool]) -> None:
        """Write conditions of all devices of a claim, as their driver does."""
        claim = msgspec.json.decode(await self._connection.get(RESOURCE_CLAIMS.path(run.here, name)))
        shown = [
            {"type": kind, "status": str(holds), "reason": "Test", "message": "", "lastTransitionTime": _now()}
            for kind, holds in conditions.items()
        ]
        found = [
            {**{key: result[key] for key in ("driver", "pool", "device")}, "conditions": shown}
            for result in claim["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]
        ]
        await self._connection.patch(RESOURCE_CLAIMS.path(run.here, name, STATUS), {"status": {"devices": found}})

    async def _settled(self, playing: Sequence[Run], number: int) -> dict[str, Outcome]:
        """Return the outcomes when they are the expected ones and nothing changes, or when time is up."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        since, before = time.monotonic(), dict[str, Outcome]()
        while True:
            outcomes = await self._outcomes(playing)
            if outcomes != before:
                since, before = time.monotonic(), outcomes
            is_quiet = time.monotonic() - since >= QUIET_SECONDS
            if time.monotonic() > deadline or (is_quiet and self._is_expected(playing, number, outcomes)):
                return outcomes
            await asyncio.sleep(SECONDS_BETWEEN_POLLS)

    def _is_expected(self, playing: Sequence[Run], number: int, outcomes: dict[str, Outcome]) -> bool:
        peers = {run.scenario_name: outcomes[run.here] for run in playing if run.name == PEER}
        return not any(
            problem(run, number, peers[run.scenario_name], outcomes[run.here]) for run in playing if run.name == OURS
        )

    async def _outcomes(self, playing: Sequence[Run]) -> dict[str, Outcome]:
        pods, claims = await asyncio.gather(self._by_namespace(PODS.path()), self._by_namespace(RESOURCE_CLAIMS.path()))
        return {run.here: outcome(run, pods[run.here], claims[run.here]) for run in playing}

    async def _by_namespace(self, path: str) -> dict[str, list[Plain]]:
        found: dict[str, list[Plain]] = defaultdict(list)
        for item in (await list_all(self._connection, path)).items:
            one = msgspec.json.decode(item)
            found[one["metadata"]["namespace"]].append(one)
        return found


def problem(run: Run, number: int, peer: Outcome, ours: Outcome) -> str:
    """Return what is wrong after a step: pods without a node, or a difference that the table does not have."""
    expected, differs = sorted(run.scenario.steps[number].bound), run.scenario.differs
    if bound_of(peer) != expected:
        return f"kube-scheduler binds {bound_of(peer)}, not {expected}: {peer}"
    if differs is not None and run.scheduler == SCHEDULER_NAME:
        wanted = sorted(differs.bound[number])
        return "" if bound_of(ours) == wanted else f"ours binds {bound_of(ours)}, not {wanted}: {ours}"
    return "; ".join(_differences(peer, ours))


def _differences(peer: object, ours: object, path: str = "") -> Iterator[str]:
    """Yield where two outcomes differ."""
    if isinstance(peer, dict) and isinstance(ours, dict):
        for key in sorted(peer.keys() | ours.keys()):
            yield from _differences(peer.get(key), ours.get(key), f"{path}.{key}")
    elif peer != ours and not (path.endswith(".verdict") and ours in VERDICTS.get(str(peer), ())):
        yield f"{path[1:]} is {ours!r}, with kube-scheduler {peer!r}"


def bound_of(outcome: Outcome) -> list[str]:
    """Return the pods that have nodes."""
    return sorted(name for name, pod in outcome["pods"].items() if pod["node"])


def outcome(run: Run, pods: Sequence[Plain], claims: Sequence[Plain]) -> Outcome:
    """Return what became of a run, with the names that the scenario gives."""
    generated = {name: f"{pod['metadata']['name']}/{entry}" for pod in pods for entry, name in _made_claims(pod)}
    found: Outcome = run.plain_names(
        {
            "pods": {pod["metadata"]["name"]: _pod_outcome(pod) for pod in pods},
            "claims": {
                generated.get(one["metadata"]["name"], one["metadata"]["name"]): _claim_outcome(one) for one in claims
            },
        }
    )
    return found


def _made_claims(pod: Plain) -> Iterable[tuple[str, str]]:
    """Yield entry and name of each claim that was made for a pod."""
    for entry in pod["status"].get("resourceClaimStatuses", ()):
        yield entry["name"], entry.get("resourceClaimName", "")
    if extended := pod["status"].get("extendedResourceClaimStatus"):
        yield "extended", extended["resourceClaimName"]


def _pod_outcome(pod: Plain) -> Outcome:
    conditions = [one for one in pod["status"].get("conditions", ()) if one["type"] == POD_SCHEDULED]
    node = pod["spec"].get("nodeName", "")
    extended = pod["status"].get("extendedResourceClaimStatus", {}).get("requestMappings")
    verdict = "" if node else "".join(f"{one['status']} {one.get('reason', '')}" for one in conditions)
    return {"node": node, "verdict": verdict, "extended": extended}


def _claim_outcome(claim: Plain) -> Outcome:
    status = claim.get("status", {})
    allocation = dict(status.get("allocation", {}))
    results = allocation.pop("devices", {})
    shares = [{**one, "shareID": "shareID" in one} for one in results.get("results", ())]
    return {
        **{key: value for key, value in allocation.items() if key != "allocationTimestamp"},
        "has timestamp": "allocationTimestamp" in allocation,
        "results": shares,
        "config": [_config(one, results["results"]) for one in results.get("config", ())],
        "users": sorted(one["name"] for one in status.get("reservedFor", ())),
        "finalizers": claim["metadata"].get("finalizers", []),
        "is deleted": "deletionTimestamp" in claim["metadata"],
    }


def _config(config: Plain, results: Sequence[Plain]) -> Plain:
    """Return parameters without the requests if they are for all; some versions name these and some do not."""
    is_for_all = {one["request"] for one in results} <= set(config.get("requests", ()))
    return {key: value for key, value in config.items() if key != "requests" or not is_for_all}


def _request(manifest: Plain) -> tuple[str, Plain]:
    """Return the path at which an object is created, and the object."""
    resource = next(one for one in KINDS.values() if one.kind == manifest["kind"])
    return resource.path(manifest["metadata"].get("namespace")), manifest


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
