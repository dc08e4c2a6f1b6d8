"""Compares the ledger of each scheduler with one that is added up anew, from what the process has received.

A bind that a process has sent counts until it is refused, or until the process reads the pod to learn its outcome: what
the process itself takes for assumed is not asked then. At the end of a night the same is done with what the API server
has: then a process must have received everything.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

from cpg_api.core.pod import TERMINAL_PHASES, Pod
from cpg_engine.cluster.axes import BASE
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_simulation.apiserver.values import Request
from cpg_simulation.checks.quantities import requests
from cpg_simulation.faults.requests import is_hit
from cpg_simulation.virtual.process import RUNNING

Amounts = dict[str, Counter[str]]
"""What is used of each resource, by node."""
Assignment = tuple[str, str]
"""The UID of a pod, and a node."""
BINDING = "/binding"


class LedgerWatch:
    """Knows the cache of each simulated scheduler."""

    def __init__(self) -> None:
        """Know none yet."""
        self._caches: dict[str, ClusterCache] = {}
        self._sent: defaultdict[str, dict[str, Assignment]] = defaultdict(dict)
        """The binds that each process has sent, by the path of the pod."""

    def install(self) -> None:
        """Note each cache that a process makes from now on; a new process of the same name has a new one."""
        create = ClusterCache.__init__

        def noted(cache: ClusterCache, *arguments: Any, **options: Any) -> None:
            create(cache, *arguments, **options)
            if RUNNING.thread is not None:
                self.note(RUNNING.thread.process.name, cache)

        mock.patch.object(ClusterCache, "__init__", noted).start()

    def note(self, process: str, cache: ClusterCache) -> None:
        """Note the cache of a process that starts: it has sent nothing yet."""
        self._caches[process] = cache
        self._sent.pop(process, None)

    def sent(self, request: Request) -> None:
        """Note a bind that a process sends, or that it reads the pod of one, which may end what it assumes."""
        if is_hit(request, "binds"):
            body = json.loads(request.body)
            if uid := body["metadata"].get("uid"):
                self._sent[request.user][request.path.removesuffix(BINDING)] = uid, body["target"]["name"]
        elif request.method == "GET":
            self._sent[request.user].pop(request.path, None)

    def refused(self, request: Request) -> None:
        """Note that a request was refused; its process will learn that sooner or later."""
        self._sent[request.user].pop(request.path.removesuffix(BINDING), None)

    def restored(self) -> None:
        """Forget all binds: a restore of etcd may have undone them."""
        self._sent.clear()

    def differences(self, living: Collection[str]) -> Iterator[str]:
        """Yield in words where a ledger differs from the pods and reservations of its own cache."""
        for name, cache in self._caches.items():
            # In the middle of a decision the ledger has its simulation in it.
            if name in living and not cache.slices.is_suspended:
                sent = dict(self._sent[name].values())
                yield from _differences(name, _used(cache), _added_up(cache, cache.pods.values(), sent))

    def differences_at_the_end(self, living: Collection[str], pods: Collection[Pod]) -> Iterator[str]:
        """Yield in words where a ledger differs from the pods of the API server."""
        for name, cache in self._caches.items():
            if name in living and not cache.slices.is_suspended:
                yield from _differences(name, _used(cache), _added_up(cache, pods, {}))


def _used(cache: ClusterCache) -> Amounts:
    ledger = cache.snapshot.ledger
    return {name: _counted(ledger.used[row]) for name, row in ledger.cluster.row_of.items()}


def _counted(amounts: Iterable[int]) -> Counter[str]:
    return Counter({name: int(amount) for name, amount in zip(BASE, amounts, strict=False) if amount})


def _added_up(cache: ClusterCache, pods: Iterable[Pod], sent: Mapping[str, str]) -> Amounts:
    """Add up pods, those that are assumed or whose bind was sent to a node, and reservations."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        uid, is_sent = pod.metadata.uid, not pod.is_terminating
        node = pod.spec.node_name or cache.assumed.node_of(uid) or (sent.get(uid) if is_sent else None)
        if node and pod.status.phase not in TERMINAL_PHASES:
            found[node] += _of(pod)
    for uid, reservation in cache.reservations.items():
        if (nominated := cache.reservations.pod_of(uid)) is not None:
            found[reservation.node] += _of(nominated)
    return {name: found[name] for name in cache.snapshot.ledger.cluster.row_of}


def _of(pod: Pod) -> Counter[str]:
    return Counter({name: amount for name, amount in requests(pod).items() if name in BASE and amount})


def _differences(process: str, used: Amounts, expected: Amounts) -> Iterator[str]:
    for node in sorted(used):
        if used[node] != expected[node]:
            yield f"the ledger of {process} has {dict(used[node])} used on {node}, its pods use {dict(expected[node])}"
