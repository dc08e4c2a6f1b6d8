"""Paths of resources."""

import pytest

from cpg_client import resources
from cpg_client.resources import BINDING, CPG_POD_GROUPS, EVENTS, NODES, PODS, STATUS, Resource


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("a"), "/api/v1/namespaces/a/pods"),
        (PODS.path("a", "web"), "/api/v1/namespaces/a/pods/web"),
        (PODS.path("a", "web", BINDING), "/api/v1/namespaces/a/pods/web/binding"),
        (NODES.path(), "/api/v1/nodes"),
        (NODES.path(name="n1"), "/api/v1/nodes/n1"),
        (NODES.path(name="n1", subresource=STATUS), "/api/v1/nodes/n1/status"),
        (EVENTS.path("a"), "/apis/events.k8s.io/v1/namespaces/a/events"),
        (NODES.path(name="system:a b?"), "/api/v1/nodes/system:a%20b%3F"),
        (CPG_POD_GROUPS.path("a", "g"), "/apis/scheduling.cpg.dev/v1alpha3/namespaces/a/podgroups/g"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    """Of collections, objects and subresources."""
    assert path == expected


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    """A node in a namespace is an error."""
    with pytest.raises(ValueError, match="nodes have no namespace, got 'a'"):
        NODES.path("a")


def test_a_namespaced_object_needs_its_namespace() -> None:
    """The name of a pod alone does not identify it."""
    with pytest.raises(ValueError, match="pods 'web' needs a namespace"):
        PODS.path(name="web")


def test_a_subresource_needs_an_object() -> None:
    """A collection has no subresources."""
    with pytest.raises(ValueError, match="subresource 'binding' of pods needs a name"):
        PODS.path("a", subresource=BINDING)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
def test_a_name_is_one_path_segment(name: str) -> None:
    """No name leads to another path."""
    with pytest.raises(ValueError, match="cannot stand in a path"):
        PODS.path("a", name)
    with pytest.raises(ValueError, match="cannot stand in a path"):
        PODS.path(name)


def test_api_versions() -> None:
    """The core group has an empty name."""
    assert PODS.api_version == "v1"
    assert CPG_POD_GROUPS.api_version == "scheduling.cpg.dev/v1alpha3"


def test_both_flavours_have_the_same_kinds() -> None:
    """They differ in group and version only."""
    by_group: dict[str, set[tuple[str, str]]] = {"scheduling.cpg.dev": set(), "scheduling.k8s.io": set()}
    for constant in vars(resources).values():
        if isinstance(constant, Resource) and constant.group in by_group and constant.namespaced:
            by_group[constant.group].add((constant.plural, constant.kind))
    assert by_group["scheduling.cpg.dev"] == by_group["scheduling.k8s.io"]
