"""Which priorities are written down."""

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import CRD, NATIVE
from cpg_client.stores import Added
from cpg_engine.testing.builders import composite, leaf_template, pod_group, priority_class, workload
from cpg_operator.steps.priority import resolve
from cpg_operator.testing.ground import Ground
from cpg_operator.writes import NOTHING


@pytest.fixture
def ground() -> Ground:
    """Return a view of a root without a number over one with, one of a class, and one of a class that is not there."""
    found = Ground()
    found.view.on_class(Added("high", priority_class("high", 9)))
    found.put(
        composite("root", priority=None),
        pod_group("set", parent="root", priority=4),
        named("known", "high"),
        named("unknown", "gone"),
    )
    return found


def named(name: str, of: str) -> PodGroup:
    """Return a group with a class and no number."""
    group = pod_group(name, parent="root", priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=of))


def test_numbers_are_filled_in_once(ground: Ground) -> None:
    """Over the very state that was seen, because what is written then is immutable."""
    writes = resolve(ground.scene()).writes
    assert {one.target.name: one.body["spec"] for one in writes} == {"root": {"priority": 0}, "known": {"priority": 9}}
    assert all(one.unchanged for one in writes)


def test_who_does_not_see_the_classes_fills_in_nothing(ground: Ground) -> None:
    """A wrong number could never be mended."""
    ground.view.knows_classes = False
    assert resolve(ground.scene()) == NOTHING


def test_the_native_flavour_has_its_admission_for_that(ground: Ground) -> None:
    """We leave it alone."""
    ground.put(composite("root", priority=None), flavour=NATIVE)
    assert resolve(ground.scene(flavour=NATIVE)) == NOTHING


def test_a_template_comes_before_the_default(ground: Ground) -> None:
    """Also while the class that it names is not there yet: nothing else is filled in meanwhile."""
    source = workload(
        [replace(leaf_template("leaf"), priority=5), replace(leaf_template("x"), priority_class_name="y")]
    )
    ground.view.put(CRD, source)
    ground.put(pod_group("leaf", workload="w", priority=None), pod_group("x", workload="w", priority=None))
    assert [one.body["spec"] for one in resolve(ground.scene("leaf", kind="PodGroup")).writes] == [{"priority": 5}]
    assert resolve(ground.scene("x", kind="PodGroup")).writes == ()
