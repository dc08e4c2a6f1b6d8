"""The controller of claims for devices, as kube-controller-manager has one."""

from collections.abc import Iterator, Mapping
from random import Random

from cpg_api.core.devices import DELETE_PROTECTION
from cpg_api.core.pod import TERMINAL_PHASES
from cpg_client.resources import PODS, RESOURCE_CLAIMS
from cpg_lab.devices import CLAIM_TEMPLATES
from cpg_simulation.apiserver.values import Write
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient, key, name_of

MAX_SECONDS_UNTIL_IT_LOOKS = 0.3
ENTRY = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was made from a template: the entry of the pod."""
USER = "claim-controller"


class ClaimController:
    """Makes claims from templates, and frees those of pods that have ended or are gone."""

    def __init__(self, coordinator: Coordinator, client: ClusterClient, random: Random) -> None:
        """Make nothing yet."""
        self._coordinator = coordinator
        self._client = client
        self._random = random
        self._is_due = False

    def on_write(self, write: Write) -> None:
        """Look a moment after a pod or a claim has changed."""
        if write.resource in {key(PODS), key(RESOURCE_CLAIMS)} and write.user != USER and not self._is_due:
            self._is_due = True
            self._coordinator.after(self._random.random() * MAX_SECONDS_UNTIL_IT_LOOKS, self._look)

    def _look(self) -> None:
        self._is_due = False
        self.sync()

    def sync(self) -> None:
        """Look at all pods and claims."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._client.pods()}
        for pod in pods.values():
            if pod["spec"].get("resourceClaims") and not _is_deleting(pod) and not _has_ended(pod):
                self._make_claims(pod)
        for claim in self._client.objects(RESOURCE_CLAIMS):
            self._free(claim, pods)

    def _make_claims(self, pod: Manifest) -> None:
        """Make the claims that a pod has by templates, and name them in its status."""
        known = {one["name"]: one for one in pod["status"].get("resourceClaimStatuses") or ()}
        made = dict(known)
        for entry in pod["spec"]["resourceClaims"]:
            name = known.get(entry["name"], {}).get("resourceClaimName", "")
            if "resourceClaimTemplateName" in entry and self._client.get(RESOURCE_CLAIMS, name) is None:
                claim = self._claim_of(pod, entry) or self._create(pod, entry)
                if claim is not None:
                    made[entry["name"]] = {"name": entry["name"], "resourceClaimName": name_of(claim)}
        if made != known:
            status = {"status": {"resourceClaimStatuses": [*made.values()]}}
            self._client.merge(PODS, name_of(pod), status, USER, "status")

    def _create(self, pod: Manifest, entry: Manifest) -> Manifest | None:
        template = self._client.get(CLAIM_TEMPLATES, entry["resourceClaimTemplateName"])
        if template is None:
            return None
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": pod["metadata"]["uid"]}
        metadata = {
            "generateName": f"{name_of(pod)}-{entry['name']}-",
            "namespace": pod["metadata"]["namespace"],
            "annotations": {ENTRY: entry["name"]},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        self._client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": template["spec"]["spec"]}, USER)
        return self._claim_of(pod, entry)

    def _claim_of(self, pod: Manifest, entry: Manifest) -> Manifest | None:
        """Return the claim that was made for an entry of a pod."""
        for claim in self._client.objects(RESOURCE_CLAIMS):
            annotations = claim["metadata"].get("annotations") or {}
            if annotations.get(ENTRY) == entry["name"] and _owner(claim) == pod["metadata"]["uid"]:
                return claim
        return None

    def _free(self, claim: Manifest, pods: Mapping[str, Manifest]) -> None:
        """Remove the consumers of a claim that have ended; with the last one, its devices; with its pod, the claim."""
        users = claim["status"].get("reservedFor") or []
        left = [one for one in users if one.get("apiGroup") or _may_run(pods.get(one["uid"]))]
        finalizers = claim["metadata"].get("finalizers") or []
        is_protected, name = DELETE_PROTECTION in finalizers, name_of(claim)
        if is_protected and not left and (users or _is_deleting(claim)):
            status = {"reservedFor": None, "allocation": None, "devices": None}
            self._client.merge(RESOURCE_CLAIMS, name, {"status": status}, USER, "status")
            others = [one for one in finalizers if one != DELETE_PROTECTION]
            self._client.merge(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": others or None}}, USER)
        elif len(left) < len(users):
            self._client.merge(RESOURCE_CLAIMS, name, {"status": {"reservedFor": left}}, USER, "status")
        owner = _owner(claim)
        if owner and not left and not _is_deleting(claim) and not _may_run(pods.get(owner)):
            self._client.delete(RESOURCE_CLAIMS, name, USER)


def is_ready(pod: Manifest, client: ClusterClient) -> bool:
    """Return whether all claims of a pod have devices and are reserved for it: else its kubelet does not start it."""
    return all(_is_reserved(client.get(RESOURCE_CLAIMS, name), pod) for name in claim_names(pod))


def claim_names(pod: Manifest) -> Iterator[str]:
    """Yield the names of the claims of a pod, empty for one that is still to be made."""
    made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        yield entry.get("resourceClaimName") or made.get(entry["name"], "")


def _is_reserved(claim: Manifest | None, pod: Manifest) -> bool:
    users = (claim["status"].get("reservedFor") or ()) if claim is not None else ()
    return any(one["uid"] == pod["metadata"]["uid"] for one in users)


def _owner(claim: Manifest) -> str:
    return next((one["uid"] for one in claim["metadata"].get("ownerReferences") or () if one.get("controller")), "")


def _may_run(pod: Manifest | None) -> bool:
    """Return whether a pod runs or can still be started."""
    if pod is None or _has_ended(pod):
        return False
    return bool(pod["spec"].get("nodeName")) or not _is_deleting(pod)


def _has_ended(pod: Manifest) -> bool:
    return pod["status"].get("phase") in TERMINAL_PHASES


def _is_deleting(found: Manifest) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
