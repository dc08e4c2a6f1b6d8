"""The parts that names of derived groups consist of.

Users can write any label on their pods. So the controller of a pod has to have the name that the labels imply. Labels
with dots are refused, because these kinds allow none in their names: two owners never share a group.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from cpg_api.core.pod import Pod
from cpg_api.meta import OwnerReference
from cpg_api.schema import DNS_LABEL, MAX_SUBDOMAIN

Parts = tuple[str, ...]
"""The name of a group: prefix, owner, template, numbers. Dots join them."""

Rule = Callable[[Pod, OwnerReference], Parts | None]
"""Returns the parts for a pod and its controller, or None."""

PODS = "pods"
"""The template of the group of owners that have one group."""

_LABEL = re.compile(DNS_LABEL)


@lru_cache(maxsize=4096)
def checked(*parts: str | None) -> Parts | None:
    """Return the parts of a name, unless one is missing or is no DNS label, or the name is too long.

    All pods of a group ask for the same. The parts are values of labels, so the cache stays small.
    """
    found = tuple(part for part in parts if part is not None and _LABEL.fullmatch(part))
    is_short = sum(map(len, found)) + len(found) - 1 <= MAX_SUBDOMAIN
    return found if len(found) == len(parts) and is_short else None


def whole_name(prefix: str, owner: str, template: str) -> Parts | None:
    """Return the parts of the name of an owner's one group, unless it is too long. The owner's name may have dots."""
    parts = (prefix, owner, template)
    return parts if len(".".join(parts)) <= MAX_SUBDOMAIN else None


def read_mark(pod: Pod, key: str) -> str | None:
    """Return the value of a mark in a pod template, which may be a label or an annotation."""
    return pod.metadata.labels.get(key, pod.metadata.annotations.get(key))
