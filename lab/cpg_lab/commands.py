"""The command line of each component: pure functions of the cluster's spec, its files and its ports.

Every flag that is not obvious has its reason beside it; most reasons are "or it does not start on loopback".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cpg_lab.certificates import Certificates
from cpg_lab.ports import LOOPBACK
from cpg_lab.specs import ClusterSpec

SERVICE_RANGE = "10.0.0.0/16"
SERVICE_IP = "10.0.0.1"
NATIVE_GATES = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "PodGroupPreemptionPolicy",
)
NATIVE_APIS = ("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1")
FAKE_NODE = "kwok.x-k8s.io/node=fake"
"""The annotation of nodes that kwok may play; a real node beside them has none, and is left alone."""

_POD_RANGE = "10.128.0.1/12"
_ETCD_QUOTA = 8 * 1024**3


@dataclass(frozen=True)
class ClusterFiles:
    """The files of one cluster, all in one folder."""

    folder: Path

    @property
    def certificates(self) -> Certificates:
        """The authority, the server certificate and the keys."""
        return Certificates.within(self.folder)

    @property
    def etcd_data(self) -> Path:
        """What etcd stores."""
        return self.folder / "etcd"

    @property
    def logs(self) -> Path:
        """A log per component."""
        return self.folder / "logs"

    @property
    def tokens(self) -> Path:
        """The API server's table of who has which token."""
        return self.folder / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        return self.folder / "kubeconfig"

    @property
    def scheduler_config(self) -> Path:
        """The peer scheduler's configuration."""
        return self.folder / "scheduler.yaml"

    def log(self, component: str) -> Path:
        """Give the log of one component."""
        return self.logs / f"{component}.log"

    def kubeconfig_of(self, component: str) -> Path:
        """Give the way in of one component, under a name of its own."""
        return self.folder / f"{component}.kubeconfig"


@dataclass(frozen=True, kw_only=True)
class CommandContext:
    """What a command line is made from."""

    spec: ClusterSpec
    files: ClusterFiles
    ports: Mapping[str, int]
    """By component; etcd's second port is `etcd-peer`."""
    stages: Path

    def url(self, component: str, scheme: str = "https") -> str:
        """Give where a component listens."""
        return f"{scheme}://{LOOPBACK}:{self.ports[component]}"


def etcd(setting: CommandContext) -> list[str]:
    """Store of the API server. Plain HTTP: it listens on loopback, and what it holds is a lab's."""
    client, peer = setting.url("etcd", "http"), setting.url("etcd-peer", "http")
    return [
        "--name=lab",
        f"--data-dir={setting.files.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--quota-backend-bytes={_ETCD_QUOTA}",
        "--log-level=warn",
        *([] if setting.spec.fsync else ["--unsafe-no-fsync"]),
    ]


def apiserver(setting: CommandContext) -> list[str]:
    """Start the API server itself."""
    files, spec = setting.files, setting.spec
    key = files.certificates.service_accounts_key
    return [
        f"--etcd-servers={setting.url('etcd', 'http')}",
        *_serving(setting, "apiserver"),
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={files.tokens}",
        # Nobody has a key that it signed; but components look for both where these flags publish them.
        f"--client-ca-file={files.certificates.ca}",
        f"--requestheader-client-ca-file={files.certificates.ca}",
        "--requestheader-allowed-names=nobody",
        "--requestheader-username-headers=X-Remote-User",
        "--authorization-mode=RBAC",
        "--shutdown-watch-termination-grace-period=2s",  # else it stays as long as anybody watches
        # The first would make pods wait for a controller; the other taints nodes that we make ready.
        # As some distributions have it: who blocks an owner's deletion needs a right to the owner's finalizers.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        f"--disable-admission-plugins={'' if spec.service_accounts else 'ServiceAccount,'}TaintNodesByCondition",
        *_gates(spec),
        *([f"--runtime-config={','.join(f'{api}=true' for api in NATIVE_APIS)}"] if spec.gates == "native" else []),
        *([] if spec.watch_cache else ["--watch-cache=false"]),
        *_above_zero("--max-requests-inflight", spec.max_requests_inflight),
        *_above_zero("--max-mutating-requests-inflight", spec.max_mutating_requests_inflight),
    ]


def controller_manager(setting: CommandContext) -> list[str]:
    """Start garbage collection, disruption budgets, jobs and the rest."""
    controllers = "*" if setting.spec.node_lifecycle else "*,-node-lifecycle-controller"
    return [
        *_client(setting, "controller-manager"),
        *_serving(setting, "controller-manager"),
        f"--controllers={controllers}",
        "--leader-elect=false",
        f"--service-account-private-key-file={setting.files.certificates.service_accounts_key}",
        f"--root-ca-file={setting.files.certificates.ca}",
        "--kube-api-qps=2000",
        "--kube-api-burst=2000",
        *_gates(setting.spec),
    ]


def scheduler(setting: CommandContext) -> list[str]:
    """Kubernetes' own scheduler."""
    kubeconfig = setting.files.kubeconfig_of("scheduler")
    return [
        f"--config={setting.files.scheduler_config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *_serving(setting, "scheduler"),
        *_gates(setting.spec),
    ]


def scheduler_config(setting: CommandContext) -> dict[str, object]:
    """Configure the peer without its default throttle of 50 requests a second; comparing with that is a lie."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(setting.files.kubeconfig_of("scheduler")),
            "qps": 5000,
            "burst": 5000,
        },
    }


def kwok(setting: CommandContext) -> list[str]:
    """Play the kubelets of the nodes that say so."""
    return [
        f"--kubeconfig={setting.files.kubeconfig_of('kwok')}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE}",
        f"--config={setting.stages}",
        f"--cidr={_POD_RANGE}",
        f"--node-ip={LOOPBACK}",
        f"--server-address={LOOPBACK}:{setting.ports['kwok']}",
        f"--node-lease-duration-seconds={40 if setting.spec.node_lifecycle else 0}",
    ]


def _serving(setting: CommandContext, component: str) -> list[str]:
    certificates = setting.files.certificates
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={setting.ports[component]}",
        f"--tls-cert-file={certificates.server}",
        f"--tls-private-key-file={certificates.server_key}",
    ]


def _client(setting: CommandContext, component: str) -> list[str]:
    kubeconfig = setting.files.kubeconfig_of(component)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _gates(spec: ClusterSpec) -> list[str]:
    if spec.gates == "default":
        return []
    return [f"--feature-gates={','.join(f'{gate}=true' for gate in NATIVE_GATES)}"]


def _above_zero(flag: str, value: int) -> list[str]:
    return [f"{flag}={value}"] if value > 0 else []
