"""The faults of requests and watches: the network asks them about each."""

import json
from collections.abc import Callable, Mapping
from random import Random

from cpg_simulation.apiserver.values import Answer, Request
from cpg_simulation.network import NORMAL, Treatment
from cpg_simulation.nights.plan import Fault

KINDS = ("lose-request", "lose-answer", "cut-answer", "refuse", "throttle", "fail", "delay")
FAILURES = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


SORTS: dict[str, Callable[[Request], bool]] = {
    "binds": lambda request: request.path.endswith("/binding"),
    "evictions": lambda request: request.method == "DELETE" and "/pods/" in request.path,
    "deletions": lambda request: SORTS["evictions"](request) and b'"dryRun"' not in request.body,
    "claims": lambda request: request.method != "GET" and "/resourceclaims" in request.path,
    "leases": lambda request: "/leases" in request.path,
    "status": lambda request: request.method != "GET" and request.path.endswith("/status"),
    "nominations": lambda request: b'"nominatedNodeName"' in request.body,
    "placements": lambda request: b'InitiallyScheduled","status":"True"' in request.body,
    "watches": lambda request: request.query.get("watch") == "true",
    "reads": lambda request: request.method == "GET" and request.query.get("watch") != "true",
    "writes": lambda request: request.method != "GET",
    "any": lambda _: True,
}


def is_hit(request: Request, requests: str) -> bool:
    """Return whether a request is of a sort."""
    return SORTS[requests](request)


def refusal(status: int, reason: str, message: str) -> Answer:
    """Return the answer of an API server that refuses."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return Answer(status, json.dumps({**body, "message": message}).encode())


TREATMENTS = {
    "lose-request": Treatment(is_lost_before=True),
    "lose-answer": Treatment(is_lost_after=True),
    "cut-answer": Treatment(is_cut=True),
    "refuse": Treatment(answer=refusal(403, "Forbidden", "not now")),
    "throttle": Treatment(answer=refusal(429, "TooManyRequests", "too many"), retry_after=1),
}
"""What the faults do that do the same to each request."""


class RequestFaults:
    """Decides about each request by the faults that are active."""

    def __init__(
        self,
        seed: int,
        active: Mapping[int, Fault],
        *,
        on_request: Callable[[Request], None],
        on_fault: Callable[[Fault, str, Request | None], None],
    ) -> None:
        """Decide by these faults; call ``on_fault`` with each that has an effect on a process."""
        self._on_request = on_request
        self._seed = seed
        self._active = active
        self._on_fault = on_fault
        self._randoms: dict[int, Random] = {}

    def treat(self, process: str, request: Request) -> Treatment:
        """Return what is to happen to a request: the first fault that hits it decides."""
        self._on_request(request)
        for number, fault in self._active.items():
            if (
                fault.kind in KINDS
                and fault.target in {"", process}
                and is_hit(request, fault.requests)
                and self._random(number).random() < fault.share
            ):
                self._on_fault(fault, process, request)
                return _treatment(fault, self._random(number))
        return NORMAL

    def watch_lag(self, process: str, watch_number: int, path: str) -> float:
        """Return the seconds by which the next events of a watch are late; other watches are on time."""
        for number, fault in self._active.items():
            if fault.kind == "lag-watches" and fault.target == process:
                random = Random(f"{number} {watch_number} {path}")  # noqa: S311 - the same for the same seed
                if random.random() < max(fault.share, 0.5):
                    self._on_fault(fault, process, None)
                    return fault.amount * random.random()
        return 0.0

    def is_cut_off(self, process: str) -> bool:
        """Return whether nothing passes between a process and the API server."""
        return any(fault.kind == "cut-off" and fault.target == process for fault in self._active.values())

    def _random(self, number: int) -> Random:
        """Return the random numbers of a fault, which do not depend on the other faults."""
        if number not in self._randoms:
            self._randoms[number] = Random(f"{self._seed} fault {number}")  # noqa: S311 - the same for the same seed
        return self._randoms[number]


def _treatment(fault: Fault, random: Random) -> Treatment:
    if fault.kind == "delay":
        seconds = fault.amount * random.random()
        return Treatment(seconds_there=seconds) if random.random() < 0.5 else Treatment(seconds_back=seconds)
    if fault.kind == "fail":
        status = random.choice(tuple(FAILURES))
        return Treatment(answer=refusal(status, FAILURES[status], "failed"))
    return TREATMENTS[fault.kind]
