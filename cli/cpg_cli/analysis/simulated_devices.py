"""Devices in a simulation: claims are made from templates, allocated with their pods, and released by evicted ones."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from cpg_api.core.devices import ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate
from cpg_api.core.pod import Pod, PodResourceClaimStatus
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.parsing import Rejected, convert_object
from cpg_cli.analysis.changes import ObjectChange
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


def released_claims(pod: Pod, claims: Mapping[str, ResourceClaim]) -> Iterator[ObjectChange]:
    """Yield what becomes of the claims of a pod that is gone: those made for it go, others may be deallocated."""
    for claim in (claims[key] for key in sorted(device_claims_of(pod)) if key in claims):
        if any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
            yield ObjectChange(claim, None)
            continue
        before = claim.status.reserved_for or ()
        users = tuple(user for user in before if user.uid != pod.metadata.uid)
        if len(users) < len(before):
            status = replace(claim.status, reserved_for=users) if users else ResourceClaimStatus()
            yield ObjectChange(claim, replace(claim, status=status))
