"""The quantities of slices and claims, wherever they are."""

from msgspec import convert

from cpg_api.core.devices import ResourceClaim, ResourceSlice, claim_quantities, slice_quantities


def test_the_quantities_of_a_slice() -> None:
    """Counters, capacities, and the policies of requests."""
    limits = {"default": "4", "validValues": ["5"], "validRange": {"min": "6", "max": "7", "step": "8"}}
    device = {
        "name": "d",
        "capacity": {"a": {"value": "2"}, "b": {"value": "3", "requestPolicy": limits}},
        "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "9"}}}, {"counterSet": "t"}],
    }
    counters = [{"name": "s", "counters": {"c": {"value": "1"}}}, {"name": "t"}]
    spec = {"sharedCounters": counters, "devices": [device, {"name": "e"}]}
    found = convert({"spec": spec}, ResourceSlice)
    assert sorted(map(str, slice_quantities(found))) == list("123456789")
    assert list(slice_quantities(ResourceSlice())) == []


def test_the_quantities_of_a_claim() -> None:
    """What its requests ask for, and what its allocation consumes."""

    def request(amount: str) -> dict[str, object]:
        return {"deviceClassName": "c", "capacity": {"requests": {"a": amount}}}

    requests = [
        {"name": "r", "exactly": request("1")},
        {"name": "s", "firstAvailable": [request("2"), {"deviceClassName": "c", "capacity": {}}, {}]},
    ]
    status = {"allocation": {"devices": {"results": [{"consumedCapacity": {"a": "3"}}, {}]}}}
    found = convert({"spec": {"devices": {"requests": requests}}, "status": status}, ResourceClaim)
    assert sorted(map(str, claim_quantities(found))) == list("123")
    assert list(claim_quantities(ResourceClaim())) == []
