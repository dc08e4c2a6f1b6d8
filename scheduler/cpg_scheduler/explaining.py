"""Answers to "why?": the attempt that would be made now, made on the spot, with every reason looked up.

A decision is a pure function of the state, so the explanation is not kept but computed again, in full detail, when
somebody asks. Nothing is bound, and the ledger is afterwards what it was.
"""

import msgspec

from cpg_api.core.pod import Pod
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.cycle import decide
from cpg_engine.gangs.allocation import Options
from cpg_scheduler.attempting import Refused, attempt_of, order_of
from cpg_scheduler.caches.state import State
from cpg_scheduler.pending import RootKey
from cpg_scheduler.probing import Answer
from cpg_scheduler.wording import group_messages

USAGE = b"ask for /debug/explain/<flavour>/<namespace>/<name of a group>, or /debug/explain/pod/<namespace>/<name>\n"


class Explainer:
    """Explains roots of a state."""

    def __init__(self, state: State, options: Options) -> None:
        """Explain by these options, always in detail."""
        self._state = state
        self._options = msgspec.structs.replace(options, detail=True)

    def page(self, path: str) -> Answer:
        """Answer for ``flavour/namespace/name``."""
        parts = path.split("/")
        if len(parts) != len(("flavour", "namespace", "name")):
            return Answer(USAGE, status=404)
        root = self._root(*parts)
        if root is None:
            return Answer(f"there is no {'/'.join(parts)}\n".encode(), status=404)
        return Answer(msgspec.json.format(msgspec.json.encode(self.explain(root))), content_type="application/json")

    def explain(self, root: RootKey) -> dict[str, object]:
        """Return what an attempt at a root would come to now."""
        told: dict[str, object] = {"root": str(root.key), "flavour": root.flavour}
        if order_of(self._state, root) is None:
            return told | {"waiting": False}
        attempt = attempt_of(self._state, root)
        if isinstance(attempt, Refused):
            return told | {"waiting": True, "reason": attempt.reason, "message": attempt.message}
        decision = decide(self._state.world, attempt.unit, self._options)
        names = {uid: pod.metadata.key for uid, pod in attempt.pods.items()}
        return told | {
            "waiting": True,
            "explanation": decision.explanation,
            "messages": {str(key): message for key, message in group_messages(decision.explanation).items()},
            "binds": {names[bind.uid]: bind.node for bind in decision.binds},
        }

    def _root(self, flavour: str, namespace: str, name: str) -> RootKey | None:
        """Return the root of what is asked for: a pod, or a group by its name, the composite one first."""
        if flavour == "pod":
            pod = self._pod(namespace, name)
            return self._state.root_of(pod) if pod is not None else None
        store = self._state.stores.get(flavour)
        for kind in (CompositePodGroup.kind, PodGroup.kind):
            key = GroupKey(kind, namespace, name)
            if store is not None and key in store:
                return RootKey(flavour, store.anchor(key))
        return None

    def _pod(self, namespace: str, name: str) -> Pod | None:
        pods = self._state.pods.values()
        return next((pod for pod in pods if (pod.metadata.namespace, pod.metadata.name) == (namespace, name)), None)
