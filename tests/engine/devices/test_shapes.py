"""Shapes: what claims ask for, compiled."""

import pytest

from cpg_api.core.devices import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from cpg_engine.devices.shapes import (
    Alternative,
    Constraint,
    DeviceRequestError,
    asked_alternatives,
    compile_shape,
    request_names,
)
from cpg_engine.testing.device_builders import alternative, claim_spec, device_class, device_request, first_available

CLASSES = {"gpu": device_class("gpu", "class"), "nic": device_class("nic")}


def test_a_request_is_compiled_with_its_class() -> None:
    """Amounts are in nanos; for how long a taint is tolerated does not matter."""
    toleration = DeviceToleration(key="k", toleration_seconds=5)
    request = device_request("r", "one", count=2, tolerations=(toleration,), capacity={"b": "1m", "a": 2})
    shape = compile_shape([claim_spec(request)], CLASSES)
    assert shape.alternatives == (
        Alternative(
            device_class="gpu",
            class_selectors=("class",),
            selectors=("one",),
            count=2,
            tolerations=(DeviceToleration(key="k"),),
            capacity=(("a", 2 * 10**9), ("b", 10**6)),
        ),
    )


def test_claims_and_alternatives_are_numbered() -> None:
    """Over all claims; constraints apply to the alternatives of the requests that they name."""
    constraints = [
        DeviceConstraint(match_attribute="a"),
        DeviceConstraint(distinct_attribute="b", requests=("r0",)),
        DeviceConstraint(match_attribute="c", requests=("r0/y", "r1")),
    ]
    second = claim_spec(
        first_available("r0", alternative("x"), alternative("y", device_class_name="nic")),
        device_request("r1", admin_access=True, allocation_mode="All"),
        constraints=constraints,
    )
    shape = compile_shape([claim_spec(device_request()), second], CLASSES)
    assert [one.requests for one in shape.claims] == [((0,),), ((1, 2), (3,))]
    assert shape.claims[1].constraints == (
        Constraint(attribute="a", is_distinct=False, alternatives=(1, 2, 3)),
        Constraint(attribute="b", is_distinct=True, alternatives=(1, 2)),
        Constraint(attribute="c", is_distinct=False, alternatives=(2, 3)),
    )
    assert [(one.device_class, one.count, one.is_admin) for one in shape.alternatives] == [
        ("gpu", 1, False),
        ("gpu", 1, False),
        ("nic", 1, False),
        ("gpu", 0, True),
    ]
    assert request_names(second) == ("r0/x", "r0/y", "r1")
    assert len(asked_alternatives(second)) == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (claim_spec(device_request(device_class_name="tpu")), "device class tpu does not exist"),
        (claim_spec(device_request(allocation_mode="Some")), "allocation mode Some is not supported"),
        (claim_spec(DeviceRequest(name="r")), "request r is of a kind that is not supported"),
        (
            claim_spec(
                DeviceRequest(
                    name="r", exactly=ExactDeviceRequest(device_class_name="gpu", selectors=(DeviceSelector(),))
                )
            ),
            "a selector is of a kind that is not supported",
        ),
        (
            claim_spec(device_request(), constraints=[DeviceConstraint()]),
            "a constraint is of a kind that is not supported",
        ),
        (
            claim_spec(device_request(count=30), first_available("r1", alternative("x", count=3))),
            "a claim asks for 33 devices, but can have at most 32",
        ),
    ],
)
def test_claims_that_can_be_allocated_nowhere(spec: ResourceClaimSpec, message: str) -> None:
    """The reason is a message for users."""
    with pytest.raises(DeviceRequestError, match=message):
        compile_shape([spec], CLASSES)


def test_equal_claims_have_equal_shapes() -> None:
    """Whatever the requests are called."""
    assert hash(compile_shape([claim_spec(device_request("a"))], CLASSES)) == hash(
        compile_shape([claim_spec(device_request("b"))], CLASSES)
    )
