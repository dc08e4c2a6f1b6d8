"""The annotation that has the replicas of templates of the built-in API."""

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.names import REPLICAS
from cpg_api.scheduling.replicas import format_replicas, with_replicas
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import inner_template, leaf_template, workload

TREE = workload(
    [inner_template("root", [inner_template("replica", [leaf_template("workers"), leaf_template("driver")])])]
)


def annotated(source: Workload, text: str) -> Workload:
    """Return a Workload with this annotation."""
    return replace(source, metadata=replace(source.metadata, annotations={REPLICAS: text}))


def numbers(source: Workload | None) -> dict[str, int | None]:
    """Return the replicas of each template."""
    assert source is not None
    return {place.template.name: place.template.replicas for place in walk_templates(source)}


@pytest.mark.parametrize("text", ["replica=2,driver=0", " replica=2 , driver=0,", "driver=0,replica=2"])
def test_templates_get_their_replicas(text: str) -> None:
    """On every level; those that are not named have none."""
    assert numbers(with_replicas(annotated(TREE, text))) == {
        "root": None,
        "replica": 2,
        "workers": None,
        "driver": 0,
    }


def test_flat_templates_get_theirs() -> None:
    """A Workload has either kind at the top."""
    flat = workload([leaf_template("a"), leaf_template("b")])
    assert numbers(with_replicas(annotated(flat, "b=1000"))) == {"a": None, "b": 1000}


def test_without_the_annotation_nothing_changes() -> None:
    """An empty one names no template."""
    assert with_replicas(TREE) is TREE
    assert numbers(with_replicas(annotated(TREE, ""))) == numbers(TREE)


@pytest.mark.parametrize(
    "text",
    ["replica", "replica=", "replica=-1", "replica=1001", "replica=00001", "replica=²", "other=1", "driver=1,driver=1"],
)
def test_what_cannot_be_read_counts_as_a_whole(text: str) -> None:
    """A mistyped entry must not remove groups."""
    assert with_replicas(annotated(TREE, text)) is None


def test_what_is_written_can_be_read() -> None:
    """Parents come first."""
    filled = with_replicas(annotated(TREE, "driver=3,replica=2"))
    assert filled is not None
    assert format_replicas(filled) == "replica=2,driver=3"
    assert format_replicas(TREE) == ""
