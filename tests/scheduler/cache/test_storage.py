"""News of storage: what is kept, whom they concern, and who is woken."""

from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_client.stores import Rejection, Synced
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.storage_builders import DRIVER, claim, csi_node, ephemeral, storage_class, using, volume
from cpg_scheduler.cache.storage import claims_of, trimmed, version_of
from cpg_scheduler.testing.stage import Stage, Thing


def told(stage: Stage, *things: Thing) -> tuple[bool, set[str]]:
    """Return whether anything has moved, and the names of the roots that were touched."""
    stage.cache.take_events()
    stage.put(*things)
    news = stage.cache.take_events()
    return news.any_change, {root.key.name for root in news.changed_units}


def test_of_an_object_is_kept_what_is_read() -> None:
    """The annotations of tools are the largest part of most objects."""
    whole = claim("x", bound_to="pv", annotations={"tool/last-applied": "{...}"}, node="n1")
    whole = replace(whole, metadata=replace(whole.metadata, finalizers=("f",), resource_version="3"))
    kept = trimmed(whole)
    assert sorted(kept.metadata.annotations) == [
        "pv.kubernetes.io/bind-completed",
        "volume.kubernetes.io/selected-node",
    ]
    assert (kept.metadata.finalizers, kept.metadata.resource_version, kept.spec) == ((), "3", whole.spec)


def test_claims_of_a_pod_are_known_by_name() -> None:
    """Those of its ephemeral volumes bear its own."""
    assert claims_of(pod("p", volumes=(*using("x"), *ephemeral("e")))) == {"default/x", "default/p-e"}
    assert claims_of(pod("p")) == frozenset()


def test_a_claim_that_appears_or_is_bound_touches_those_who_use_it() -> None:
    """Its pods' roots, and nobody else."""
    stage = Stage(node("n1"), pod_group("pg"), pod("m", group="pg", volumes=using("x")), pod("p", volumes=using("x")))
    stage.put(pod("q", volumes=using("y")), pod("there", volumes=using("x"), node_name="n1"))
    assert told(stage, claim("x")) == (True, {"pg", "p"})
    assert told(stage, claim("x", node="n1")) == (True, set())
    assert told(stage, claim("x", bound_to="pv")) == (True, {"pg", "p"})
    stage.delete(stage.pod("m"), stage.pod("p"))
    stage.delete(claim("x"))
    assert told(stage, claim("x")) == (True, set())


def test_an_ephemeral_claim_touches_its_pod() -> None:
    """The controller makes it after the pod."""
    made = pod("p", volumes=ephemeral("e"))
    assert told(Stage(made), claim("p-e", owner=made)) == (True, {"p"})


def test_everything_in_storage_may_help_somebody() -> None:
    """What comes, changes and goes, as long as scheduling looks at it."""
    stage = Stage()
    for thing in (storage_class(), csi_node("n1"), volume("pv"), claim("x")):
        assert told(stage, thing) == (True, set())
        assert told(stage, thing) == (False, set())
        stage.cache.take_events()
        stage.delete(thing)
        assert stage.cache.take_events().any_change
    storage = stage.cache.snapshot.ledger.storage
    assert (storage.claims, storage.volumes, storage.classes, storage.drivers) == ({}, {}, {}, {})


def test_an_object_that_fits_nothing_is_no_news() -> None:
    """Nor is the end of the first list."""
    stage = Stage()
    stage.cache.on_claim(Rejection("default/x", ()))
    stage.cache.storage.on_volume(Rejection("pv", ()))
    stage.cache.on_claim(Synced())
    assert not stage.cache.take_events().any_change


def test_versions_are_numbers() -> None:
    """What is none counts as older than everything."""
    assert [version_of(ObjectMeta(resource_version=found)) for found in ("12", "", "x1")] == [12, 0, 0]
    stage = Stage()
    found = claim("x")
    stage.put(replace(found, metadata=replace(found.metadata, resource_version="12")))
    storage = stage.cache.storage
    assert [storage.is_seen("default/x", version) for version in (11, 12, 13)] == [True, True, False]
    stage.delete(found)
    assert not storage.is_seen("default/x", 11)


def test_who_waits_is_woken_by_what_it_waits_for() -> None:
    """And leaves nothing behind."""
    stage = Stage()
    storage = stage.cache.storage
    with storage.watching(["default/x", "pv"]) as first, storage.watching(["default/x"]) as second:
        stage.put(claim("y"), volume("pv"))
        assert (first.is_set(), second.is_set()) == (True, False)
        stage.put(claim("x"))
        assert second.is_set()
    assert storage._waiting == {}


# What was chosen for claims counts for as long as their pods are assumed.

CHOICE = VolumeAllocation("default/x", None, "n1")


def chosen() -> Stage:
    """Return two pods that share a claim for which something was chosen."""
    stage = Stage(node("n1"), storage_class(provisioner=DRIVER), claim("x"))
    for name in "pq":
        stage.put(pod(name, volumes=using("x")))
        stage.cache.assume(f"uid-default-{name}", "n1", (CHOICE,))
    return stage


def test_a_choice_stands_until_the_last_of_its_pods_is_given_up() -> None:
    """Whether its bind fails or it is deleted."""
    stage = chosen()
    bindings = stage.cache.snapshot.ledger.volume_allocator
    stage.cache.forget("uid-default-p")
    assert bindings.chosen == {"default/x": CHOICE}
    stage.delete(stage.pod("q"))
    assert bindings.chosen == {}
    stage.cache.forget("uid-default-q")


def test_a_pod_is_assumed_until_the_watch_says_more() -> None:
    """That it has its node, or that it is about to go."""
    stage = chosen()
    assert "uid-default-p" in stage.cache.assumed
    with stage.cache.storage.watching(["uid-default-p"]) as news:
        stage.put(pod("p", volumes=using("x"), node_name="n1"))
        assert news.is_set()
    assert "uid-default-p" not in stage.cache.assumed
    leaving = stage.pod("q")
    stage.put(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))
    assert "uid-default-q" not in stage.cache.assumed
