"""What a conversion of one format takes and gives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpg_api.scheduling.names import ADOPT, API_VERSION, SCHEDULER_NAME
from cpg_cli.conversion.documents import Plain
from cpg_cli.conversion.pods import join_group, pods_in, put

Note = Callable[[str], None]
"""Says what has no equivalent."""


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """What the user gives beside the manifests."""

    scheduler_name: str = SCHEDULER_NAME
    tiers: Mapping[str, str] = field(default_factory=dict)
    """For each tier of Volcano's network topology, the node label of its domains."""


@dataclass(frozen=True)
class ManifestFormat:
    """A scheduler with manifests that are converted.

    ``owns`` says whether it has an API version. ``convert`` takes such an object and returns ours, None if it has no
    equivalent. ``group_of`` takes the name of a group out of a pod.
    """

    name: str
    owns: Callable[[Plain], bool]
    convert: Callable[[Plain, ConversionOptions, Note], Plain | None]
    group_of: Callable[[Plain], str | None]
    scheduler_names: Sequence[str] = ()
    """The names under which the other scheduler is usually known."""
    foreign_keys: Sequence[str] = ()
    """Parts of labels and annotations that mean nothing here."""


def group_manifest(kind: str, old: Plain, spec: Mapping[str, Any]) -> Plain:
    """Return a group of ours with the metadata of another object."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": kept_metadata(old), "spec": dict(spec)}


def kept_metadata(old: Plain) -> Plain:
    """Return the metadata without what the API server writes."""
    written = {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "ownerReferences",
    }
    return {key: value for key, value in (old.get("metadata") or {}).items() if key not in written | {"finalizers"}}


def convert_pods(plain: Plain, rules: ManifestFormat, options: ConversionOptions) -> bool:
    """Let the pods inside an object name their groups and scheduler as we do; return whether that changed anything."""
    changed = False
    for pod in list(pods_in(plain)):
        group = rules.group_of(pod)
        if group:
            join_group(pod, group)
            if pod is not plain:
                put(pod, "annotations", ADOPT, "false")  # no other group is made for their owner
        if group or pod["spec"].get("schedulerName") in rules.scheduler_names:
            pod["spec"]["schedulerName"] = options.scheduler_name
            changed = True
    return changed


def foreign_keys_in(value: object, parts: Sequence[str]) -> Iterator[str]:
    """Yield the keys of labels and annotations that belong to another scheduler."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in {"labels", "annotations", "matchLabels"} and isinstance(one, dict):
                yield from (name for name in one if any(part in str(name) for part in parts))
            else:
                yield from foreign_keys_in(one, parts)
    elif isinstance(value, list):
        for one in value:
            yield from foreign_keys_in(one, parts)
