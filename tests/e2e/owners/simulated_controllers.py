"""Controllers of JobSets, LeaderWorkerSets, RayClusters and Jobs, as a small loop that fills the slots of owners.

Labels, controller references and the order of creation are those of the real controllers. Owned objects of a deleted
owner are left to the garbage collector of Kubernetes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tests.e2e.owners.model import Owner, Slot, owner_path

from cpg_api.decoding import decode
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError

Plain = dict[str, Any]
PLURALS = {"Job": "jobs", "StatefulSet": "statefulsets"}


class Made(NamedTuple):
    """A pod that fills a slot; a later one may have the same name."""

    name: str
    uid: str


@dataclass
class Kept:
    """An owner that exists: its pods by slot, the uids of the objects between, and how often it was restarted."""

    owner: Owner
    uid: str
    pods: dict[str, Made] = field(default_factory=dict)
    between: dict[Made, str] = field(default_factory=dict)
    """By name, and uid of the owner."""
    restarts: int = 0


class SimulatedControllers:
    """The controllers of one namespace."""

    def __init__(self, connection: Connection, namespace: str, template: Plain, rng: Random) -> None:
        """Control no owner yet; ``template`` is the pod template of all owners."""
        self.kept: dict[tuple[str, str], Kept] = {}
        self._connection = connection
        self._namespace = namespace
        self._template = template
        self._rng = rng
        self._names = 0

    async def create(self, owner: Owner) -> None:
        """Create an owner."""
        path = owner_path(owner, self._namespace, named=False)
        made = decode(await self._connection.post(path, owner.manifest(self._template)))
        self.kept[owner.plural, owner.name] = Kept(owner, made["metadata"]["uid"])

    async def update(self, owner: Owner) -> None:
        """Change the spec of an owner."""
        self.kept[owner.plural, owner.name].owner = owner
        body = {"spec": owner.manifest(self._template)["spec"]}
        if owner.plural == "jobs":  # the template of a Job cannot change, and a merge would try
            body = {"spec": {name: body["spec"][name] for name in ("suspend", "parallelism", "completions")}}
        await self._connection.patch(owner_path(owner, self._namespace), body, MERGE_PATCH)

    async def delete(self, owner: Owner) -> None:
        """Delete an owner, as kubectl does."""
        del self.kept[owner.plural, owner.name]
        await self._connection.delete(owner_path(owner, self._namespace), {"propagationPolicy": "Background"})

    async def restart(self, owner: Owner) -> None:
        """Replace all pods of an owner, or for a LeaderWorkerSet those of one replica."""
        kept = self.kept[owner.plural, owner.name]
        kept.restarts += 1
        chosen = self._rng.choice(sorted({slot.group for slot in owner.slots()} or {""}))
        for slot in owner.slots():
            if owner.is_gang or slot.group == chosen:
                await self._remove(kept, slot.name)

    def can_restart(self, owner: Owner) -> bool:  # noqa: ARG002  # as the real ones
        """Return True: the pods of every owner may be replaced."""
        return True

    def can_resize(self, owner: Owner) -> bool:  # noqa: ARG002  # as the real ones
        """Return True: every owner may have another size."""
        return True

    def forget_pod(self, uid: str) -> None:
        """Note that a pod is gone, so that its slot is filled again."""
        for kept in self.kept.values():
            kept.pods = {slot: pod for slot, pod in kept.pods.items() if pod.uid != uid}

    async def reconcile(self, is_bound: Callable[[Made | None], bool]) -> None:
        """Delete the pods that are too many, and create the missing ones whose predecessors are bound."""
        for kept in list(self.kept.values()):
            slots = {} if kept.owner.suspended else {slot.name: slot for slot in kept.owner.slots()}
            for name in [name for name in kept.pods if name not in slots]:
                await self._remove(kept, name)
            missing = [slot for name, slot in slots.items() if name not in kept.pods]
            self._rng.shuffle(missing)
            # A leader comes before its workers, because it owns the object that owns them.
            for slot in sorted(missing, key=lambda slot: slot.has_fixed_name and slot.controller[2] != kept.owner.name):
                if all(is_bound(kept.pods.get(before)) for before in slot.after):
                    await self._fill(kept, slot)

    async def _fill(self, kept: Kept, slot: Slot) -> None:
        uid = await self._controller_uid(kept, slot)
        if not uid:
            return
        version, kind, name = slot.controller
        meta: Plain = {
            "labels": {
                **slot.labels,
                **({"jobset.sigs.k8s.io/jobset-uid": kept.uid} if kept.owner.plural == "jobsets" else {}),
                "jobset.sigs.k8s.io/restart-attempt": str(kept.restarts),
            },
            "annotations": dict(slot.annotations),
            "ownerReferences": [
                {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True},
            ],
        }
        self._names += not slot.has_fixed_name
        meta["name"] = slot.name if slot.has_fixed_name else f"{slot.name}-{self._names:05}"
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        try:
            made = decode(await self._connection.post(path, {"metadata": meta, "spec": self._template["spec"]}))
        except ApiError as error:
            if not error.is_already_exists:  # the old pod of a fixed name is not gone yet
                raise
        else:
            kept.pods[slot.name] = Made(meta["name"], made["metadata"]["uid"])

    async def _controller_uid(self, kept: Kept, slot: Slot) -> str:
        """Return the uid of the controller of a slot, which is created if need be; empty if it cannot exist yet."""
        version, kind, name = slot.controller
        if kind == kept.owner.reference[1]:
            return kept.uid
        owner, owner_uid = kept.owner.reference, kept.uid
        if slot.has_fixed_name and name != kept.owner.name:
            if name not in kept.pods:
                return ""
            owner, owner_uid = ("v1", "Pod", name), kept.pods[name].uid
        key = Made(name, owner_uid)
        if not kept.between.get(key):
            kept.between[key] = await self._between((version, kind, name), owner, owner_uid)
        return kept.between[key]

    async def _between(self, reference: tuple[str, str, str], owner: tuple[str, str, str], owner_uid: str) -> str:
        """Return the uid of a Job or StatefulSet of an owner; empty while one of the former owner is there."""
        version, kind, name = reference
        path = f"/apis/{version}/namespaces/{self._namespace}/{PLURALS[kind]}"
        parent = {"apiVersion": owner[0], "kind": owner[1], "name": owner[2], "uid": owner_uid, "controller": True}
        body = {"metadata": {"name": name, "ownerReferences": [parent]}, "spec": self._between_spec(kind, name)}
        try:
            made = decode(await self._connection.post(path, body))
        except ApiError as error:
            if not error.is_already_exists:
                raise
            return await self._uid_below(f"{path}/{name}", owner_uid)
        return str(made["metadata"]["uid"])

    def _between_spec(self, kind: str, name: str) -> Plain:
        """Return the least spec that the API server accepts; no controller of Kubernetes acts on it."""
        if kind == "Job":
            return {"template": self._template}
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {**self._template["spec"], "restartPolicy": "Always"}}
        return {"selector": {"matchLabels": labels}, "serviceName": name, "template": template}

    async def _uid_below(self, path: str, owner_uid: str) -> str:
        """Return the uid of an object; empty if it is not there, is being deleted, or has another owner."""
        try:
            meta = decode(await self._connection.get(path))["metadata"]
        except ApiError as error:
            if not error.is_not_found:
                raise
            return ""
        is_owned = any(one["uid"] == owner_uid for one in meta.get("ownerReferences", ()))
        return meta["uid"] if is_owned and "deletionTimestamp" not in meta else ""

    async def _remove(self, kept: Kept, slot: str) -> None:
        made = kept.pods.pop(slot, None)
        if made is not None:
            try:
                await self._connection.delete(f"/api/v1/namespaces/{self._namespace}/pods/{made.name}")
            except ApiError as error:
                if not error.is_not_found:
                    raise
