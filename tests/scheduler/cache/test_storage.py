"""Storage objects: which units they change, and waiting for their changes."""

from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_client.stores import Rejection, Synced
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.storage_builders import DRIVER, claim, csi_node, ephemeral, storage_class, using, volume
from cpg_scheduler.cache.storage import claims_of
from cpg_scheduler.cache.versions import version_of
from cpg_scheduler.testing.cache import events_of, with_fields
from cpg_scheduler.testing.stage import KubeObject, Stage


def events(stage: Stage, *things: KubeObject) -> tuple[bool, set[str]]:
    """Put objects; return whether that was any event, and the names of the changed units."""
    found = events_of(stage, *things)
    return found.any_change, {unit.key.name for unit in found.changed_units}


def test_the_claims_of_a_pod_are_known_by_name() -> None:
    """Those of its ephemeral volumes begin with its own name."""
    assert claims_of(pod("p", volumes=(*using("x"), *ephemeral("e")))) == {"default/x", "default/p-e"}
    assert claims_of(pod("p")) == frozenset()


def test_a_claim_that_appears_or_is_bound_changes_the_units_that_use_it() -> None:
    """Those with pending pods, and no others."""
    stage = Stage(node("n1"), pod_group("pg"), pod("m", group="pg", volumes=using("x")), pod("p", volumes=using("x")))
    stage.put(pod("q", volumes=using("y")), pod("there", volumes=using("x"), node_name="n1"))
    assert events(stage, claim("x")) == (True, {"pg", "p"})
    assert events(stage, claim("x", node="n1")) == (True, set())
    assert events(stage, claim("x", bound_to="pv")) == (True, {"pg", "p"})
    stage.delete(stage.pod("m"), stage.pod("p"))
    stage.delete(claim("x"))
    assert events(stage, claim("x")) == (True, set())


def test_an_ephemeral_claim_changes_the_unit_of_its_pod() -> None:
    """The controller creates it after the pod."""
    made = pod("p", volumes=ephemeral("e"))
    assert events(Stage(made), claim("p-e", owner=made)) == (True, {"p"})


def test_every_change_that_the_catalogue_shows_is_an_event() -> None:
    """Of storage classes, CSI nodes, volumes and claims; their deletion too."""
    stage = Stage()
    for thing in (storage_class(), csi_node("n1"), volume("pv"), claim("x")):
        assert events(stage, thing) == (True, set())
        assert events(stage, thing) == (False, set())
        stage.cache.take_events()
        stage.delete(thing)
        assert stage.cache.take_events().any_change
    storage = stage.cache.snapshot.ledger.storage
    assert (storage.claims, storage.volumes, storage.classes, storage.drivers) == ({}, {}, {}, {})


def test_an_object_that_cannot_be_decoded_is_no_event() -> None:
    """Nor is the end of the first list."""
    stage = Stage()
    stage.cache.storage.on_claim(Rejection("default/x", ()))
    stage.cache.storage.on_volume(Rejection("pv", ()))
    stage.cache.storage.on_claim(Synced())
    assert not stage.cache.take_events().any_change


def test_versions_are_compared_as_numbers() -> None:
    """A version that is no number is older than all others."""
    assert [version_of(ObjectMeta(resource_version=found)) for found in ("12", "", "x1")] == [12, 0, 0]
    stage = Stage()
    found = claim("x")
    stage.put(replace(found, metadata=replace(found.metadata, resource_version="12")))
    versions = stage.cache.versions
    assert [versions.is_seen("default/x", version) for version in (11, 12, 13)] == [True, True, False]
    stage.delete(found)
    assert not versions.is_seen("default/x", 11)


def test_a_change_wakes_the_coroutines_that_watch_its_object() -> None:
    """Nothing is left of a watch that has ended."""
    stage = Stage()
    versions = stage.cache.versions
    with versions.watching(["default/x", "pv"]) as first, versions.watching(["default/x"]) as second:
        stage.put(claim("y"), volume("pv"))
        assert (first.is_set(), second.is_set()) == (True, False)
        stage.put(claim("x"))
        assert second.is_set()
    assert versions._waiting == {}


# Volumes are allocated for as long as their pods are assumed.

ALLOCATION = VolumeAllocation("default/x", None, "n1")


def assumed() -> Stage:
    """Return a stage with two assumed pods that share a claim with an allocation."""
    stage = Stage(node("n1"), storage_class(provisioner=DRIVER), claim("x"))
    for name in "pq":
        stage.put(pod(name, volumes=using("x")))
        stage.cache.assume(f"uid-default-{name}", "n1", (ALLOCATION,))
    return stage


def test_an_allocation_lasts_until_the_last_of_its_pods_is_forgotten() -> None:
    """Whether the bind of a pod fails or the pod is deleted."""
    stage = assumed()
    allocator = stage.cache.snapshot.ledger.volume_allocator
    stage.cache.forget("uid-default-p")
    assert allocator.allocated == {"default/x": ALLOCATION}
    stage.delete(stage.pod("q"))
    assert allocator.allocated == {}
    stage.cache.forget("uid-default-q")


def test_the_end_of_an_assumption_wakes_the_coroutines_that_watch_the_pod() -> None:
    """It ends when the watch shows the node, or that the pod terminates."""
    stage = assumed()
    assert "uid-default-p" in stage.cache.assumed
    with stage.cache.versions.watching(["uid-default-p"]) as changed:
        stage.put(pod("p", volumes=using("x"), node_name="n1"))
        assert changed.is_set()
    assert "uid-default-p" not in stage.cache.assumed
    stage.put(with_fields(stage.pod("q"), metadata__deletion_timestamp="2026-01-01T00:00:00Z"))
    assert "uid-default-q" not in stage.cache.assumed
