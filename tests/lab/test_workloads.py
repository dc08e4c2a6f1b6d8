"""Workload controllers: configuration, CRDs and webhooks, with a fake kubectl."""

import base64
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpg_lab import certificates, module_sources, workloads
from cpg_lab.access import Access
from cpg_lab.commands import ClusterFiles, CommandContext
from cpg_lab.errors import LabError
from cpg_lab.specs import WORKLOADS, ClusterSpec
from cpg_lab.workloads import WorkloadController

MANIFESTS = """
kind: Service
metadata: {name: webhook-service}
---
kind: MutatingWebhookConfiguration
metadata: {name: mutating-webhook-configuration}
webhooks:
- name: mpod
  clientConfig: {service: {name: webhook-service, namespace: system, path: /mutate-pod}}
  objectSelector: {matchExpressions: [{key: x.dev/name, operator: Exists}]}
  rules: [{apiGroups: [""], resources: [pods]}]
- name: mjob
  clientConfig: {service: {name: webhook-service, namespace: system, path: /mutate-job}}
  rules: [{apiGroups: [batch], resources: [jobs]}]
"""
KUBECTL = """
import json, pathlib, sys
calls = pathlib.Path(__file__).with_suffix(".calls")
with calls.open("a") as file:
    given = sys.stdin.read() if "-" in sys.argv else ""
    file.write(json.dumps([sys.argv[3:], given]) + "\\n")
if "kustomize" in sys.argv:
    print(%r)
"""
CRDS = """\
x-kubernetes-validations:
- message: namespace cannot be set
  rule: self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace)
    == 0)
- rule: self.templates.all(t, !has(t.metadata.namespace)
    || size(t.metadata.namespace) == 0)
- rule: self == oldSelf
"""
PLAIN = WorkloadController(name="jobset", source="x.dev/jobset", crds="crds", webhooks="hooks")


def controller(name: str) -> WorkloadController:
    """Return one of the lab's controllers."""
    (found,) = workloads.of_names([name])
    return found


def context() -> CommandContext:
    """Return a context with made-up files, and ports from 2000 on."""
    ports: dict[str, int] = {}
    for number, name in enumerate(WORKLOADS):
        ports |= {name: 2000 + number, f"{name}-webhook": 3000 + number}
    files = ClusterFiles(Path("/lab"))
    return CommandContext(spec=ClusterSpec(), files=files, ports=ports, stages=Path("/stages.yaml"))


@pytest.fixture
def access(program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Access:
    """Return access by a kubectl that writes its calls to a file, and sources with plain CRDs in two files."""
    sources = tmp_path / "sources"
    for folder in ("config/webhook", "config/components/crd"):
        (sources / folder).mkdir(parents=True)
        (sources / folder / "kustomization.yaml").touch()
    for folder in ("config/crd/bases", "config/components/crd/bases"):
        (sources / folder).mkdir(parents=True)
        (sources / folder / "a.yaml").write_text("kind: A")
        (sources / folder / "b.yaml").write_text(CRDS)
    monkeypatch.setattr(module_sources, "fetch_module", lambda *_: sources)
    authority = tmp_path / "ca.crt"
    authority.write_text("ours")
    return Access(
        url="https://127.0.0.1:1",
        ca_file=authority,
        token="",
        kubeconfig=tmp_path / "kubeconfig",
        kubectl_path=program("kubectl", KUBECTL % MANIFESTS),
    )


def calls(access: Access) -> list[tuple[list[str], str]]:
    """Return the arguments and inputs of kubectl so far."""
    lines = access.kubectl_path.with_suffix(".calls").read_text().splitlines()
    return [(arguments, given) for arguments, given in map(json.loads, lines)]


def test_every_workload_has_a_controller() -> None:
    """The specs and the table name the same ones, in the same order."""
    assert tuple(each.name for each in workloads.ALL) == WORKLOADS
    assert workloads.of_names(["kwok", "lws", "jobset"]) == (controller("jobset"), controller("lws"))


@pytest.mark.parametrize("name", ["jobset", "lws", "trainer", "kueue"])
def test_controllers_are_configured_by_a_file(name: str) -> None:
    """One replica on loopback, without metrics, with ports of its own; the file can be written as YAML."""
    config: dict[str, Any] = yaml.safe_load(yaml.safe_dump(workloads.configuration(controller(name), context())))
    number = WORKLOADS.index(name)
    assert config["apiVersion"].startswith("config.")
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["metrics"] == {"bindAddress": "0"}
    assert config["health"] == {"healthProbeBindAddress": f"127.0.0.1:{2000 + number}"}
    assert config["webhook"]["host"] == "127.0.0.1"
    assert config["webhook"]["port"] == 3000 + number
    command = workloads.command(controller(name), context())
    assert command == [f"--kubeconfig=/lab/{name}.kubeconfig", f"--config=/lab/{name}.yaml"]


def test_the_folder_of_the_certificate_is_configured_where_it_can_be() -> None:
    """The trainer reads it below TMPDIR, and refuses the setting."""
    folder = "/lab/k8s-webhook-server/serving-certs"
    assert workloads.configuration(controller("lws"), context())["webhook"] == {
        "host": "127.0.0.1",
        "port": 3001,
        "certDir": folder,
    }
    trainer: Any = workloads.configuration(controller("trainer"), context())
    assert "certDir" not in trainer["webhook"]


def test_ray_is_configured_by_flags() -> None:
    """It has no webhooks here."""
    ray = controller("ray")
    assert ray.webhook_port == ""
    assert "--health-probe-bind-address=127.0.0.1:2003" in workloads.command(ray, context())


def test_the_certificate_has_the_names_that_controllers_expect(tmp_path: Path) -> None:
    """Also when the folder exists already."""
    issued = certificates.issue(tmp_path, now=dt.datetime(2026, 11, 19, tzinfo=dt.UTC), service_ip="10.0.0.1")
    folder = ClusterFiles(tmp_path).webhook_certificate
    for _ in range(2):
        workloads.write_certificate(folder, issued)
    assert (folder / "tls.crt").read_bytes() == issued.server.read_bytes()
    assert (folder / "tls.key").read_bytes() == issued.server_key.read_bytes()


def test_webhooks_get_our_address_authority_and_name() -> None:
    """Selectors and rules stay; objects of other kinds are left out."""
    (found,) = workloads.webhook_configurations(PLAIN, MANIFESTS, url="https://127.0.0.1:9", authority=b"ours")
    assert found["metadata"] == {"name": "cpg-lab-jobset"}
    pods, jobs = found["webhooks"]
    bundle = base64.b64encode(b"ours").decode()
    assert pods["clientConfig"] == {"url": "https://127.0.0.1:9/mutate-pod", "caBundle": bundle}
    assert pods["objectSelector"]["matchExpressions"][0]["key"] == "x.dev/name"
    assert jobs["clientConfig"]["url"] == "https://127.0.0.1:9/mutate-job"


def test_webhooks_of_integrations_that_are_off_are_left_out() -> None:
    """They would be called for every pod."""
    without_pods = WorkloadController(name="kueue", source="", crds="", webhooks="hooks", ignored_groups=("", "apps"))
    (found,) = workloads.webhook_configurations(without_pods, MANIFESTS, url="https://127.0.0.1:9", authority=b"")
    assert [webhook["name"] for webhook in found["webhooks"]] == ["mjob"]


def test_sources_without_webhooks_are_an_error() -> None:
    """A later version may have moved them."""
    with pytest.raises(LabError, match="the sources of jobset have no webhooks in hooks"):
        workloads.webhook_configurations(PLAIN, "kind: Service", url="", authority=b"")


def test_crds_are_served_before_controllers_start(access: Access) -> None:
    """They are applied as they are, or from a kustomization; then comes the object that kueue does not create."""
    workloads.install_crds([controller("lws"), controller("kueue")], access, kubernetes="1.37")
    lws, kustomizing, kueue, preparing, waiting = calls(access)
    assert lws[0][:2] == kueue[0][:2] == ["apply", "--server-side"]
    assert list(yaml.safe_load_all(lws[1])) == [{"kind": "A"}, yaml.safe_load(CRDS)]
    assert kustomizing[0][0] == "kustomize"
    assert kustomizing[0][1].endswith("/config/components/crd")
    assert kueue[1] == f"{MANIFESTS}\n"
    assert preparing[0][:2] == ["create", "secret"]
    assert waiting[0][:3] == ["wait", "--for=condition=Established", "crd"]


def test_an_old_server_does_not_get_a_rule_that_it_cannot_compile(access: Access) -> None:
    """It would refuse the CRD; the other rules stay."""
    workloads.install_crds([controller("jobset")], access, kubernetes="1.30")
    _, manifest = yaml.safe_load_all(calls(access)[0][1])
    assert [rule["rule"] for rule in manifest["x-kubernetes-validations"]] == ["true", "true", "self == oldSelf"]


def test_webhooks_are_applied_as_one_list(access: Access) -> None:
    """From the project's kustomization."""
    workloads.install_webhooks(controller("lws"), access, "https://127.0.0.1:9")
    (reading, _), (applying, given) = calls(access)
    assert reading[0] == "kustomize"
    assert reading[1].endswith("/config/webhook")
    assert applying[:2] == ["apply", "--server-side"]
    assert [item["metadata"]["name"] for item in json.loads(given)["items"]] == ["cpg-lab-lws"]


def test_a_crd_without_conditions_is_asked_again(access: Access) -> None:
    """It is an error for kubectl alone."""
    program = access.kubectl_path
    program.write_text('#!/bin/sh\n[ -e "$0.seen" ] && exit 0\ntouch "$0.seen"\necho accessor error >&2\nexit 1\n')
    access.wait_for_crds()
    assert program.with_name(f"{program.name}.seen").exists()


def test_a_crd_that_is_never_served_is_an_error(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the words of kubectl."""
    monkeypatch.setattr("cpg_lab.access.MAX_SECONDS_TO_SERVE", 0.3)
    access.kubectl_path.write_text("#!/bin/sh\necho no conditions >&2\nexit 1\n")
    with pytest.raises(LabError, match="no conditions"):
        access.wait_for_crds()
