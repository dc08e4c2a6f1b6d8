"""What is free in each domain, and how many pods of a shape fit."""

import pytest
from tests.cli.cluster_caches import BLOCK, GPU, RACK, cache_of, ours, racks

from cpg_api.core.node import Taint
from cpg_api.scheduling.forest import Group
from cpg_cli.analysis.capacity import (
    full_name,
    labelled_levels,
    nested_levels,
    offered_resources,
    parse_shape,
    survey_capacity,
    used_levels,
)
from cpg_cli.failures import CommandError
from cpg_engine.testing.builders import composite, node, pod_group

OFFERED = ["cpu", "memory", "pods", GPU, "example.com/fpga"]


@pytest.mark.parametrize(("name", "expected"), [("cpu", "cpu"), ("gpu", GPU), (GPU, GPU), ("fpga", "example.com/fpga")])
def test_an_end_stands_for_the_only_resource_that_has_it(name: str, expected: str) -> None:
    """Or the name is that of a resource."""
    assert full_name(name, OFFERED) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tpu=1", "tpu is no resource of a node"),
        ("gpu=x", "is not a quantity"),
        ("gpu=-1", "is negative"),
        ("gpu=0", "requests nothing"),
        ("", "requests nothing"),
        ("pods=1", "requests nothing"),
    ],
)
def test_a_shape_that_says_nothing_is_a_usage_error(text: str, problem: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(CommandError, match=problem):
        parse_shape(text, OFFERED)


def test_two_resources_with_the_same_end_are_ambiguous() -> None:
    """The hint names both."""
    with pytest.raises(CommandError, match="gpu is the end of several") as error:
        full_name("gpu", [GPU, "amd.com/gpu"])
    assert error.value.hint == f"choose one of amd.com/gpu, {GPU}"


def test_each_domain_counts_the_pods_that_fit_at_once() -> None:
    """A node with three of four GPUs free takes one pod of three, and a third of what is free stays unused."""
    running = [ours(f"p-{number}", gpu=1, node_name="n-1-1-1") for number in range(2)]
    cache = cache_of(racks(), pods=running)
    shape = parse_shape("gpu=3", offered_resources(cache))
    found = {one.name: one for one in survey_capacity(cache, (BLOCK, RACK), shape, with_nodes=True)}
    assert {name: found[name].pods for name in ("cluster", "block-1", "rack-1-1", "n-1-1-1", "n-1-1-2")} == {
        "cluster": 7,
        "block-1": 3,
        "rack-1-1": 1,
        "n-1-1-1": 0,
        "n-1-1-2": 1,
    }
    assert (found["rack-1-1"].free[GPU], found["rack-1-1"].allocatable[GPU]) == (6, 8)
    assert found["rack-1-1"].fragmentation == pytest.approx(0.5)
    assert found["n-1-1-1"].fragmentation == 1.0
    assert found["rack-1-1"].path == ("block-1", "rack-1-1")


def test_fragmentation_is_that_of_the_resource_that_runs_out_first() -> None:
    """All GPUs can be used, so it does not matter that CPU is left."""
    (cluster,) = survey_capacity(cache_of(racks(1, 1, 1)), (), {"cpu": "1", GPU: "4"}, with_nodes=False)
    assert (cluster.pods, cluster.fragmentation) == (1, 0.0)


def test_where_a_resource_has_run_out_nothing_is_fragmented() -> None:
    """Free CPU is no use to pods that need a GPU, and more GPUs are what is missing."""
    cache = cache_of(racks(1, 1, 1), pods=[ours("p", gpu=4, node_name="n-1-1-1")])
    (cluster,) = survey_capacity(cache, (), {"cpu": "1", GPU: "1"}, with_nodes=False)
    assert (cluster.pods, cluster.free[GPU], cluster.fragmentation) == (0, 0, None)


def test_without_a_shape_nothing_is_said_about_pods() -> None:
    """Free capacity is."""
    (cluster,) = survey_capacity(cache_of(racks(1, 1, 1)), (), None, with_nodes=False)
    assert (cluster.pods, cluster.fragmentation, cluster.free["cpu"]) == (None, None, 8000)


@pytest.mark.parametrize(("key", "tolerated", "pods"), [(GPU, [], 1), ("team", [], 0), ("team", ["team"], 1)])
def test_pods_tolerate_taints_of_what_they_request(key: str, tolerated: list[str], pods: int) -> None:
    """As the admission plugin ExtendedResourceToleration arranges it; others have to be named."""
    taint = Taint(key=key, value="x", effect="NoSchedule")
    cache = cache_of([node("n", cpu=8, more={GPU: 4}, taints=[taint])])
    (cluster,) = survey_capacity(cache, (), {GPU: "4"}, with_nodes=False, tolerated=tolerated)
    assert cluster.pods == pods


def test_levels_are_those_of_groups_and_nest_where_each_domain_is_in_one_other() -> None:
    """A label across racks begins a chain of its own; one that no node has is left out."""
    groups: list[Group] = [
        composite("a", key=BLOCK),
        pod_group("b", parent="a", key=RACK, preferred="power"),
        pod_group("c", key="no"),
    ]
    nodes = [
        node(f"n-{number}", labels={BLOCK: f"b{number // 4}", RACK: f"r{number // 2}", "power": f"p{number % 2}"})
        for number in range(8)
    ]
    cache = cache_of(nodes, groups)
    assert used_levels(cache) == ["no", "power", BLOCK, RACK]
    assert sorted(nested_levels(cache, used_levels(cache))) == [("power",), (BLOCK, RACK)]


def test_labels_of_nodes_about_topology_are_levels_where_groups_use_none() -> None:
    """By their prefix; others such as the name of the host are not."""
    labels = {BLOCK: "b", RACK: "r", "kubernetes.io/hostname": "n", "example.com/rack": "r", "topology": "x"}
    assert labelled_levels(cache_of([node("n", labels=labels)], [])) == [BLOCK, RACK]
