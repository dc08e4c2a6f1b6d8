"""Runs the controllers of all workloads until they have created what they would create now."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from cpg_api.core.pod import PodSpec
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.priority import PriorityClasses
from cpg_cli.analysis.controllers import batch, core, ray, serving
from cpg_cli.analysis.controllers.objects import POD, ObjectKey, Observed, Plain, find, group_of, key_of

Controller = Callable[[Plain, Observed], Iterator[Plain]]
CONTROLLERS: Mapping[tuple[str, str], Controller] = {
    ("batch", "Job"): core.job,
    ("apps", "Deployment"): core.deployment,
    ("apps", "ReplicaSet"): core.replica_set,
    ("apps", "StatefulSet"): core.stateful_set,
    ("jobset.x-k8s.io", "JobSet"): batch.job_set,
    ("trainer.kubeflow.org", "TrainJob"): batch.train_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): serving.leader_worker_set,
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): serving.disaggregated_set,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayJob"): ray.ray_job,
    ("ray.io", "RayService"): ray.ray_service,
}
READ = frozenset({("trainer.kubeflow.org", "TrainingRuntime"), ("trainer.kubeflow.org", "ClusterTrainingRuntime")})
"""Kinds that controllers read, and that have none of their own."""


class WorkloadControllers:
    """The objects of some files, and all that controllers have created from them."""

    def __init__(
        self,
        objects: Iterable[Plain],
        classes: PriorityClasses,
        labels_of_node: Callable[[str], Mapping[str, str] | None],
    ) -> None:
        """Create nothing yet; ``labels_of_node`` returns the labels of the node of a pod, by the UID of the pod."""
        self.notes: dict[str, None] = {}
        self.ignored: list[str] = []
        self.completed: list[str] = []
        """The pods that have succeeded, by UID."""
        self._classes = classes
        self._labels_of_node = labels_of_node
        self._objects: dict[ObjectKey, Plain] = {}
        self._children: dict[ObjectKey, list[ObjectKey]] = {}
        self._has_completed: set[ObjectKey] = set()
        for found in objects:
            kind = group_of(found), found["kind"]
            if kind in CONTROLLERS or kind in READ:
                self._objects[key_of(found)] = found
            else:
                self.ignored.append(f"{found['kind']} {find(found, 'metadata', 'name')}")

    def objects(self) -> list[Plain]:
        """Return all objects but pods and claims."""
        return [found for found in self._objects.values() if (group_of(found), found["kind"]) in CONTROLLERS]

    def reconcile(self) -> list[Plain]:
        """Return the objects that are created now: pods, claims, and the objects that create these."""
        created: list[Plain] = []
        queue = list(self._objects.values())
        while queue:
            owner = queue.pop(0)
            controller = CONTROLLERS.get((group_of(owner), owner["kind"]))
            if controller is None:
                continue
            children = self._children.setdefault(key_of(owner), [])
            for found in controller(owner, self):
                key = key_of(found)
                if key not in self._objects:
                    self._objects[key] = found
                    children.append(key)
                    created.append(found)
                    queue.append(found)
        return created

    # What controllers observe.

    def is_placed(self, key: ObjectKey) -> bool:
        """Return whether a pod, or every pod below an object, exists and has a node or has succeeded."""
        found = self._objects.get(key)
        if found is None:
            return False
        if key.kind == POD:
            return key in self._has_completed or self._labels_of_node(found["metadata"]["uid"]) is not None
        return key in self._children and all(self.is_placed(one) for one in self._children[key] if one.kind != CLAIM)

    def complete(self, key: ObjectKey) -> bool:
        """Let every pod below an object succeed, if all of them have nodes; return whether they have succeeded."""
        if key in self._has_completed:
            return True
        if not self.is_placed(key):
            return False
        self._has_completed.add(key)
        if key.kind == POD:
            self.completed.append(self._objects[key]["metadata"]["uid"])
        for child in self._children.get(key, ()):
            self.complete(child)
        return True

    def node_label(self, key: ObjectKey, label: str) -> str | None:
        """Return a label of the node of a pod, or None if it has no node, or the node no such label."""
        found = self._objects.get(key)
        labels = self._labels_of_node(found["metadata"]["uid"]) if found is not None else None
        return labels.get(label) if labels is not None else None

    def priority(self, pod_spec: Plain) -> int:
        """Return the priority that a pod with this spec gets."""
        spec = convert_object(pod_spec, PodSpec)
        name = "" if isinstance(spec, Rejected) else spec.priority_class_name
        return self._classes.resolve(name, None) or 0

    def find(self, kind: str, namespace: str, name: str) -> Plain | None:
        """Return an object of the files."""
        return self._objects.get(ObjectKey(kind, namespace, name))

    def note(self, text: str) -> None:
        """Tell the user something about what is simulated."""
        self.notes[text] = None


CLAIM = "PersistentVolumeClaim"
