"""What a pod requests of a node, by the rules of kube-scheduler (``PodRequests`` in k8s.io/component-helpers).

Containers and sidecars run together and add up. An init container runs beside the sidecars that were started before it,
so the larger of the two peaks counts. A request for the pod as a whole replaces the sum for CPU, memory and huge pages,
the only resources that it may name. Overhead is added.

While a pod is being resized in place, it counts with the largest of what it requests, what its node has allocated and
what its containers have now. The request does not count where the node has found it infeasible.

There are four differences. Amounts finer than the unit are rounded up per container, not once per pod. The
``allocatedResources`` and ``resources`` in the status of the pod as a whole are ignored, since those of its containers
say the same. A pod with a request as a whole is scored with the defaults for every container without requests, which
kube-scheduler does before the pod is bound and not after. All amounts stop at ``MAX_AMOUNT``; a pod that requests that
much fits no node, as nodes stop one below it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cpg_api.core.pod import Container, ContainerStatus, Pod
from cpg_api.core.resources import ResourceList
from cpg_api.problems import Problem
from cpg_api.quantity import QuantityError, amount, require_not_negative
from cpg_engine.cluster.axes import MAX_AMOUNT

SCORED_CPU = 100
SCORED_MEMORY = 200 * 2**20
"""The CPU and memory, as in kube-scheduler, of a container without requests when nodes are scored."""

Needs = Callable[[Container, str], dict[str, int]]
"""Returns what a container counts with; the path is where the container stands in the pod."""


class RequestError(ValueError):
    """A pod requests something that is no amount."""

    def __init__(self, problem: Problem) -> None:
        """Carry the problem with its path."""
        super().__init__(str(problem))
        self.problem = problem


def pod_requests(pod: Pod, *, scored: bool = False) -> dict[str, int]:
    """Return what a pod requests, by resource; with ``scored``, an absent CPU or memory counts with its default."""
    defaults = {"cpu": SCORED_CPU, "memory": SCORED_MEMORY} if scored else {}
    total: dict[str, int] = {}
    for needs in _views(pod):
        _raise(total, _together(pod, needs, defaults))
    if pod.spec.resources is not None:
        whole = _amounts(pod.spec.resources.requests, "spec.resources.requests")
        total.update((name, number) for name, number in whole.items() if _is_for_whole_pods(name))
    _add(total, _amounts(pod.spec.overhead, "spec.overhead"))
    total["pods"] = 1
    return {name: min(number, MAX_AMOUNT) for name, number in total.items()}


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the node has found that it can never grant what the pod now requests."""
    pending = next((found for found in pod.status.conditions or () if found.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _views(pod: Pod) -> Iterator[Needs]:
    """Yield the ways to count the containers, the largest of which applies; most pods have no container status."""
    status = {
        found.name: found
        for found in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    }
    if not status:
        yield _asked
        return
    asked = _nothing if is_resize_infeasible(pod) else _asked
    if asked is _asked:
        yield _asked
    yield partial(_granted, status=status, asked=asked)
    yield partial(_actual, status=status, asked=asked)


def _asked(container: Container, path: str) -> dict[str, int]:
    return _amounts(container.resources.requests, f"{path}.resources.requests")


def _nothing(_container: Container, _path: str) -> dict[str, int]:
    return {}


def _granted(container: Container, path: str, *, status: Mapping[str, ContainerStatus], asked: Needs) -> dict[str, int]:
    found = status.get(container.name)
    if found is None or found.allocated_resources is None:
        return asked(container, path)
    return _amounts(found.allocated_resources, f"status of {path}.allocatedResources")


def _actual(container: Container, path: str, *, status: Mapping[str, ContainerStatus], asked: Needs) -> dict[str, int]:
    found = status.get(container.name)
    if found is None or found.resources is None or found.resources.requests is None:
        return _granted(container, path, status=status, asked=asked)
    return _amounts(found.resources.requests, f"status of {path}.resources.requests")


def _together(pod: Pod, needs_of: Needs, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return what all containers take at their peak."""
    total: dict[str, int] = {}
    for index, container in enumerate(pod.spec.containers or ()):
        _add(total, {**defaults, **needs_of(container, f"spec.containers[{index}]")})
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for index, container in enumerate(pod.spec.init_containers or ()):
        needs = {**defaults, **needs_of(container, f"spec.initContainers[{index}]")}
        if container.restart_policy == "Always":
            _add(sidecars, needs)
            _raise(peak, sidecars)
        else:
            _add(needs, sidecars)
            _raise(peak, needs)
    _add(total, sidecars)
    _raise(total, peak)
    return total


def _is_for_whole_pods(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _amounts(quantities: ResourceList | None, path: str) -> dict[str, int]:
    found = {}
    for name, quantity in (quantities or {}).items():
        try:
            found[name] = amount(name, require_not_negative(quantity))
        except QuantityError as error:
            raise RequestError(Problem(f"{path}[{name}]", str(error))) from error
    return found


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


def _raise(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, number in floor.items():
        total[name] = max(total.get(name, 0), number)


def node_amounts(allocatable: ResourceList | None) -> tuple[dict[str, int], tuple[Problem, ...]]:
    """Return what a node offers; what is no amount counts as zero and is returned as a problem."""
    found: dict[str, int] = {}
    problems: list[Problem] = []
    for name, quantity in _sorted(allocatable):
        try:
            found[name] = min(max(amount(name, quantity), 0), MAX_AMOUNT - 1)
        except QuantityError as error:
            problems.append(Problem(f"status.allocatable[{name}]", str(error)))
    return found, tuple(problems)


def _sorted(quantities: ResourceList | None) -> Iterable[tuple[str, str | int | float]]:
    return sorted((quantities or {}).items())
