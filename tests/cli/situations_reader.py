"""The situations in which a tree waits: manifests, as users write them, and the objects that an API server makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cpg_api.core.devices import ResourceClaim, ResourceClaimTemplate
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import GROUP
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.changes import pod_with
from cpg_cli.analysis.simulated_devices import with_claims
from cpg_cli.cluster.kinds import RESOURCES
from cpg_cli.cluster.objects import ClusterObjects
from cpg_client.flavours import CRD

FOLDER = Path(__file__).parent / "situations"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
GROUP_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (PodGroup, CompositePodGroup, Workload)}
PLAIN_KINDS = {resource.kind: kind for kind, resource in RESOURCES.items()}
CLUSTER_WIDE = {resource.kind for resource in RESOURCES.values() if not resource.namespaced}
Plain = dict[str, Any]


def target_of(situation: str) -> str:
    """Return what the second line of a situation explains."""
    return (FOLDER / f"{situation}.yaml").read_text("utf-8").splitlines()[1].rpartition(" ")[2]


def manifests(situation: str) -> list[Plain]:
    """Return the objects of a situation."""
    return list(yaml.safe_load_all((FOLDER / f"{situation}.yaml").read_text("utf-8")))


def objects_of(situation: str, namespace: str = "default") -> ClusterObjects:
    """Return the objects as they are once an API server has them: with UIDs, times and priorities."""
    found = ClusterObjects()
    found.groups = {CRD: {kind: [] for kind in GROUP_KINDS.values()}}
    templates: dict[str, ResourceClaimTemplate] = {}
    for number, plain in enumerate(_admitted(manifests(situation), namespace)):
        if plain["kind"] == ResourceClaimTemplate.__name__:
            template = msgspec.convert(plain, ResourceClaimTemplate)
            templates[template.metadata.key] = template
            continue
        plain["metadata"]["creationTimestamp"] = f"2026-11-20T05:00:{number:02}Z"
        is_group = plain["apiVersion"].startswith(GROUP)
        kind = GROUP_KINDS[plain["kind"]] if is_group else PLAIN_KINDS[plain["kind"]]
        converted: Any = convert_object(plain, kind)
        assert not isinstance(converted, Rejected), converted
        (found.groups[CRD] if is_group else found.by_kind)[kind].append(converted)
    classes = {one.metadata.name: one for one in found.by_kind[PriorityClass]}
    found.by_kind[Pod] = [
        pod_with(pod, priority=classes[pod.spec.priority_class_name].value if pod.spec.priority_class_name else 0)
        for pod in found.by_kind[Pod]
    ]
    made = [with_claims(pod, templates) for pod in found.by_kind[Pod]]
    found.by_kind[Pod] = [pod for pod, _ in made]
    found.by_kind[ResourceClaim] += [claim for _, claims in made for claim in claims]
    return found


def _admitted(objects: list[Plain], namespace: str) -> Iterator[Plain]:
    for plain in objects:
        meta = plain["metadata"]
        meta["uid"] = f"{plain['kind']}/{meta['name']}"
        if plain["kind"] not in CLUSTER_WIDE:
            meta["namespace"] = namespace
        yield plain
