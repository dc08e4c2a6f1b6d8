"""Devices: each for one claim, all of a pod's before its bind, and none for what is not bound."""

from collections.abc import Iterator

from cpg_simulation.checks.changes import SCHEDULER, Change
from cpg_simulation.checks.claims import CLAIMS, DeviceName, TrackedClaim, claims_of, devices_of, users_of
from cpg_simulation.checks.cluster import TrackedPod
from cpg_simulation.checks.night_end import QUIET_SECONDS, NightEnd
from cpg_simulation.checks.values import Expectation, Finding, Object, Rule

Findings = Iterator[Finding | Expectation]


def _given_once(change: Change) -> Findings:
    """Yield the devices that the scheduler gives to a claim although, as it knows, another claim has them."""
    write = change.write
    if change.role != SCHEDULER or write.resource != CLAIMS or devices_of(write.old) == devices_of(write.new):
        return
    claim = change.cluster.claims[f"{write.namespace}/{write.name}"]
    for device, other in _contested(change, claim):
        yield Finding((str(claim), str(other)), f"{claim} is given {device}, which {other} has")


def _contested(change: Change, claim: TrackedClaim) -> Iterator[tuple[DeviceName, TrackedClaim]]:
    """Yield the devices of a claim that another one has, as the process that writes had been shown or has written."""
    mine = set(claim.devices)
    for other in change.cluster.claims.values():
        is_known = other.allocated_by == change.process or change.view.sees(CLAIMS, other.allocated_at)
        if other is not claim and is_known:
            yield from ((device, other) for device in other.devices if device in mine)


def _ready_before_the_bind(change: Change) -> Findings:
    """Yield the claims of a pod that were not ready when it was bound, nor at any time since what was shown."""
    pod = change.bound
    if pod is None:
        return
    seen = change.view.revisions.get(CLAIMS, change.write.revision)
    for name in claims_of(pod.raw):
        claim = change.cluster.claims.get(name)
        problems = [_problem(pod, raw) for raw in claim.states_since(seen)] if claim is not None else []
        if claim is None or not problems:
            yield Finding((str(pod),), f"{pod} is bound, and its ResourceClaim {name} is not there")
        elif all(problems):
            yield Finding((str(pod), str(claim)), f"{pod} is bound to {pod.node}, and {claim} {problems[-1]}")
        else:
            for device, other in _contested(change, claim):
                yield Finding((str(pod), str(other)), f"{pod} is bound with {device}, which {other} has")


def _problem(pod: TrackedPod, raw: Object) -> str:
    """Return why a pod cannot run with a claim."""
    devices = devices_of(raw)
    if not devices:
        return "has no devices"
    elsewhere = [device for device in devices if device.pool != pod.node]
    if elsewhere:
        return f"has {elsewhere[0]}"
    return "" if pod.pod.metadata.uid in users_of(raw) else "is not reserved for it"


def _none_is_kept(end: NightEnd) -> Iterator[Finding]:
    """Yield the claims with devices that no pod uses, or that are reserved for pods without a node."""
    bound = {pod.pod.metadata.uid for pod in end.cluster.pods.values() if pod.node}
    for claim in end.cluster.claims.values():
        if not claim.is_given:
            continue
        idle = [uid for uid in users_of(claim.raw) if uid not in bound]
        if claim.devices and bound.isdisjoint(users_of(claim.raw)):
            yield Finding((str(claim),), f"{claim} has {claim.devices[0]}, and no pod that uses it is bound")
        elif idle:
            yield Finding((str(claim),), f"{claim} is reserved for {len(idle)} pods that are not bound")


DEVICES_GIVEN_ONCE = Rule(
    name="A device has one claim",
    promise="The scheduler gives a claim no device that another claim has, by its own writes or as it was shown.",
    check=_given_once,
)
CLAIMS_READY = Rule(
    name="Claims are ready before the bind",
    promise="When a pod is bound, its claims are reserved for it and have devices of its node that no other claim has.",
    check=_ready_before_the_bind,
)
NO_DEVICE_KEPT = Rule(
    name="No device is kept for nothing",
    promise=(
        f"After {QUIET_SECONDS:g} quiet seconds no claim has devices from the scheduler or is reserved by it for pods"
        " that are not bound."
    ),
    check=_none_is_kept,
    seconds=QUIET_SECONDS,
)
