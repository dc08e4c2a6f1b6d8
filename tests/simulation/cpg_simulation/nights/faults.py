"""Chooses the faults of a night: some at any time, most of them when a request that matters is under way."""

from collections.abc import Iterator
from random import Random
from typing import get_args

from cpg_simulation.nights.plan import (
    LEADER,
    Fault,
    FaultKind,
    NetworkFault,
    NodeFault,
    NodePlan,
    ProcessFault,
    RequestFault,
    ServerFault,
)

REQUESTS = ("binds", "evictions", "nominations", "status", "leases", "reads", "watches", "writes", "any")
TRIGGERS = ("binds", "binds", "evictions", "evictions", "nominations", "status", "leases")
DELAYS = (0.0, 0.0, 0.0005, 0.001, 0.003, 0.02, 0.3, 2.0)
SHARE_OF_REPLACEMENTS = 0.2
SHARE_OF_LAST_FAILURES = 0.1
Step = tuple[FaultKind, str, float, float]
"""A fault of a combination: its kind, the requests that it hits, its seconds, and its amount."""
COMBINATIONS: tuple[tuple[Step, ...], ...] = (
    (("lose-answer", "binds", 3.0, 0.0), ("kill", "", 0.5, 0.0)),
    (("lose-answer", "evictions", 3.0, 0.0), ("kill", "", 0.5, 0.0)),
    (("lose-answer", "binds", 10.0, 0.0), ("cut-off", "", 15.0, 0.0)),
    (("lose-answer", "leases", 15.0, 0.0), ("lag-watches", "", 20.0, 8.0)),
    (("delay", "binds", 10.0, 20.0), ("stop", "", 15.0, 0.0)),
    (("delay", "evictions", 10.0, 20.0), ("suspend", "", 30.0, 0.0)),
    (("delay", "status", 10.0, 3.0), ("kill", "", 8.0, 0.0)),
    (("fail", "nominations", 5.0, 0.0), ("terminate", "", 1.0, 0.0)),
    (("cut-watches", "", 1.0, 0.0), ("compact", "", 1.0, 0.0)),
    (("lag-watches", "", 10.0, 8.0), ("compact", "", 1.0, 0.0), ("cut-watches", "", 12.0, 0.0)),
    (("lag-watches", "", 20.0, 8.0), ("vanish", "", 10.0, 0.0)),
    (("lag-watches", "", 20.0, 8.0), ("cordon", "", 10.0, 0.0)),
    (("restore", "", 0.5, 2.0), ("kill", "", 2.0, 0.0)),
    (("restore", "", 3.0, 8.0), ("lag-watches", "", 10.0, 2.0)),
    (("restart", "", 3.0, 0.0), ("terminate", "", 1.0, 0.0)),
    (("kill", "", 0.5, 0.0), ("reject-pods", "", 10.0, 0.0)),
    (("refuse-admission", "evictions", 3.0, 0.0), ("slow", "", 20.0, 1000.0)),
    (("refuse-admission", "binds", 3.0, 0.0), ("stop", "", 8.0, 0.0)),
    (("stop", "", 30.0, 0.0), ("delay", "binds", 20.0, 20.0), ("skew-clock", "", 30.0, 600.0)),
    (("reset", "", 0.5, 0.0), ("throttle", "writes", 5.0, 0.0)),
    (("shrink", "", 10.0, 0.0), ("cut-answer", "any", 3.0, 0.0)),
    (("relabel", "", 10.0, 0.0), ("lose-request", "binds", 3.0, 0.0)),
    (("taint", "", 10.0, 0.0), ("delay", "binds", 5.0, 3.0)),
)
"""Faults that hit the leader together, as one cause often has several effects."""
LEAST_SECONDS = {"restore": 4.0}
"""How long some faults take at least: a restore of etcd takes all API servers down for longer than a watch resumes."""


def faults(random: Random, nodes: tuple[NodePlan, ...], moments: tuple[float, ...], operators: int) -> Iterator[Fault]:
    """Yield the faults of a night; ``moments`` are those at which users act."""
    processes = ("scheduler-0", "scheduler-1", *(f"operator-{number}" for number in range(operators)))
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        at = random.uniform(0.5, max(moments) + 5)
        if random.random() < 0.7:
            at = max(0.5, random.choice(moments) + random.choice((-0.5, 0.0, 0.2, 1.0, 3.0)))
        trigger, delay = (random.choice(TRIGGERS), random.choice(DELAYS)) if random.random() < 0.6 else ("", 0.0)
        if random.random() < 0.35:
            yield from _combination(random, at, nodes, trigger or random.choice(TRIGGERS))
        else:
            process = random.choice((LEADER, LEADER, LEADER, LEADER, *processes))
            yield _single(random, at, nodes, trigger, delay, process)


def replacements(seed: int, moments: tuple[float, ...]) -> Iterator[Fault]:
    """Yield that an object is replaced by another one of its name while a request about it is under way."""
    random = Random(f"replacements {seed}")  # noqa: S311 - a plan, not a secret
    if random.random() < SHARE_OF_REPLACEMENTS:
        trigger, at = random.choice(("binds", "evictions", "placements")), random.choice(moments)
        yield Fault(kind="replace", at=at, seconds=0.5, trigger=trigger, delay=random.choice((0.0, 0.0, 0.0005)))


def last_failures(seed: int, last: float) -> Iterator[Fault]:
    """Yield that the status writes of a program fail at the last action, after which nothing else happens."""
    random = Random(f"last failures {seed}")  # noqa: S311 - a plan, not a secret
    if random.random() < SHARE_OF_LAST_FAILURES:
        kind: FaultKind = random.choice(("fail", "refuse"))
        target, seconds = random.choice((LEADER, "operator-0")), random.choice((5.0, 10.0, 20.0))
        yield Fault(kind=kind, at=last, seconds=seconds, target=target, requests="status")


def _combination(random: Random, at: float, nodes: tuple[NodePlan, ...], trigger: str) -> Iterator[Fault]:
    for number, (kind, requests, seconds, amount) in enumerate(random.choice(COMBINATIONS)):
        yield Fault(
            kind=kind,
            at=at,
            seconds=max(seconds, LEAST_SECONDS.get(kind, 0.0)),
            target=_target(random, kind, nodes, LEADER),
            requests=requests,
            share=random.choice((0.5, 1.0, 1.0)),
            amount=amount,
            trigger=trigger,
            delay=random.choice(DELAYS) if number else 0.0,
        )


def _single(random: Random, at: float, nodes: tuple[NodePlan, ...], trigger: str, delay: float, process: str) -> Fault:
    family = random.random()
    kinds, requests = next(kinds for share, kinds in _FAMILIES if family < share)
    kind: FaultKind = random.choice(kinds)
    return Fault(
        kind=kind,
        at=at,
        seconds=max(random.choice((0.5, 2.0, 5.0, 10.0, 20.0, 30.0)), LEAST_SECONDS.get(kind, 0.0)),
        target=_target(random, kind, nodes, process),
        requests=random.choice(requests),
        share=random.choice((0.1, 0.5, 1.0, 1.0)),
        amount=_amount(random, kind),
        trigger=trigger,
        delay=delay,
    )


_FAMILIES = (
    (0.32, (get_args(RequestFault), REQUESTS)),
    (0.58, (("kill", "kill", "stop", *get_args(ProcessFault)), ("",))),
    (0.71, (get_args(NetworkFault), ("",))),
    (0.82, (get_args(ServerFault), REQUESTS[:4])),
    (1.00, (get_args(NodeFault), ("",))),
)
"""The kinds of faults and the requests that they hit, each up to a share."""


def _target(random: Random, kind: FaultKind, nodes: tuple[NodePlan, ...], process: str) -> str:
    if kind in get_args(NodeFault):
        return random.choice(nodes).name
    if kind in get_args(ServerFault):
        return ""
    return "" if kind in get_args(RequestFault) and random.random() < 0.2 else process


def _amount(random: Random, kind: FaultKind) -> float:
    return {
        "delay": random.choice((0.5, 3.0, 20.0)),
        "slow": random.choice((10.0, 1000.0)),
        "skew-clock": random.uniform(-3600, 3600),
        "fast-clock": random.choice((0.97, 1.03)),
        "lag-watches": random.choice((0.2, 2.0, 8.0)),
        "restore": random.uniform(0.2, 12),
    }.get(kind, 0.0)
