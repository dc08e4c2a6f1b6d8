"""Coscheduling of scheduler-plugins: a PodGroup with a minimum, and a label of pods."""

from cpg_cli.conversion.documents import Plain
from cpg_cli.conversion.formats import ConversionOptions, ManifestFormat, Note, group_manifest
from cpg_cli.conversion.pods import take

GROUPS = ("scheduling.x-k8s.io/", "scheduling.sigs.k8s.io/")
LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
WITHOUT_EQUIVALENT = {
    "minResources": "is not needed: the requests of the pods count",
    "scheduleTimeoutSeconds": "is not needed: a waiting gang reserves nothing",
}


def _owns(plain: Plain) -> bool:
    return str(plain.get("apiVersion")).startswith(GROUPS)


def _convert(plain: Plain, _: ConversionOptions, note: Note) -> Plain | None:
    if plain.get("kind") != "PodGroup":
        note("left out: it has no equivalent; for quotas use Kueue or a ResourceQuota")
        return None
    spec = plain.get("spec") or {}
    for name, why in WITHOUT_EQUIVALENT.items():
        if name in spec:
            note(f"spec.{name} {why}")
    minimum = max(int(spec.get("minMember") or 1), 1)
    return group_manifest("PodGroup", plain, {"schedulingPolicy": {"gang": {"minCount": minimum}}})


def _group_of(pod: Plain) -> str | None:
    return take(pod, "labels", LABELS)


FORMAT = ManifestFormat(
    "coscheduling",
    _owns,
    _convert,
    _group_of,
    scheduler_names=("scheduler-plugins-scheduler",),
    foreign_keys=("pod-group.scheduling.sigs.k8s.io",),
)
