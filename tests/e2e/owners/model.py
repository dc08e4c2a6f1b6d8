"""A slow, obvious model of owners: their manifests, the pods that they should have, and the groups of these pods.

It shares no code with ``cpg_api.integrations``, and covers the fields that the seeded runs change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

Plain = dict[str, Any]
Reference = tuple[str, str, str]
"""API version, kind and name of a controller."""

POLICY = "scheduling.cpg.dev"
RACK, BLOCK = "topology.cpg.dev/rack", "topology.cpg.dev/block"
JOBSET_LABEL, LWS_LABEL = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
JOBSET_KEYS = ("jobset-name", "replicatedjob-name", "job-index")
MAX_SIZE = 3


class Slot(NamedTuple):
    """A pod that an owner should have."""

    name: str
    """Its name, or the part of it that its controller does not generate."""
    group: str
    controller: Reference
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = {}
    after: frozenset[str] = frozenset()
    """The slots whose pods run before this one is created."""
    has_fixed_name: bool = False


class Group(NamedTuple):
    """A group that an owner should have; without a minimum it is basic."""

    parent: str
    minimum: int | None


@dataclass(frozen=True)
class Role:
    """A replicated job: so many Jobs of so many pods."""

    name: str
    replicas: int
    size: int


@dataclass(frozen=True)
class JobSet:
    """A JobSet; its Jobs of the same index are a replica if it is paired, and its roles start in order if ordered."""

    name: str
    roles: tuple[Role, ...]
    paired: bool = False
    ordered: bool = False
    racks: bool = False
    one_block: bool = False
    suspended: bool = False
    plural = "jobsets"
    is_gang = True

    @classmethod
    def random(cls, name: str, rng: Random) -> "JobSet":
        """Return a JobSet of one or two roles."""
        paired, replicas = rng.random() < 0.3, rng.randint(1, 2)
        names = ("driver", "workers")[: rng.randint(1, 2)]
        roles = [Role(one, replicas if paired else rng.randint(1, 2), rng.randint(1, MAX_SIZE)) for one in names]
        return cls(name, tuple(roles), paired, *(rng.random() < share for share in (0.2, 0.4, 0.3)))

    @property
    def reference(self) -> Reference:
        """API version, kind and name."""
        return "jobset.x-k8s.io/v1alpha2", "JobSet", self.name

    def manifest(self, pod: Plain) -> Plain:
        """Return the object."""
        jobs = [
            {
                "name": role.name,
                "replicas": role.replicas,
                "template": {"spec": _job(role.size, pod)},
            }
            for role in self.roles
        ]
        order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if self.ordered else {}
        failures = {"failurePolicy": {"maxRestarts": 100}}
        annotations = _policy(racks=self.racks, block=self.one_block)
        annotations |= {f"{POLICY}/replica-by": "job-index"} if self.paired else {}
        spec = {"suspend": self.suspended, "replicatedJobs": jobs, **order, **failures}
        return _object(self.reference, spec, annotations)

    def slots(self) -> list[Slot]:
        """Return the pods of all Jobs."""
        found: list[Slot] = []
        for role in self.roles:
            before = frozenset(slot.name for slot in found) if self.ordered else frozenset[str]()
            found += [
                Slot(
                    f"{job}-{number}",
                    f"jobset.{self.name}.{role.name}.{index}",
                    ("batch/v1", "Job", job),
                    {
                        f"{JOBSET_LABEL}/jobset-name": self.name,
                        f"{JOBSET_LABEL}/replicatedjob-name": role.name,
                        f"{JOBSET_LABEL}/job-index": str(index),
                        "batch.kubernetes.io/job-name": job,
                        "batch.kubernetes.io/job-completion-index": str(number),
                    },
                    after=before,
                )
                for index in range(role.replicas)
                for job in [f"{self.name}-{role.name}-{index}"]
                for number in range(role.size)
            ]
        return found

    def groups(self) -> dict[str, Group]:
        """Return root, composite groups and one group for each Job."""
        head = f"jobset.{self.name}"
        starting = 1 if self.ordered else len(self.roles)
        found = {}
        for role in self.roles:
            for index in range(role.replicas):
                parent = f"{head}.replica.{index}" if self.paired else f"{head}.{role.name}-jobs"
                found[f"{head}.{role.name}.{index}"] = Group(parent, role.size)
            if not self.paired:
                found[f"{head}.{role.name}-jobs"] = Group(f"{head}.root", role.replicas)
        replicas = self.roles[0].replicas if self.paired else 0
        found |= {f"{head}.replica.{index}": Group(f"{head}.root", starting) for index in range(replicas)}
        return found | {f"{head}.root": Group("", replicas if self.paired else starting)}

    def rack_of(self, group: str) -> str:
        """Return the replica, or the Job itself."""
        index = group.rpartition(".")[2]
        return (f"replica {index}" if self.paired else group) if self.racks else ""

    def block(self) -> bool:
        """Return whether all pods have to be in one block."""
        return self.one_block

    def resized(self, rng: Random) -> "JobSet":
        """Return it with other replicas, or with Jobs of another size."""
        replicas, chosen, size = rng.randint(1, 3), rng.randrange(len(self.roles)), rng.randint(1, MAX_SIZE)
        by_size = rng.random() < 0.5
        roles = []
        for number, role in enumerate(self.roles):
            if not by_size and (self.paired or number == chosen):
                roles.append(replace(role, replicas=replicas))
            elif by_size and number == chosen:
                roles.append(replace(role, size=size))
            else:
                roles.append(role)
        return replace(self, roles=tuple(roles))


@dataclass(frozen=True)
class LeaderWorkerSet:
    """A LeaderWorkerSet; its workers are created once their leader runs if it is ``leader_first``."""

    name: str
    replicas: int
    size: int
    leader_first: bool = False
    racks: bool = False
    suspended: bool = False
    plural = "leaderworkersets"
    is_gang = False

    @classmethod
    def random(cls, name: str, rng: Random) -> "LeaderWorkerSet":
        """Return one of few replicas."""
        return cls(name, rng.randint(1, 3), rng.randint(1, 4), rng.random() < 0.3, rng.random() < 0.5)

    @property
    def reference(self) -> Reference:
        """API version, kind and name."""
        return "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", self.name

    def manifest(self, pod: Plain) -> Plain:
        """Return the object."""
        always = {"spec": {**pod["spec"], "restartPolicy": "Always"}}  # StatefulSets allow no other
        template = {"size": self.size, "workerTemplate": always}
        spec: Plain = {"replicas": self.replicas, "leaderWorkerTemplate": template}
        spec |= {"startupPolicy": "LeaderReady" if self.leader_first else "LeaderCreated"}
        return _object(self.reference, spec, _policy(racks=self.racks))

    def slots(self) -> list[Slot]:
        """Return leaders and workers."""
        return [
            Slot(
                leader if worker == 0 else f"{leader}-{worker}",
                f"lws.{self.name}.replica.{index}",
                ("apps/v1", "StatefulSet", self.name if worker == 0 else leader),
                {
                    f"{LWS_LABEL}/name": self.name,
                    f"{LWS_LABEL}/group-index": str(index),
                    f"{LWS_LABEL}/worker-index": str(worker),
                },
                {f"{LWS_LABEL}/size": str(self.size)},
                after=frozenset([leader] if self.leader_first and worker else []),
                has_fixed_name=True,
            )
            for index in range(self.replicas)
            for leader in [f"{self.name}-{index}"]
            for worker in range(self.size)
        ]

    def groups(self) -> dict[str, Group]:
        """Return a basic root and one group for each replica."""
        root, minimum = f"lws.{self.name}.root", 1 if self.leader_first else self.size
        leaves = {f"lws.{self.name}.replica.{index}": Group(root, minimum) for index in range(self.replicas)}
        return leaves | {root: Group("", None)}

    def rack_of(self, group: str) -> str:
        """Return the replica."""
        return group if self.racks else ""

    def block(self) -> bool:
        """Return False: its replicas serve by themselves."""
        return False

    def resized(self, rng: Random) -> "LeaderWorkerSet":
        """Return it with other replicas."""
        return replace(self, replicas=rng.randint(1, 3))


@dataclass(frozen=True)
class RayCluster:
    """A RayCluster with a head and worker groups, by their sizes."""

    name: str
    workers: tuple[int, ...]
    racks: bool = False
    one_block: bool = False
    suspended: bool = False
    plural = "rayclusters"
    is_gang = True

    @classmethod
    def random(cls, name: str, rng: Random) -> "RayCluster":
        """Return one of one or two worker groups."""
        workers = tuple(rng.randint(0, MAX_SIZE) for _ in range(rng.randint(1, 2)))
        return cls(name, workers, rng.random() < 0.3, rng.random() < 0.3)

    @property
    def reference(self) -> Reference:
        """API version, kind and name."""
        return "ray.io/v1", "RayCluster", self.name

    def _sizes(self) -> dict[str, int]:
        return {"headgroup": 1} | {f"group{number}": size for number, size in enumerate(self.workers)}

    def manifest(self, pod: Plain) -> Plain:
        """Return the object."""
        workers = [
            {
                "groupName": f"group{number}",
                "replicas": size,
                "minReplicas": 0,
                "maxReplicas": 9,
                "rayStartParams": {},
                "template": pod,
            }
            for number, size in enumerate(self.workers)
        ]
        head = {"rayStartParams": {}, "template": pod}
        spec = {
            "suspend": self.suspended,
            "rayVersion": "2.46.0",
            "headGroupSpec": head,
            "workerGroupSpecs": workers,
        }
        return _object(self.reference, spec, _policy(racks=self.racks, block=self.one_block))

    def slots(self) -> list[Slot]:
        """Return the head and the workers."""
        return [
            Slot(
                f"{self.name}-{name}-{number}",
                f"raycluster.{self.name}.{name}",
                self.reference,
                {
                    "ray.io/cluster": self.name,
                    "ray.io/group": name,
                    "ray.io/node-type": "head" if name == "headgroup" else "worker",
                },
            )
            for name, size in self._sizes().items()
            for number in range(size)
        ]

    def groups(self) -> dict[str, Group]:
        """Return the root, the head's group and one for each worker group; empty ones do not count."""
        head, sizes = f"raycluster.{self.name}", self._sizes()
        leaves = {f"{head}.{name}": Group(f"{head}.root", max(size, 1)) for name, size in sizes.items()}
        return leaves | {f"{head}.root": Group("", sum(size > 0 for size in sizes.values()))}

    def rack_of(self, group: str) -> str:
        """Return the group itself."""
        return group if self.racks else ""

    def block(self) -> bool:
        """Return whether all pods have to be in one block."""
        return self.one_block

    def resized(self, rng: Random) -> "RayCluster":
        """Return it with another number of workers in a group."""
        workers = list(self.workers)
        workers[rng.randrange(len(workers))] = rng.randint(0, MAX_SIZE)
        return replace(self, workers=tuple(workers))


@dataclass(frozen=True)
class Job:
    """An Indexed Job whose parallelism and completions are its size."""

    name: str
    size: int
    racks: bool = False
    suspended: bool = False
    plural = "jobs"
    is_gang = True

    @classmethod
    def random(cls, name: str, rng: Random) -> "Job":
        """Return a small Job."""
        return cls(name, rng.randint(1, MAX_SIZE + 1), rng.random() < 0.5)

    @property
    def reference(self) -> Reference:
        """API version, kind and name."""
        return "batch/v1", "Job", self.name

    def manifest(self, pod: Plain) -> Plain:
        """Return the object."""
        # A deleted pod counts as failed: a JobSet restarts then, and a Job alone replaces the pod.
        spec = _job(self.size, pod) | {"suspend": self.suspended, "backoffLimit": 1000}
        return _object(self.reference, spec, _policy(racks=self.racks))

    def slots(self) -> list[Slot]:
        """Return the pods."""
        labels = {"batch.kubernetes.io/job-name": self.name}
        return [
            Slot(
                f"{self.name}-{number}",
                f"job.{self.name}.pods",
                self.reference,
                {**labels, "batch.kubernetes.io/job-completion-index": str(number)},
                {"batch.kubernetes.io/job-completion-index": str(number)},
            )
            for number in range(self.size)
        ]

    def groups(self) -> dict[str, Group]:
        """Return the one group."""
        return {f"job.{self.name}.pods": Group("", self.size)}

    def rack_of(self, group: str) -> str:
        """Return the group itself."""
        return group if self.racks else ""

    def block(self) -> bool:
        """Return False: the rack says more."""
        return False

    def resized(self, rng: Random) -> "Job":
        """Return it with another size, which elastic Indexed Jobs allow."""
        return replace(self, size=rng.randint(1, MAX_SIZE + 1))


Owner = JobSet | LeaderWorkerSet | RayCluster | Job
"""An owner of pods at one moment. Changes return another one."""

KINDS: dict[str, type[Owner]] = {
    "jobset": JobSet,
    "lws": LeaderWorkerSet,
    "ray": RayCluster,
    "job": Job,
}


def group_of(pod: Plain) -> str:
    """Return the group of a pod by its labels, which the controllers set; empty for a pod without an owner."""
    labels = pod["metadata"].get("labels", {})
    if f"{JOBSET_LABEL}/jobset-name" in labels:
        return ".".join(["jobset", *(labels[f"{JOBSET_LABEL}/{key}"] for key in JOBSET_KEYS)])
    if f"{LWS_LABEL}/name" in labels:
        return f"lws.{labels[f'{LWS_LABEL}/name']}.replica.{labels[f'{LWS_LABEL}/group-index']}"
    if "ray.io/cluster" in labels:
        return f"raycluster.{labels['ray.io/cluster']}.{labels['ray.io/group']}"
    name = labels.get("batch.kubernetes.io/job-name")
    return f"job.{name}.pods" if name else ""


def owner_path(owner: Owner, namespace: str, *, named: bool = True) -> str:
    """Return the path of an owner, or of its collection."""
    name = f"/{owner.name}" if named else ""
    return f"/apis/{owner.reference[0]}/namespaces/{namespace}/{owner.plural}{name}"


def _job(size: int, pod: Plain) -> Plain:
    return {
        "completionMode": "Indexed",
        "parallelism": size,
        "completions": size,
        "backoffLimit": 0,
        "template": pod,
    }


def _object(reference: Reference, spec: Plain, annotations: dict[str, str]) -> Plain:
    version, kind, name = reference
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def _policy(*, racks: bool, block: bool = False) -> dict[str, str]:
    whole = {f"{POLICY}/required-topology": BLOCK} if block else {}
    return whole | ({f"{POLICY}/replica-required-topology": RACK} if racks else {})
