"""Find the group of a pod.

There are three places for its name, because none works everywhere. API servers without the feature gate drop the native
field silently, and a label holds 63 characters while the name of a group may have 253. Two places may agree; a field
and a label together are the portable way. Two places that disagree are a problem: the pod belongs to no group then, and
must not be scheduled as a single pod either.

A pod that names no group may have one that follows from its owner.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.problems import Problem, quote
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.schema import DNS_SUBDOMAIN, MAX_SUBDOMAIN

NATIVE_PATH = "spec.schedulingGroup.podGroupName"
LABEL_PATH = f"metadata.labels[{POD_GROUP_LABEL}]"
ANNOTATION_PATH = f"metadata.annotations[{POD_GROUP_LABEL}]"
DERIVED_PATH = "metadata.ownerReferences"

_SUBDOMAIN = re.compile(DNS_SUBDOMAIN)


class Membership(Struct, frozen=True, gc=False):
    """The name of the pod's group and the path where it is, or the problem with it."""

    group: str | None = None
    found_at: str = ""
    problem: Problem | None = None


NO_GROUP = Membership()
"""The membership of a pod that names no group."""


def group_names(pod: Pod) -> list[tuple[str, str]]:
    """Return each name of the pod's group with the path where it is, the native field first."""
    native = pod.spec.scheduling_group
    return [
        (path, name)
        for path, name in (
            (NATIVE_PATH, native.pod_group_name if native else None),
            (LABEL_PATH, pod.metadata.labels.get(POD_GROUP_LABEL)),
            (ANNOTATION_PATH, pod.metadata.annotations.get(POD_GROUP_LABEL)),
        )
        if name is not None
    ]


def membership(pod: Pod) -> Membership:
    """Return the membership of a pod. Where several places agree, ``found_at`` is the native field first."""
    named = group_names(pod)
    if not named:
        return Membership(pod.derived_group, DERIVED_PATH) if pod.derived_group else NO_GROUP
    first_path, first = named[0]
    for path, name in named:
        if not _is_subdomain(name):
            return Membership(problem=Problem(path, _malformed(name)))
        if name != first:
            return Membership(problem=Problem(path, _contradiction(name, first_path, first)))
    return Membership(group=first, found_at=first_path)


def membership_entries(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the label or annotation that names the group of a pod, cut where it is longer than any name."""
    return {key: value[: MAX_SUBDOMAIN + 1] for key, value in entries.items() if key == POD_GROUP_LABEL}


def _is_subdomain(name: str) -> bool:
    return len(name) <= MAX_SUBDOMAIN and _matches(name)  # a cache of long texts would take memory


@lru_cache(maxsize=4096)
def _matches(name: str) -> bool:
    return _SUBDOMAIN.fullmatch(name) is not None


def _malformed(name: str) -> str:
    if not name:
        return (
            "The name of the pod's group is empty; give the name of a PodGroup, or remove it from a pod that has none."
        )
    return (
        f"{quote(name)} cannot be the name of a PodGroup, which has at most {MAX_SUBDOMAIN} lower-case letters, "
        "digits, '-' and '.', and a letter or digit at the start and end of each part between dots."
    )


def _contradiction(name: str, first_path: str, first: str) -> str:
    return f"The pod is in group {quote(name)} here, but in {quote(first)} at {first_path}."
