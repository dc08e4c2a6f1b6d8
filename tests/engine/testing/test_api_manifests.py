"""Objects of scenarios as an API server takes them."""

from cpg_engine.testing.api_manifests import batches_by_age, group_manifest, node_manifest, pod_manifest
from cpg_engine.testing.scenario_forms import Forms


def test_the_capacity_of_a_node_is_what_it_can_allocate() -> None:
    """An API server demands both."""
    (node,) = Forms(0).nodes("n1 4 rack=r1")
    plain = node_manifest(node)
    assert plain["status"]["capacity"] == plain["status"]["allocatable"]
    assert (plain["kind"], plain["metadata"]["labels"]) == ("Node", {"rack": "r1"})


def test_a_pod_names_its_group_by_the_way_of_the_flavour() -> None:
    """By the label, or by the native field; a pod that names two groups keeps both."""
    (pod,) = Forms(0).pods("1@pg1")
    assert "schedulingGroup" not in pod_manifest(pod, native=False)["spec"]
    native = pod_manifest(pod, native=True)
    assert (native["spec"]["schedulingGroup"], native["metadata"]["labels"]) == ({"podGroupName": "pg1"}, {})
    (both,) = Forms(0).pods({"pod": "1@pg1", "schedulingGroup": {"podGroupName": "pg2"}})
    assert pod_manifest(both, native=True)["spec"]["schedulingGroup"] == {"podGroupName": "pg2"}
    assert pod_manifest(both, native=True)["metadata"]["labels"]


def test_spread_constraints_have_a_skew() -> None:
    """An API server requires it, and scenarios leave it out."""
    (pod,) = Forms(0).pods({"pod": "1", "topologySpreadConstraints": [{"topologyKey": "zone"}]})
    (constraint,) = pod_manifest(pod, native=False)["spec"]["topologySpreadConstraints"]
    assert constraint["maxSkew"] == 1


def test_extended_resources_have_limits() -> None:
    """An API server refuses requests without them; CPU can be overcommitted."""
    (pod,) = Forms(0).pods({"pod": "1", "more": {"example.com/gpu": 2}})
    (container,) = pod_manifest(pod, native=False)["spec"]["containers"]
    assert container["resources"]["limits"] == {"example.com/gpu": 2}


def test_objects_come_in_batches_if_their_order_is_not_that_of_their_ages() -> None:
    """Groups and pods are compared among themselves; the age of a node means nothing."""
    forms = Forms(0)
    groups = [group_manifest(group, native=True) for group in forms.groups({"g": None, "h": None})]
    pods = [pod_manifest(pod, native=True) for form in ("1@g", "1@g") for pod in forms.pods(form)]
    nodes = [node_manifest(node) for node in forms.nodes("n1 4")]
    assert batches_by_age([*pods, *nodes, *groups]) == []
    (old,) = forms.pods({"pod": "1@g", "created": 0})
    batches = batches_by_age([*nodes, *groups, *pods, pod_manifest(old, native=True)])
    assert [[one["metadata"]["name"] for one in batch] for batch in batches] == [["g", "h"], ["g-3"], ["g-1"], ["g-2"]]
