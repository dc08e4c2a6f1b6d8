"""The workload controllers of other projects, such as JobSet: configuration, CRDs and webhooks.

CRDs and webhooks come from the sources that the program is built from. Webhooks go through the project's own
kustomization, which limits those of pods, and get our address and authority in place of a Service.
"""

import base64
import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cpg_lab import module_sources
from cpg_lab.access import Access
from cpg_lab.certificates import Certificates
from cpg_lab.commands import CommandContext
from cpg_lab.errors import LabError
from cpg_lab.ports import LOOPBACK
from cpg_lab.specs import NEWEST
from cpg_lab.versions import BY_NAME

_OWN_CERTIFICATES = {"internalCertManagement": {"enable": False}}
_KUEUE_GATES = {
    "VisibilityOnDemand": False,  # a server that listens on all addresses
    # These need resource.k8s.io/v1, which Kubernetes 1.30 does not serve.
    "KueueDRAIntegration": False,
    "KueueDRAIntegrationExtendedResource": False,
    "KueueDRAIntegrationPartitionableDevices": False,
}
_REQUESTS_PER_SECOND = 500
_APPLY = ("apply", "--server-side", "--validate=false", "-f", "-")
"""On the server's side, because CRDs are too large for kubectl's annotation. Its validation would load all schemas."""
_NEW_RULE = "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)"
"""A rule of JobSet, which Kubernetes 1.30 cannot compile: it knows no namespace in the metadata of a template."""
_WRAPPED_NEW_RULE = re.compile(r"\s+".join(map(re.escape, ["rule:", *_NEW_RULE.split()])))


@dataclass(frozen=True, kw_only=True)
class WorkloadController:
    """One controller, and where its sources have what it needs."""

    name: str
    source: str
    """The Go module that contains it."""
    crds: str
    """The folder of its CRDs: manifests, or a kustomization, which takes seconds for the largest."""
    webhooks: str = ""
    """The folder of the kustomization of its webhooks, if it has any."""
    probe: str = ""
    """The path of one webhook, which answers once all are served."""
    api_version: str = ""
    """The API version of its configuration; without one it is configured by flags."""
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """The part of its configuration that others do not have."""
    certificate_setting: bool = True
    """Whether a setting names the folder of its certificate; if not, it reads a fixed one below TMPDIR."""
    ignored_groups: tuple[str, ...] = ()
    """API groups of which the lab leaves out the webhooks, because the settings turn the integration off."""
    preparation: tuple[str, ...] = ()
    """Arguments of kubectl that create an object which it does not create itself."""

    @property
    def webhook_port(self) -> str:
        """The name of the port of its webhooks; empty if it has none."""
        return f"{self.name}-webhook" if self.webhooks else ""


ALL = (
    WorkloadController(
        name="jobset",
        source="sigs.k8s.io/jobset",
        crds="config/components/crd/bases",
        webhooks="config/components/webhook",
        probe="/validate-jobset-x-k8s-io-v1alpha2-jobset",
        api_version="config.jobset.x-k8s.io/v1alpha1",
        settings={**_OWN_CERTIFICATES, "featureGates": {"ElasticJobSet": True, "RestartJob": True}},
    ),
    WorkloadController(
        name="lws",
        source="sigs.k8s.io/lws",
        crds="config/crd/bases",
        webhooks="config/webhook",
        probe="/validate-disaggregatedset-x-k8s-io-v1-disaggregatedset",
        api_version="config.lws.x-k8s.io/v1alpha1",
        settings=_OWN_CERTIFICATES,
    ),
    WorkloadController(
        name="trainer",
        source="github.com/kubeflow/trainer/v2",
        crds="manifests/base/crds",
        webhooks="manifests/base/webhook",
        probe="/validate-trainer-kubeflow-org-v1alpha1-trainjob",
        api_version="config.trainer.kubeflow.org/v1alpha1",
        settings={"certManagement": {"enable": False}},
        certificate_setting=False,
    ),
    WorkloadController(
        name="ray",
        source="github.com/ray-project/kuberay/ray-operator",
        crds="config/crd/bases",
    ),
    WorkloadController(
        name="kueue",
        source="sigs.k8s.io/kueue",
        crds="config/components/crd",
        webhooks="config/components/webhook",
        probe="/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
        api_version="config.kueue.x-k8s.io/v1beta2",
        settings={
            # Without certificates of its own it reads a file below /etc. They stay unused, because it looks for webhook
            # configurations of another name than ours; only the conversion of v1beta1 objects would need them.
            "internalCertManagement": {"enable": True},
            "namespace": "kube-system",
            "featureGates": _KUEUE_GATES,
            "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        },
        ignored_groups=("", "apps"),
        preparation=("create", "secret", "generic", "kueue-webhook-server-cert", "--namespace=kube-system"),
    ),
)


def of_names(names: Iterable[str]) -> tuple[WorkloadController, ...]:
    """Return the controllers among some components."""
    chosen = set(names)
    return tuple(controller for controller in ALL if controller.name in chosen)


def command(controller: WorkloadController, context: CommandContext) -> list[str]:
    """Return the arguments of a controller: its configuration file, or flags if it has none."""
    kubeconfig = f"--kubeconfig={context.files.kubeconfig_of(controller.name)}"
    if controller.api_version:
        return [kubeconfig, f"--config={context.files.config_of(controller.name)}"]
    return [
        kubeconfig,
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address={LOOPBACK}:{context.ports[controller.name]}",
        f"--qps={_REQUESTS_PER_SECOND}",
        f"--burst={_REQUESTS_PER_SECOND}",
    ]


def configuration(controller: WorkloadController, context: CommandContext) -> dict[str, object]:
    """Return the configuration of a controller: one replica on loopback, without metrics."""
    certificate = {"certDir": str(context.files.webhook_certificate)} if controller.certificate_setting else {}
    return {
        "apiVersion": controller.api_version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{context.ports[controller.name]}"},
        "clientConnection": {"qps": _REQUESTS_PER_SECOND, "burst": _REQUESTS_PER_SECOND},
        "webhook": {"host": LOOPBACK, "port": context.ports[controller.webhook_port], **certificate},
        **controller.settings,
    }


def write_certificate(folder: Path, certificates: Certificates) -> None:
    """Link the server certificate under the names that controllers expect."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in (("tls.crt", certificates.server), ("tls.key", certificates.server_key)):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(path)


def install_crds(controllers: Iterable[WorkloadController], access: Access, *, kubernetes: str) -> None:
    """Create the CRDs and wait until all are served: controllers, and the garbage collector, look for them at start."""
    for controller in controllers:
        manifests = _manifests(controller, controller.crds, access)
        if kubernetes != NEWEST:
            manifests = _WRAPPED_NEW_RULE.sub('rule: "true"', manifests)
        access.kubectl(*_APPLY, input=manifests)
        if controller.preparation:
            access.kubectl(*controller.preparation)
    access.wait_for_crds()


def install_webhooks(controller: WorkloadController, access: Access, url: str) -> None:
    """Create the webhook configurations of a controller that serves at a URL."""
    manifests = _manifests(controller, controller.webhooks, access)
    configurations = webhook_configurations(controller, manifests, url=url, authority=access.ca_file.read_bytes())
    items = {"apiVersion": "v1", "kind": "List", "items": configurations}
    access.kubectl(*_APPLY, input=msgspec.json.encode(items).decode())


def webhook_configurations(
    controller: WorkloadController, manifests: str, *, url: str, authority: bytes
) -> list[dict[str, Any]]:
    """Return a project's webhook configurations with our name, address and authority; all have the same name there."""
    documents = [each for each in yaml.safe_load_all(manifests) if each["kind"].endswith("WebhookConfiguration")]
    if not documents:
        raise LabError(f"the sources of {controller.name} have no webhooks in {controller.webhooks}")
    bundle = base64.b64encode(authority).decode()
    for document in documents:
        document["metadata"] = {"name": f"cpg-lab-{controller.name}"}
        document["webhooks"] = [each for each in document["webhooks"] if not _is_ignored(controller, each)]
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
    return documents


def _is_ignored(controller: WorkloadController, webhook: Mapping[str, Any]) -> bool:
    return any(set(rule["apiGroups"]) & set(controller.ignored_groups) for rule in webhook["rules"])


def _manifests(controller: WorkloadController, part: str, access: Access) -> str:
    folder = module_sources.fetch_module(BY_NAME[controller.name].module.name, controller.source) / part
    if (folder / "kustomization.yaml").exists():
        return access.kubectl("kustomize", str(folder)).stdout
    return "\n---\n".join(path.read_text() for path in sorted(folder.glob("*.yaml")))
