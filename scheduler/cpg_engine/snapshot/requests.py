"""What a pod takes of a node, by the rules of kube-scheduler.

Containers and sidecars run together and add up; an init container runs beside the sidecars started before it, so
what counts is the larger of the two peaks. A request for the pod as a whole replaces the sum for that resource.
While a pod is being resized in place, it counts with the larger of what it asks for and what its node has granted.
"""

from collections.abc import Iterable, Iterator, Mapping

from cpg_api.core.pod import Container, ContainerStatus, Pod
from cpg_api.core.resources import ResourceList
from cpg_api.problems import Problem
from cpg_api.quantity import QuantityError, amount, not_negative

SCORED_CPU = 100
SCORED_MEMORY = 200 * 2**20
"""What a pod that asks for nothing counts as when nodes are scored, as in kube-scheduler."""


class RequestError(ValueError):
    """A pod asks for something that is no amount."""

    def __init__(self, problem: Problem) -> None:
        """Keep the problem with its path."""
        super().__init__(str(problem))
        self.problem = problem


def pod_requests(pod: Pod, *, scored: bool = False) -> dict[str, int]:
    """Return what a pod takes, by resource; with ``scored``, an absent CPU or memory counts as a little."""
    granted = {status.name: status for status in _statuses(pod)}
    total: dict[str, int] = {}
    for index, container in enumerate(pod.spec.containers or ()):
        _add(total, _container(container, f"spec.containers[{index}]", granted, scored=scored))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for index, container in enumerate(pod.spec.init_containers or ()):
        needs = _container(container, f"spec.initContainers[{index}]", granted, scored=scored)
        if container.restart_policy == "Always":
            _add(sidecars, needs)
            _raise(peak, sidecars)
        else:
            _add(needs, sidecars)
            _raise(peak, needs)
    _add(total, sidecars)
    _raise(total, peak)
    if pod.spec.resources is not None:
        total.update(_amounts(pod.spec.resources.requests, "spec.resources.requests"))
    _add(total, _amounts(pod.spec.overhead, "spec.overhead"))
    total["pods"] = 1
    return total


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.container_statuses or ()
    yield from pod.status.init_container_statuses or ()


def _container(
    container: Container, path: str, granted: Mapping[str, ContainerStatus], *, scored: bool
) -> dict[str, int]:
    needs = _amounts(container.resources.requests, f"{path}.resources.requests")
    status = granted.get(container.name)
    if status is not None:
        _raise(needs, _amounts(status.allocated_resources, "status.containerStatuses.allocatedResources"))
    if scored:
        needs.setdefault("cpu", SCORED_CPU)
        needs.setdefault("memory", SCORED_MEMORY)
    return needs


def _amounts(quantities: ResourceList | None, path: str) -> dict[str, int]:
    found = {}
    for name, quantity in (quantities or {}).items():
        try:
            found[name] = amount(name, not_negative(quantity))
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
    """Return what a node has to offer; what is no amount counts as nothing, and is told."""
    found: dict[str, int] = {}
    problems: list[Problem] = []
    for name, quantity in _sorted(allocatable):
        try:
            found[name] = max(amount(name, quantity), 0)
        except QuantityError as error:
            problems.append(Problem(f"status.allocatable[{name}]", str(error)))
    return found, tuple(problems)


def _sorted(quantities: ResourceList | None) -> Iterable[tuple[str, str | int | float]]:
    return sorted((quantities or {}).items())
