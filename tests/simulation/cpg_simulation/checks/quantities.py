"""What pods request and what nodes have, by slow and obvious code of our own."""

from collections import Counter
from collections.abc import Iterable

from cpg_api.core.pod import Container, Pod
from cpg_api.core.resources import ResourceList
from cpg_api.quantity import QuantityError, amount


def amounts(quantities: ResourceList | None) -> Counter[str]:
    """Return the amounts of a list; what is no amount counts as zero."""
    found: Counter[str] = Counter()
    for name, quantity in (quantities or {}).items():
        try:
            found[name] = max(amount(name, quantity), 0)
        except QuantityError:
            found[name] = 0
    return found


def requests(pod: Pod) -> Counter[str]:
    """Return what a pod requests: its containers, or the peak of its init containers, and its overhead."""
    sidecars: Counter[str] = Counter()
    peaks: Counter[str] = Counter()
    for container in pod.spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars += _of([container])
            peaks |= sidecars
        else:
            peaks |= sidecars + _of([container])
    total = (_of(pod.spec.containers or ()) + sidecars) | peaks
    whole = amounts(pod.spec.resources.requests) if pod.spec.resources is not None else Counter[str]()
    total.update({name: number - total[name] for name, number in whole.items()})
    return total + amounts(pod.spec.overhead) + Counter({"pods": 1})


def _of(containers: Iterable[Container]) -> Counter[str]:
    return sum((amounts(container.resources.requests) for container in containers), Counter[str]())
