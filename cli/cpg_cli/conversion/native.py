"""The groups of Kubernetes itself: the same kinds in another API group, and a field of pods."""

from cpg_api.scheduling.names import NATIVE_GROUP
from cpg_cli.conversion.documents import Plain
from cpg_cli.conversion.formats import ConversionOptions, ManifestFormat, Note, group_manifest

KINDS = ("Workload", "PodGroup", "CompositePodGroup")
VERSIONS = ("v1alpha3", "v1beta1")


def _owns(plain: Plain) -> bool:
    return str(plain.get("apiVersion")).startswith(f"{NATIVE_GROUP}/") and plain.get("kind") in KINDS


def _convert(plain: Plain, _: ConversionOptions, note: Note) -> Plain | None:
    version = str(plain["apiVersion"]).partition("/")[2]
    if version not in VERSIONS:
        note(f"left out: {version} has other fields; write it as {VERSIONS[0]} first")
        return None
    if _has_claims(plain.get("spec")):
        note("resourceClaims has no effect: let the pods share a ResourceClaim by resourceClaimName")
    return group_manifest(plain["kind"], plain, plain.get("spec") or {})


def _has_claims(found: object) -> bool:
    """Return whether a group, or a template at any level, has claims: they are made for native groups alone."""
    if isinstance(found, list):
        return any(map(_has_claims, found))
    return isinstance(found, dict) and (bool(found.get("resourceClaims")) or any(map(_has_claims, found.values())))


def _group_of(pod: Plain) -> str | None:
    group = pod["spec"].pop("schedulingGroup", None)
    return group.get("podGroupName") if isinstance(group, dict) else None


FORMAT = ManifestFormat("native", _owns, _convert, _group_of)
