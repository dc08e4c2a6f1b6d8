"""What pods request and nodes offer, with the numbers of kube-scheduler."""

from typing import Any

import pytest

from cpg_api.core.pod import Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.problems import Problem
from cpg_engine.cluster.axes import MAX_AMOUNT
from cpg_engine.cluster.requests import (
    SCORED_CPU,
    SCORED_MEMORY,
    RequestError,
    is_resize_infeasible,
    node_amounts,
    pod_requests,
)

MI = 2**20
INFEASIBLE = PodCondition(type="PodResizePending", reason="Infeasible")


def container(
    name: str = "c", *, always: bool = False, more: ResourceList | None = None, **requests: str | float
) -> Container:
    """Return a container with these requests, as a sidecar with ``always``; ``more`` have names of another kind."""
    resources = ResourceRequirements(requests={**requests, **(more or {})} or None)
    return Container(name=name, resources=resources, restart_policy="Always" if always else None)


def cpu_of(*containers: Container, init: tuple[Container, ...] = (), **spec: Any) -> int:
    """Return how many thousandths of CPU a pod of these containers requests."""
    return pod_requests(Pod(spec=PodSpec(containers=containers, init_containers=init, **spec))).get("cpu", 0)


def status(
    *, allocated: ResourceList | None = None, actual: ResourceList | None = None, name: str = "c"
) -> ContainerStatus:
    """Return what the node has allocated to a container, and what it has now."""
    resources = None if actual is None else ResourceRequirements(requests=actual)
    return ContainerStatus(name=name, allocated_resources=allocated, resources=resources)


def test_a_pod_without_containers_takes_one_pod() -> None:
    """Every pod takes one of the node's pods, and nothing else unless it requests it."""
    assert pod_requests(Pod()) == {"pods": 1}


def test_containers_add_up() -> None:
    """Containers run together: 100m + 1.5 CPU, 64Mi + 1Gi, one GPU."""
    pod = Pod(
        spec=PodSpec(
            containers=(
                container("a", cpu="100m", memory="64Mi"),
                container("b", cpu=1.5, memory="1Gi", more={"nvidia.com/gpu": 1}),
            )
        )
    )
    assert pod_requests(pod) == {"cpu": 1600, "memory": 1088 * MI, "nvidia.com/gpu": 1, "pods": 1}


def test_init_containers_run_one_after_the_other() -> None:
    """Kubernetes' own example: containers of 2 and 1 CPU after init containers of 2 CPU and 3G take 3 CPU and 3G."""
    pod = Pod(
        spec=PodSpec(
            containers=(container("a", cpu=2, memory="1G"), container("b", cpu=1, memory="1G")),
            init_containers=(container("x", cpu=2, memory="1G"), container("y", cpu=2, memory="3G")),
        )
    )
    assert pod_requests(pod) == {"cpu": 3000, "memory": 3 * 10**9, "pods": 1}


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ((container("s", always=True, cpu=1),), 3000),  # beside the container: 2 + 1
        ((container("s", always=True, cpu=1), container("i", cpu=3)), 4000),  # started before: 3 + 1
        ((container("i", cpu=3), container("s", always=True, cpu=1)), 3000),  # started after: 3 alone
        ((container("s", always=True, cpu=1), container("t", always=True, cpu=2)), 5000),  # all three together
        ((container("i", cpu=1),), 2000),  # smaller than what comes after it
    ],
)
def test_sidecars_run_beside_what_is_started_after_them(init: tuple[Container, ...], cpu: int) -> None:
    """With a container of 2 CPU, the larger of the two peaks counts."""
    assert cpu == cpu_of(container(cpu=2), init=init)


def test_overhead_comes_on_top() -> None:
    """The overhead of a runtime class is added after everything else."""
    assert cpu_of(container(cpu=1), init=(container("i", cpu=2),), overhead={"cpu": "250m"}) == 2250


def test_requests_of_the_pod_replace_the_sum_where_they_may() -> None:
    """Only CPU, memory and huge pages can be requested for the pod as a whole; overhead is still added."""
    whole = ResourceRequirements(requests={"cpu": 1, "hugepages-2Mi": "4Mi", "example.com/x": 7})
    pod = Pod(
        spec=PodSpec(
            containers=(container(cpu=2, memory="1Mi", more={"example.com/x": 1}),),
            resources=whole,
            overhead={"cpu": "1m"},
        )
    )
    taken = {"cpu": 1001, "memory": MI, "hugepages-2Mi": 4 * MI, "example.com/x": 1, "pods": 1}
    assert taken == pod_requests(pod)


@pytest.mark.parametrize(
    ("found", "cpu"),
    [
        (status(allocated={"cpu": 3}), 3000),  # shrinking: what was granted still counts
        (status(allocated={"cpu": 1}), 2000),  # growing: what is asked for counts already
        (status(allocated={"cpu": 1}, actual={"cpu": 4}), 4000),  # not shrunk yet
        (status(allocated={"cpu": 1}, actual={"cpu": 1}), 2000),
        (status(), 2000),
        (status(allocated={"cpu": 9}, name="other"), 2000),
    ],
)
def test_a_resize_counts_with_the_largest(found: ContainerStatus, cpu: int) -> None:
    """A container of 2 CPU counts with the largest of requested, allocated and actual, until the resize is done."""
    pod = Pod(spec=PodSpec(containers=(container(cpu=2),)), status=PodStatus(container_statuses=(found,)))
    assert cpu == pod_requests(pod)["cpu"]


def test_a_resize_is_compared_per_pod() -> None:
    """The sums are compared, not each container: one grows by 1 CPU as the other shrinks by it, and 3 CPU count."""
    pod = Pod(
        spec=PodSpec(containers=(container("a", cpu=2), container("b", cpu=1))),
        status=PodStatus(
            container_statuses=(status(name="a", allocated={"cpu": 1}), status(name="b", allocated={"cpu": 2}))
        ),
    )
    assert pod_requests(pod)["cpu"] == 3000


def test_sidecars_can_be_resized() -> None:
    """The status of init containers is read like that of the others."""
    pod = Pod(
        spec=PodSpec(containers=(container(cpu=1),), init_containers=(container("s", always=True, cpu=1),)),
        status=PodStatus(init_container_statuses=(status(name="s", allocated={"cpu": 2}),)),
    )
    assert pod_requests(pod)["cpu"] == 3000


def test_an_infeasible_resize_does_not_count() -> None:
    """What the node can never allocate is not counted; a container without a status then counts as zero."""
    pod = Pod(
        spec=PodSpec(containers=(container(cpu=8), container("new", cpu=5))),
        status=PodStatus(conditions=(INFEASIBLE,), container_statuses=(status(allocated={"cpu": 2}),)),
    )
    assert pod_requests(pod)["cpu"] == 2000


@pytest.mark.parametrize(
    ("conditions", "infeasible"),
    [
        (None, False),
        ((PodCondition(type="PodResizePending", reason="Deferred"),), False),
        ((PodCondition(type="Ready", reason="Infeasible"),), False),
        ((PodCondition(type="Ready"), INFEASIBLE), True),
    ],
)
def test_infeasible_is_the_reason_of_the_resize_condition(
    conditions: tuple[PodCondition, ...] | None, *, infeasible: bool
) -> None:
    """Only the reason of the condition PodResizePending counts."""
    assert infeasible is is_resize_infeasible(Pod(status=PodStatus(conditions=conditions)))


def test_scoring_uses_defaults_for_missing_requests() -> None:
    """A container without a CPU or memory request counts as 100m and 200Mi; one that requests zero does not."""
    pod = Pod(spec=PodSpec(containers=(container("a", cpu=0), container("b", memory="1Mi"))))
    scored = pod_requests(pod, scored=True)
    assert (scored["cpu"], scored["memory"]) == (SCORED_CPU, 201 * MI)
    assert (100, 200 * MI) == (SCORED_CPU, SCORED_MEMORY)


def test_scoring_uses_defaults_for_init_containers() -> None:
    """Beside a sidecar without requests, an init container of 1 CPU peaks at 1100m."""
    init = (container("s", always=True), container("i", cpu=1))
    pod = Pod(spec=PodSpec(containers=(container("a", cpu=0),), init_containers=init))
    assert pod_requests(pod, scored=True)["cpu"] == 1100


def test_absurd_amounts_stop_at_the_largest() -> None:
    """A pod may request more than int64 can hold; it counts as more than any node has."""
    pod = Pod(spec=PodSpec(containers=(container("a", cpu="9E"), container("b", cpu="9E")), overhead={"memory": "9E"}))
    assert pod_requests(pod) == {"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT, "pods": 1}
    assert node_amounts({"cpu": "9E"})[0]["cpu"] < MAX_AMOUNT


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (PodSpec(containers=(container(), container(cpu="many"))), "spec.containers[1].resources.requests[cpu]"),
        (PodSpec(init_containers=(container(cpu="-1"),)), "spec.initContainers[0].resources.requests[cpu]"),
        (PodSpec(overhead={"memory": ""}), "spec.overhead[memory]"),
        (PodSpec(resources=ResourceRequirements(requests={"x": "1 "})), "spec.resources.requests[x]"),
    ],
)
def test_a_malformed_request_is_an_error_with_its_path(spec: PodSpec, path: str) -> None:
    """A malformed or negative request names the field, and never counts as a small number."""
    with pytest.raises(RequestError) as caught:
        pod_requests(Pod(spec=spec))
    assert path == caught.value.problem.path
    assert str(caught.value).startswith(path)


def test_a_malformed_status_is_an_error() -> None:
    """What a node has written is checked like the spec."""
    pod = Pod(
        spec=PodSpec(containers=(container(),)),
        status=PodStatus(container_statuses=(status(allocated={"cpu": "x"}),)),
    )
    with pytest.raises(RequestError, match="allocatedResources"):
        pod_requests(pod)


def test_malformed_amounts_of_nodes_count_as_zero() -> None:
    """Negative amounts count as zero; malformed ones count as zero and are reported, in the order of their names."""
    found, problems = node_amounts({"memory": "1Mi", "cpu": "-2", "b": "?", "a": "x"})
    assert found == {"cpu": 0, "memory": MI}
    assert [problem.path for problem in problems] == ["status.allocatable[a]", "status.allocatable[b]"]
    assert all(isinstance(problem, Problem) for problem in problems)


def test_a_node_without_allocatable_offers_nothing() -> None:
    """A missing list is an empty one."""
    assert node_amounts(None) == ({}, ())
