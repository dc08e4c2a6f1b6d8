"""What must hold for devices at any moment, checked on the claims, slices and pods of an API server."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cpg_api.quantity import value

Plain = dict[str, Any]
Device = tuple[str, str, str]
"""Driver, pool and name."""


def results_of(claim: Plain) -> list[Plain]:
    """Return the devices that a claim has."""
    found: list[Plain] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return found


def device_of(result: Plain) -> Device:
    """Return the device of a result."""
    return result["driver"], result["pool"], result["device"]


def given_twice(claims: Iterable[Plain], slices: Iterable[Plain]) -> list[str]:
    """Return devices that several claims have, those of which more is consumed than there is, and exceeded counters."""
    offered = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], one["name"]): one
        for each in slices
        for one in each["spec"].get("devices", ())
    }
    users: dict[Device, list[tuple[str, Plain]]] = defaultdict(list)
    for claim in claims:
        for result in results_of(claim):
            if not result.get("adminAccess"):
                users[device_of(result)].append((claim["metadata"]["name"], result))
    found = []
    for device, some in users.items():
        if not (spec := offered.get(device)):
            found.append(f"{device} of {some[0][0]} is in no slice")
        elif not spec.get("allowMultipleAllocations"):
            found += [f"{device} is given to {sorted(name for name, _ in some)}"] if len(some) > 1 else []
        else:
            found += _exceeded(device, spec, [result for _, result in some])
    return found + list(_exceeded_counters(slices, [offered[device] for device in users if device in offered]))


def _exceeded(device: Device, spec: Plain, results: Sequence[Plain]) -> list[str]:
    found = []
    for name, capacity in spec.get("capacity", {}).items():
        used = sum(value(one.get("consumedCapacity", {}).get(name, "0")) for one in results)
        if used > value(capacity["value"]):
            found.append(f"{used} of {capacity['value']} {name} of {device} are consumed")
    return found


def _exceeded_counters(slices: Iterable[Plain], taken: Sequence[Plain]) -> Iterator[str]:
    """Yield exceeded counters; the names of counter sets are unique in these tests."""
    for each in slices:
        for one in each["spec"].get("sharedCounters", ()):
            for name, counter in one["counters"].items():
                used = sum(
                    value(consumed["counters"].get(name, {"value": "0"})["value"])
                    for spec in taken
                    for consumed in spec.get("consumesCounters", ())
                    if consumed["counterSet"] == one["name"]
                )
                if used > value(counter["value"]):
                    yield f"{used} of {counter['value']} {name} in {one['name']} are consumed"


def unusable(pods: Iterable[Plain], claims: Iterable[Plain], nodes: Iterable[Plain]) -> list[str]:
    """Return bound pods that cannot start: with a claim that is not reserved for them, or not for their node."""
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    labels = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
    found = []
    for pod in pods:
        node, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
        for claim_name in claims_of(pod) if node else ():
            claim = by_name.get(claim_name, {})
            users = {each["uid"] for each in claim.get("status", {}).get("reservedFor", ())}
            if not results_of(claim):
                found.append(f"{name} is bound without devices of {claim_name}")
            elif pod["metadata"]["uid"] not in users and not _is_for_group(claim):
                found.append(f"{claim_name} is not reserved for {name}")
            elif not _selects(claim["status"]["allocation"].get("nodeSelector"), node, labels.get(node, {})):
                found.append(f"{name} cannot reach the devices of {claim_name} from {node}")
    return found


def claims_of(pod: Plain) -> list[str]:
    """Return the names of the claims that a pod has, by name or made from a template."""
    made = {one["name"]: one.get("resourceClaimName") for one in pod["status"].get("resourceClaimStatuses", ())}
    entries = pod["spec"].get("resourceClaims", ())
    return [name for each in entries if (name := each.get("resourceClaimName") or made.get(each["name"]))]


def _is_for_group(claim: Plain) -> bool:
    return any(each["resource"] == "podgroups" for each in claim["status"].get("reservedFor", ()))


def _selects(selector: Plain | None, node: str, labels: dict[str, str]) -> bool:
    """Return whether a selector of names and label values accepts a node; no selector accepts all."""
    return selector is None or any(
        all(node in each["values"] for each in term.get("matchFields", ()))
        and all(labels.get(each["key"]) in each["values"] for each in term.get("matchExpressions", ()))
        for term in selector["nodeSelectorTerms"]
    )
