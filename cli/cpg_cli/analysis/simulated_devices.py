"""Devices in a simulation: claims are made from templates, allocated with their pods, and released by evicted ones."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from cpg_api.core.devices import ResourceClaim, ResourceClaimTemplate
from cpg_api.core.pod import Pod, PodResourceClaimStatus
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.parsing import Rejected, convert_object
from cpg_cli.analysis.changes import ObjectChange
from cpg_cli.analysis.device_changes import without_consumers
from cpg_cli.cluster.manifests import Manifest, uid_of
from cpg_cli.failures import usage_error
from cpg_scheduler.cache.devices import device_claims_of

TEMPLATE = ResourceClaimTemplate.__name__
Templates = Mapping[str, ResourceClaimTemplate]


def templates_of(manifests: Iterable[Manifest]) -> Templates:
    """Return the templates of claims that are among the objects of some files, by namespace and name."""
    found: dict[str, ResourceClaimTemplate] = {}
    for one in manifests:
        if one.document.kind == TEMPLATE:
            template = convert_object(one.plain, ResourceClaimTemplate)
            if isinstance(template, Rejected):
                raise usage_error(f"{one.document.place}: {template.name}: {template.problems[0]}", "correct the file")
            found[template.metadata.key] = template
    return found


def with_claims(pod: Pod, templates: Templates) -> tuple[Pod, list[ResourceClaim]]:
    """Return a pod with the claims that are made for it; without its template, a claim is not."""
    meta, claims, statuses = pod.metadata, [], []
    for entry in pod.spec.resource_claims or ():
        template = templates.get(f"{meta.namespace}/{entry.resource_claim_template_name}")
        if template is not None:
            name = f"{meta.name}-{entry.name}"
            owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
            uid = uid_of(ResourceClaim.__name__, meta.namespace, name)
            own = ObjectMeta(name=name, namespace=meta.namespace, uid=uid, owner_references=(owner,))
            claims.append(ResourceClaim(metadata=own, spec=template.spec.spec))
            statuses.append(PodResourceClaimStatus(entry.name, name))
    if not claims:
        return pod, claims
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses))), claims


def missing_templates(pod: Pod, templates: Templates) -> Iterator[str]:
    """Yield the templates that a pod names and that are not known."""
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_template_name
        if name is not None and f"{pod.metadata.namespace}/{name}" not in templates:
            yield name


def released_claims(pod: Pod, claims: Mapping[str, ResourceClaim]) -> Iterator[ObjectChange]:
    """Yield what becomes of the claims of a pod that is gone: those made for it go, others may be deallocated."""
    for claim in (claims[key] for key in sorted(device_claims_of(pod)) if key in claims):
        if any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
            yield ObjectChange(claim, None)
            continue
        after = without_consumers(claim, (pod.metadata.uid,))
        if after is not claim:
            yield ObjectChange(claim, after)
