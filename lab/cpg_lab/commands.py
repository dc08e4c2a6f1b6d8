"""The command line of each component: pure functions of the cluster's spec, its files and its ports.

Every flag that is not obvious has its reason beside it; most are needed on loopback.
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
"""The annotation of the nodes that kwok simulates; a real node has none, and kwok ignores it."""

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
        """The data folder of etcd."""
        return self.folder / "etcd"

    @property
    def logs(self) -> Path:
        """A log per component."""
        return self.folder / "logs"

    @property
    def audit_log(self) -> Path:
        """The API server's log of writes."""
        return self.folder / "audit.log"

    @property
    def tokens(self) -> Path:
        """The API server's table of tokens and users."""
        return self.folder / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def webhook_certificate(self) -> Path:
        """The folder of the certificate of webhooks. With the folder above as TMPDIR, it is the default of many."""
        return self.folder / "k8s-webhook-server" / "serving-certs"

    def config_of(self, component: str) -> Path:
        """Return the configuration of one component, if it has any."""
        return self.folder / f"{component}.yaml"

    def log(self, component: str) -> Path:
        """Return the log of one component."""
        return self.logs / f"{component}.log"

    def kubeconfig_of(self, component: str) -> Path:
        """Return the kubeconfig of one component, with a user of its own."""
        return self.folder / f"{component}.kubeconfig"


@dataclass(frozen=True, kw_only=True)
class CommandContext:
    """The inputs of a command line."""

    spec: ClusterSpec
    files: ClusterFiles
    ports: Mapping[str, int]
    """By component; some have a second one, such as `etcd-peer`."""
    stages: Path

    def url(self, component: str, scheme: str = "https") -> str:
        """Return the URL of a component."""
        return f"{scheme}://{LOOPBACK}:{self.ports[component]}"


def etcd(context: CommandContext) -> list[str]:
    """Return the arguments of etcd: plain HTTP, because it listens on loopback and holds only test data."""
    client, peer = context.url("etcd", "http"), context.url("etcd-peer", "http")
    return [
        "--name=lab",
        f"--data-dir={context.files.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--quota-backend-bytes={_ETCD_QUOTA}",
        "--log-level=warn",
        *([] if context.spec.fsync else ["--unsafe-no-fsync"]),
    ]


def apiserver(context: CommandContext) -> list[str]:
    """Return the arguments of the API server."""
    files, spec = context.files, context.spec
    key = files.certificates.service_accounts_key
    return [
        f"--etcd-servers={context.url('etcd', 'http')}",
        *_serving(context, "apiserver"),
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={files.tokens}",
        # No client has a key signed by it; but components read both authorities from where these flags publish them.
        f"--client-ca-file={files.certificates.ca}",
        f"--requestheader-client-ca-file={files.certificates.ca}",
        "--requestheader-allowed-names=nobody",
        "--requestheader-username-headers=X-Remote-User",
        "--authorization-mode=RBAC",
        "--shutdown-watch-termination-grace-period=2s",  # without it the process waits for all watches to end
        # As in some distributions: blockOwnerDeletion needs a right to the owner's finalizers.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        # ServiceAccount makes pods wait for a controller; TaintNodesByCondition taints nodes that we create as ready.
        f"--disable-admission-plugins={'' if spec.service_accounts else 'ServiceAccount,'}TaintNodesByCondition",
        *_gates(spec),
        *([f"--runtime-config={','.join(f'{api}=true' for api in NATIVE_APIS)}"] if spec.gates == "native" else []),
        *([] if spec.watch_cache else ["--watch-cache=false"]),
        *_if_positive("--max-requests-inflight", spec.max_requests_inflight),
        *_if_positive("--max-mutating-requests-inflight", spec.max_mutating_requests_inflight),
        *_audit(context),
    ]


def audit_policy(_: CommandContext) -> dict[str, object]:
    """Return the audit policy of the API server: all writes, without their bodies."""
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "verbs": writes}, {"level": "None"}],
    }


def controller_manager(context: CommandContext) -> list[str]:
    """Return the arguments of the controller manager: garbage collection, disruption budgets, jobs and the rest."""
    everything = ("*",) if context.spec.node_lifecycle else ("*", "-node-lifecycle-controller")
    return [
        *_client(context, "controller-manager"),
        *_serving(context, "controller-manager"),
        f"--controllers={','.join(context.spec.controllers or everything)}",
        "--leader-elect=false",
        f"--service-account-private-key-file={context.files.certificates.service_accounts_key}",
        f"--root-ca-file={context.files.certificates.ca}",
        "--kube-api-qps=2000",
        "--kube-api-burst=2000",
        *_gates(context.spec),
    ]


def scheduler(context: CommandContext) -> list[str]:
    """Return the arguments of kube-scheduler."""
    kubeconfig = context.files.kubeconfig_of("scheduler")
    return [
        f"--config={context.files.config_of('scheduler')}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *_serving(context, "scheduler"),
        *_gates(context.spec),
    ]


def scheduler_config(context: CommandContext) -> dict[str, object]:
    """Return the configuration of kube-scheduler without its limit of 50 requests per second, which would distort."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(context.files.kubeconfig_of("scheduler")),
            "qps": 5000,
            "burst": 5000,
        },
    }


def kwok(context: CommandContext) -> list[str]:
    """Return the arguments of kwok, which simulates the kubelets of annotated nodes."""
    return [
        f"--kubeconfig={context.files.kubeconfig_of('kwok')}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE}",
        f"--config={context.stages}",
        f"--cidr={_POD_RANGE}",
        f"--node-ip={LOOPBACK}",
        f"--server-address={LOOPBACK}:{context.ports['kwok']}",
        f"--node-lease-duration-seconds={40 if context.spec.node_lifecycle else 0}",
    ]


def _serving(context: CommandContext, component: str) -> list[str]:
    certificates = context.files.certificates
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={context.ports[component]}",
        f"--tls-cert-file={certificates.server}",
        f"--tls-private-key-file={certificates.server_key}",
    ]


def _client(context: CommandContext, component: str) -> list[str]:
    kubeconfig = context.files.kubeconfig_of(component)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _gates(spec: ClusterSpec) -> list[str]:
    gates = (*(NATIVE_GATES if spec.gates == "native" else ()), *spec.further_gates)
    return [f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}"] if gates else []


def _audit(context: CommandContext) -> list[str]:
    if not context.spec.audit:
        return []
    files = context.files
    return [f"--audit-policy-file={files.config_of('apiserver')}", f"--audit-log-path={files.audit_log}"]


def _if_positive(flag: str, value: int) -> list[str]:
    return [f"{flag}={value}"] if value > 0 else []
