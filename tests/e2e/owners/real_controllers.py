"""The real controllers of owners, behind the interface of the simulated ones: what they make is read, not made."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.e2e.owners.model import Job, JobSet, LeaderWorkerSet, Owner, group_of, owner_path
from tests.e2e.owners.observer import Observer
from tests.e2e.owners.simulated_controllers import Kept, Made

from cpg_api.decoding import decode
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError

Plain = dict[str, Any]


class RealControllers:
    """The owners of one namespace, whose pods others make."""

    def __init__(
        self, connection: Connection, observer: Observer, namespace: str, template: Plain, rng: Random
    ) -> None:
        """Start without owners; ``template`` is the pod template of all owners."""
        self.kept: dict[tuple[str, str], Kept] = {}
        self._connection = connection
        self._observer = observer
        self._namespace = namespace
        self._template = template
        self._rng = rng

    async def create(self, owner: Owner) -> None:
        """Create an owner."""
        path = owner_path(owner, self._namespace, named=False)
        made = decode(await self._connection.post(path, owner.manifest(self._template)))
        self.kept[owner.plural, owner.name] = Kept(owner, made["metadata"]["uid"])

    async def update(self, owner: Owner) -> None:
        """Change the fields of an owner that may change."""
        self.kept[owner.plural, owner.name].owner = owner
        spec = owner.manifest(self._template)["spec"]
        changeable = {JobSet: ("suspend",), Job: ("suspend", "parallelism", "completions")}.get(
            type(owner), tuple(spec)
        )
        body = {"spec": {name: spec[name] for name in changeable}}
        await self._connection.patch(owner_path(owner, self._namespace), body, MERGE_PATCH)

    async def delete(self, owner: Owner) -> None:
        """Delete an owner, as kubectl does."""
        del self.kept[owner.plural, owner.name]
        await self._connection.delete(owner_path(owner, self._namespace), {"propagationPolicy": "Background"})

    def can_restart(self, owner: Owner) -> bool:
        """Return whether a deleted pod comes back soon: a Job waits for longer after each, KubeRay does not notice."""
        return isinstance(owner, LeaderWorkerSet)

    async def restart(self, owner: Owner) -> None:
        """Delete a pod of an owner: its controller replaces its replica."""
        names = sorted(made.name for made in self.kept[owner.plural, owner.name].pods.values())
        if names:
            path = f"/api/v1/namespaces/{self._namespace}/pods/{self._rng.choice(names)}"
            try:
                await self._connection.delete(path)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    def can_resize(self, owner: Owner) -> bool:
        """Return whether the sizes of an owner may change: a JobSet refuses it."""
        return not isinstance(owner, JobSet)

    def forget_pod(self, uid: str) -> None:
        """Do nothing: the next reconcile reads all pods."""

    async def reconcile(self, is_bound: Callable[[Made | None], bool]) -> None:  # noqa: ARG002  # as the simulated ones
        """Read which pods there are, and give each a slot of its group."""
        there: dict[str, list[Made]] = {}
        for uid, pod in sorted(self._observer.pods(self._namespace).items()):
            there.setdefault(group_of(pod), []).append(Made(pod["metadata"]["name"], uid))
        for kept in self.kept.values():
            kept.pods = {}
            for slot in kept.owner.slots():
                if there.get(slot.group):
                    kept.pods[slot.name] = there[slot.group].pop()
