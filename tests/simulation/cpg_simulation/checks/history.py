"""A history that is made by hand: writes as the API server would record them, and the checks that observe them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpg_api.scheduling.names import API_VERSION, DISRUPTION_TARGET, GROUP, POD_GROUP_LABEL, POD_SCHEDULED
from cpg_simulation.checks.checks import Checks
from cpg_simulation.checks.leases import LEASES

POD_GROUPS, COMPOSITES = f"podgroups.{GROUP}", f"compositepodgroups.{GROUP}"
Fields = Mapping[str, Any]
PREEMPTING = "cpg-scheduler: preempting to accommodate a higher priority"


@dataclass(frozen=True)
class HandRequest:
    """A request, as far as the rules read it."""

    method: str = "PATCH"
    path: str = ""
    user: str = ""
    manager: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class HandWrite:
    """An entry of the journal."""

    revision: int
    time: float
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str = ""
    old: Any = None
    new: Any = None
    request: HandRequest | None = None


class History:
    """Writes one object after the other; ``now`` is the time, and each write has the next revision."""

    def __init__(self, leader: str = "scheduler-0") -> None:
        """Have one process lead, if any, and another one as the operator."""
        self.checks = Checks()
        self.now = 0.0
        self.revision = 0
        self._objects: dict[tuple[str, str], Any] = {}
        if leader:
            self.lease(leader)
            self.lease("operator-0")

    # What happens.

    def put(
        self,
        resource: str,
        raw: Fields,
        user: str = "user",
        request: HandRequest | None = None,
        verb: str = "update",
    ) -> None:
        """Create or replace an object."""
        meta = raw["metadata"]
        old = self._objects.get((resource, meta["name"]))
        uid = old["metadata"]["uid"] if old is not None else f"uid-of-{meta['name']}-{self.revision}"
        known = {"uid": uid, "creationTimestamp": "2026-11-20T00:00:00Z", "generation": 1}
        new = {**raw, "metadata": {**known, **meta, "resourceVersion": str(self.revision + 1)}}
        self._objects[resource, meta["name"]] = new
        self._write(resource, user, "create" if old is None else verb, old, new, request)

    def remove(self, resource: str, name: str, user: str = "user") -> None:
        """Remove an object at once."""
        old = self._objects.pop((resource, name))
        self._write(resource, user, "delete", old, None, None)

    def node(self, name: str, cpu: str = "4", pods: int = 10, labels: Fields | None = None, **spec: Any) -> None:
        """Create or change a node."""
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": str(pods)}
        meta = {"name": name, "labels": labels or {}}
        self.put("nodes", {"metadata": meta, "spec": spec, "status": {"allocatable": amounts}})

    def group(self, name: str, minimum: int = 1, *, parent: str = "", whole: bool = False, **spec: Any) -> None:
        """Create or change a PodGroup."""
        self._group(POD_GROUPS, name, {"gang": {"minCount": minimum}}, parent, whole=whole, spec=spec)

    def composite(self, name: str, minimum: int = 1, *, parent: str = "", whole: bool = False, **spec: Any) -> None:
        """Create or change a CompositePodGroup."""
        self._group(COMPOSITES, name, {"gang": {"minGroupCount": minimum}}, parent, whole=whole, spec=spec)

    def pod(self, name: str, group: str = "", cpu: str = "1", node: str = "", **spec: Any) -> None:
        """Create a pod; with a node it runs there already."""
        labels = {POD_GROUP_LABEL: group} if group else {}
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        body = {"schedulerName": "cpg-scheduler", "containers": [container], **spec}
        self.put(
            "pods",
            {
                "metadata": {"namespace": "team", "name": name, "labels": labels},
                "spec": {**body, "nodeName": node} if node else body,
                "status": {"phase": "Running" if node else "Pending"},
            },
        )

    def bind(self, name: str, node: str, user: str = "scheduler-0", sent: float | None = None) -> None:
        """Bind a pod, by a request that is sent now or has been sent before."""
        self.arrive(self.send_bind(name, user, sent), name, node)

    def send_bind(self, name: str, user: str = "scheduler-0", sent: float | None = None) -> HandRequest:
        """Send the request that binds a pod; it takes effect when it arrives."""
        request = HandRequest("POST", f"/api/v1/namespaces/team/pods/{name}/binding", user)
        self.checks.sent(request, self.now if sent is None else sent)
        return request

    def arrive(self, request: HandRequest, name: str, node: str) -> None:
        """Let a request arrive that binds a pod."""
        pod = self.get("pods", name)
        self.put("pods", {**pod, "spec": {**pod["spec"], "nodeName": node}}, request.user, request)

    def status(
        self, resource: str, name: str, user: str, manager: str = "", verb: str = "update", **status: object
    ) -> None:
        """Change fields of a status."""
        found = self.get(resource, name)
        request = HandRequest(user=user, manager=manager or user)
        self.put(resource, {**found, "status": {**found.get("status", {}), **status}}, user, request, verb)

    def meta(self, resource: str, name: str, user: str, **fields: object) -> None:
        """Change fields of the metadata."""
        found = self.get(resource, name)
        self.put(resource, {**found, "metadata": {**found["metadata"], **fields}}, user)

    def mark(self, name: str, preemptor: str, kind: str = "Pod") -> None:
        """Mark a pod as a victim of a preemptor."""
        resource = {"Pod": "pods", "PodGroup": POD_GROUPS}[kind]
        uid = self.get(resource, preemptor)["metadata"]["uid"]
        marked = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "message": f"{PREEMPTING} {kind} team/{preemptor} {uid}",
        }
        others = [
            one for one in self.get("pods", name)["status"].get("conditions", []) if one["type"] != marked["type"]
        ]
        self.status("pods", name, "scheduler-0", conditions=[*others, marked])

    def delete_group(self, resource: str, name: str) -> None:
        """Delete a group that stays for its finalizer."""
        self.meta(resource, name, "user", deletionTimestamp="2026-11-20T00:00:01Z")

    def evict(self, name: str, user: str = "scheduler-0") -> None:
        """Delete a pod with its grace period."""
        self.meta("pods", name, user, deletionTimestamp="2026-11-20T00:00:01Z")

    def wait_for(self, name: str, reason: str = "Unschedulable", message: str = "no room") -> None:
        """Let the scheduler say why a pod is pending."""
        condition = {"type": POD_SCHEDULED, "status": "False", "reason": reason, "message": message}
        self.status("pods", name, "scheduler-0", conditions=[condition])

    def lease(self, user: str, *, holder: str | None = None, seconds: int = 10) -> None:
        """Let a process renew its lease, or another client change it."""
        name = user.partition("-")[0] if user.startswith(("scheduler", "operator")) else "scheduler"
        held = {"holderIdentity": user if holder is None else holder, "leaseDurationSeconds": seconds}
        self.put(LEASES, {"metadata": {"namespace": "kube-system", "name": name}, "spec": held}, user)

    # What is asked.

    def get(self, resource: str, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return an object."""
        return self._objects[resource, name]

    def broken(self) -> Sequence[str]:
        """Return the names of the rules that are broken, each once."""
        return list(dict.fromkeys(found.rule for found in self.checks.violations))

    def settled(self, *, living: Sequence[str] = ("scheduler-0", "operator-0")) -> Sequence[str]:
        """Return the names of the rules that are broken at the end of the night."""
        self.checks.settle(living, self.now)
        return self.broken()

    def _group(self, resource: str, name: str, policy: Fields, parent: str, *, whole: bool, spec: Fields) -> None:
        body = {
            "schedulingPolicy": policy,
            "disruptionMode": {"all": {}} if whole else {"single": {}},
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **spec,
        }
        self.put(resource, {"apiVersion": API_VERSION, "metadata": {"namespace": "team", "name": name}, "spec": body})

    def _write(
        self, resource: str, user: str, verb: str, old: Fields | None, new: Fields | None, request: HandRequest | None
    ) -> None:
        self.revision += 1
        meta = (new or old or {})["metadata"]
        write = HandWrite(
            revision=self.revision,
            time=self.now,
            user=user,
            verb=verb,
            resource=resource,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            old=old,
            new=new,
            subresource="binding" if request is not None and request.path.endswith("/binding") else "",
            request=request or HandRequest(user=user, manager=user),
        )
        self.checks.observe(write)
