"""The programs that the lab can build, each pinned to a version.

A module is a folder of `lab/go` with a committed `go.mod` and `go.sum`, which pin every source by its hash; `PROGRAMS`
lists what is built from the modules, one line each. The versions of `go.mod` are repeated here because the linker needs
some of them: without it a Kubernetes program reports v0.0.0, which breaks clients and charts. A test compares both.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Module:
    """A Go module of ours that only pins the sources of a few programs."""

    name: str
    stamps: tuple[tuple[str, str], ...] = ()
    """Variables that the linker sets, such as the program's version."""


@dataclass(frozen=True)
class Program:
    """One executable: our name for it, its main package, and the module that pins its sources."""

    name: str
    module: Module
    version: str
    package: str
    on_request: bool = False
    """Whether it is built only when it is named, or when a cluster needs it."""

    @property
    def built_name(self) -> str:
        """The file name that Go gives it: the last part of the package path that is not a major version."""
        parts = self.package.split("/")
        return parts[-2] if parts[-1].startswith("v") and parts[-1][1:].isdigit() else parts[-1]


def _kubernetes(version: str) -> Module:
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    stamps = tuple((f"k8s.io/component-base/version.{name}", value) for name, value in values.items())
    return Module(f"kubernetes-{major}.{minor}", stamps)


_NEWEST = _kubernetes("1.37.1")
_OLDEST = _kubernetes("1.30.14")
_DEVICES = _kubernetes("1.34.4")
_KWOK = Module("kwok")
_PROMCHECK = Module("promcheck")
_CELCHECK = Module("celcheck")
_WORKLOADS = Module("workloads")
_HELM = Module("helm", (("helm.sh/helm/v4/internal/version.version", "v4.3.1"),))

PROGRAMS: Final = (
    Program("etcd", _NEWEST, "3.7.0", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", _NEWEST, "1.37.1", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", _NEWEST, "1.37.1", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", _NEWEST, "1.37.1", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("kubectl", _NEWEST, "1.37.1", "k8s.io/kubernetes/cmd/kubectl"),
    Program("kube-apiserver-1.30", _OLDEST, "1.30.14", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program(
        "kube-controller-manager-1.30",
        _OLDEST,
        "1.30.14",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        on_request=True,
    ),
    # The first with devices (resource.k8s.io/v1). A kubelet may be three minors behind the API server; this one still
    # supports cgroup v1 and older runtimes.
    *(
        Program(f"{name}-1.34", _DEVICES, "1.34.4", f"k8s.io/kubernetes/cmd/{name}", on_request=True)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
    Program("kubelet", _DEVICES, "1.34.4", "k8s.io/kubernetes/cmd/kubelet"),
    Program("kwok", _KWOK, "0.8.0", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("helm", _HELM, "4.3.1", "helm.sh/helm/v4/cmd/helm"),
    # Our own: a few lines around the PromQL engine of a Prometheus of this version.
    Program("promcheck", _PROMCHECK, "0.315.0", "kube-cpg.lab/promcheck"),
    # Our own: a few lines around the allocator of devices of this version.
    Program("dracheck", Module("dracheck"), "0.37.1", "kube-cpg.lab/dracheck", on_request=True),
    # Our own: device selectors, evaluated by the compiler of this version.
    Program("celcheck", _CELCHECK, "0.37.1", "kube-cpg.lab/celcheck", on_request=True),
    Program("jobset", _WORKLOADS, "0.12.0", "sigs.k8s.io/jobset", on_request=True),
    Program("lws", _WORKLOADS, "0.9.0", "sigs.k8s.io/lws/cmd", on_request=True),
    Program(
        "trainer",
        _WORKLOADS,
        "2.3.0",
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        on_request=True,
    ),
    Program("ray", Module("kuberay"), "1.6.1", "github.com/ray-project/kuberay/ray-operator", on_request=True),
    Program("kueue", Module("kueue"), "0.19.0", "sigs.k8s.io/kueue/cmd/kueue", on_request=True),
)

BY_NAME: Final = {program.name: program for program in PROGRAMS}

_WORKLOAD_CONTROLLERS: Final = {name: name for name in ("jobset", "lws", "trainer", "ray", "kueue")}

COMPONENTS: Final = {
    "1.37": {
        "etcd": "etcd",
        "apiserver": "kube-apiserver",
        "controller-manager": "kube-controller-manager",
        "scheduler": "kube-scheduler",
        "kwok": "kwok",
        **_WORKLOAD_CONTROLLERS,
    },
    "1.34": {
        "etcd": "etcd",
        "apiserver": "kube-apiserver-1.34",
        "controller-manager": "kube-controller-manager-1.34",
        "scheduler": "kube-scheduler-1.34",
        "kwok": "kwok",
        **_WORKLOAD_CONTROLLERS,
    },
    "1.30": {
        "etcd": "etcd",
        "apiserver": "kube-apiserver-1.30",
        "controller-manager": "kube-controller-manager-1.30",
        "kwok": "kwok",
        **_WORKLOAD_CONTROLLERS,
    },
}
"""The Kubernetes versions of clusters, and the program of each component."""
