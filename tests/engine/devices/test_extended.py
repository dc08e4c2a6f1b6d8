"""Which devices stand for extended resources, and how their requests are named and shared."""

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass
from cpg_api.core.pod import Container
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.devices.extended import backed_resources, extended_needs, extended_spec
from cpg_engine.testing.builders import pod
from cpg_engine.testing.claim_builders import container, offer
from cpg_engine.testing.device_builders import device_class

GPU, NIC = "example.com/gpu", "example.com/nic"
BACKING = {GPU: "gpus", NIC: "nics"}


def born(name: str, second: int, resource: str | None) -> DeviceClass:
    """Return a class of some age for a resource."""
    found = device_class(name, extended_resource_name=resource)
    time = f"2026-01-01T00:00:{second:02}Z"
    return replace(found, metadata=replace(found.metadata, creation_timestamp=time))


def test_a_class_backs_the_resource_that_it_names_and_one_of_its_own_name() -> None:
    """Of several classes that name one, it is the newest; then the first by name."""
    found = backed_resources([born("a", 1, GPU), born("c", 2, GPU), born("b", 2, GPU), born("d", 3, None)])
    assert found == {
        GPU: "b",
        **{f"deviceclass.resource.kubernetes.io/{name}": name for name in "abcd"},
    }


def test_the_catalog_follows_its_classes() -> None:
    """Unless devices do not stand for resources at all."""
    catalog = offer(DeviceCatalog(), born("a", 1, GPU), born("b", 1, GPU))
    assert catalog.backing[GPU] == "a"
    offer(catalog, born("b", 2, GPU))
    assert catalog.backing[GPU] == "b"
    version = catalog.class_version
    offer(catalog, born("b", 2, GPU))
    catalog.back_resources(backs=True)
    assert catalog.class_version == version
    catalog.back_resources(backs=False)
    assert (catalog.backing, catalog.class_version) == ({}, version + 1)


def needs(init: tuple[Container, ...] = (), main: tuple[Container, ...] = ()) -> tuple[dict[str, str], list[str]]:
    """Return the requests of the claim, and which container uses which of them."""
    found = extended_needs(pod("p", init_containers=init, containers=main), BACKING)
    requests = extended_spec(found).devices.requests or ()
    asked = {one.name: f"{one.exactly.count} {one.exactly.device_class_name}" for one in requests if one.exactly}
    mappings = [
        f"{one.container_name} {one.resource_name[12:]} {one.request_name}" for n in found for one in n.mappings
    ]
    return asked, mappings


def test_there_is_one_request_per_container_and_resource() -> None:
    """It is named by the places of both; requests that no class backs count for the place."""
    assert needs(main=(container("a", cpu=1, gpu=2), container("b"), container("c", gpu=1, nic=3, other=1))) == (
        {"container-0-request-1": "2 gpus", "container-2-request-0": "1 gpus", "container-2-request-1": "3 nics"},
        ["a gpu container-0-request-1", "c gpu container-2-request-0", "c nic container-2-request-1"],
    )


def test_requests_are_in_the_order_of_their_names() -> None:
    """As texts, as upstream sorts them."""
    found, _ = needs(main=tuple(container(str(index), gpu=1) for index in range(11)))
    assert list(found)[:3] == ["container-0-request-0", "container-1-request-0", "container-10-request-0"]


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        pytest.param((2,), (2,), ({1: 2}, ["i0 1", "m1 1"]), id="uses what starts later"),
        pytest.param((1,), (2, 1), ({1: 2, 2: 1}, ["i0 1", "m1 1", "m2 2"]), id="no more than it needs"),
        pytest.param((3,), (2,), ({0: 1, 1: 2}, ["i0 0", "i0 1", "m1 1"]), id="asks for what is missing"),
        pytest.param(
            (3, 5, 4), (1,), ({1: 4, 3: 1}, ["i0 1", "i0 3", "i1 1", "i1 3", "i2 1", "i2 3", "m3 3"]), id="most"
        ),
        pytest.param((2, -1), (), ({0: 1, 1: 1}, ["i0 0", "i0 1", "s1 1"]), id="sidecars keep theirs"),
        pytest.param((-1, 1), (), ({0: 1, 1: 1}, ["i1 1", "s0 0"]), id="an earlier sidecar needs its own"),
    ],
)
def test_init_containers_share_devices(
    init: tuple[int, ...], main: tuple[int, ...], expected: tuple[dict[int, int], list[str]]
) -> None:
    """A negative number is that of a sidecar."""
    first = tuple(
        container(f"{'s' if count < 0 else 'i'}{place}", gpu=abs(count), restart_policy="Always" if count < 0 else None)
        for place, count in enumerate(init)
    )
    last = tuple(container(f"m{len(init) + place}", gpu=count) for place, count in enumerate(main))
    requests, mappings = needs(first, last)
    asked = {f"container-{index}-request-0": f"{count} gpus" for index, count in expected[0].items()}
    used = [f"{name} gpu container-{index}-request-0" for name, index in map(str.split, expected[1])]
    assert (requests, sorted(mappings)) == (asked, used)


def test_what_is_no_amount_needs_no_devices() -> None:
    """The pod is refused for it elsewhere."""
    odd = container("a", gpu=1)
    odd = replace(odd, resources=replace(odd.resources, requests={GPU: "many", NIC: "-1"}))
    assert needs(main=(odd, container("b", gpu=0))) == ({}, [])
