"""Pod templates and the processes that run them."""

from pathlib import Path
from typing import Any

import pytest

from cpg_lab.errors import DescriptionError
from cpg_lab.podtemplates import HttpGet, PodSandbox, ProcessPlan, plan_process, read_template

FOLDER = Path("/somewhere")
MAPS = {"settings": {"settings.yaml": "listen: :8080\nfile: /etc/x/settings.yaml\n", "level": "debug"}}
Plain = dict[str, Any]


def deployment(spec: Plain | None = None, **container: Any) -> Plain:
    """Return a Deployment with a container that mounts a ConfigMap and listens on a port."""
    plain = {
        "name": "main",
        "command": ["program"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "volumeMounts": [{"name": "files", "mountPath": "/etc/x", "readOnly": True}],
        **container,
    }
    volumes = [{"name": "files", "configMap": {"name": "settings"}}]
    pod = {"serviceAccountName": "me", "containers": [plain], "volumes": volumes, **(spec or {})}
    template = {"metadata": {"labels": {"a.b/c": "d"}}, "spec": pod}
    return {"kind": "Deployment", "metadata": {"name": "some"}, "spec": {"replicas": 1, "template": template}}


def sandbox() -> PodSandbox:
    """Return a sandbox in which another port replaces the declared one."""
    return PodSandbox(name="some-1", namespace="space", folder=FOLDER, ports={8080: 31234})


def planned(**container: Any) -> ProcessPlan:
    """Return the process of a container."""
    return plan_process(read_template(deployment(**container)), sandbox(), MAPS)


def test_paths_and_ports_are_replaced() -> None:
    """In files, arguments and variables; similar text is left alone."""
    found = planned(
        args=["--config=/etc/x/settings.yaml", "--listen", "0.0.0.0:8080", "/etc/xy", "18080", "v8080"],
        env=[{"name": "WHERE", "value": "http://localhost:8080"}, {"name": "PORT", "value": "8080"}],
    )
    config = str(FOLDER / "etc" / "x" / "settings.yaml")
    assert found.command == (
        "program",
        f"--config={config}",
        "--listen",
        "127.0.0.1:31234",
        "/etc/xy",
        "18080",
        "v8080",
    )
    assert found.environment == {"WHERE": "http://localhost:31234", "PORT": "31234"}
    assert found.files[Path(config)] == f"listen: 127.0.0.1:31234\nfile: {config}\n"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "some-1"),
        ("metadata.namespace", "space"),
        ("metadata.labels['a.b/c']", "d"),
        ("metadata.annotations['none']", ""),
        ("spec.serviceAccountName", "me"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_a_variable_may_be_a_field_of_the_pod(path: str, value: str) -> None:
    """As the downward API defines."""
    found = planned(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
    assert found.environment == {"X": value}


def test_arguments_may_use_variables() -> None:
    """Of those defined before; `$$` is a dollar, and an unknown name stays."""
    source = {"configMapKeyRef": {"name": "settings", "key": "level"}}
    found = planned(
        env=[{"name": "A", "valueFrom": source}, {"name": "B", "value": "$(A)-$(C)"}, {"name": "D"}],
        args=["--log=$(B)", "$$(A)", "$(D)"],
    )
    assert found.environment == {"A": "debug", "B": "debug-$(C)", "D": ""}
    assert found.command[1:] == ("--log=debug-$(C)", "$(A)", "")


def test_a_variable_without_any_source_is_empty() -> None:
    """As on an API server."""
    assert planned(env=[{"name": "X", "valueFrom": {}}]).environment == {"X": ""}


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (deployment(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]), "secretKeyRef"),
        (deployment(envFrom=[{"configMapRef": {"name": "s"}}]), "envFrom"),
        (deployment({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), "secret"),
        (deployment({"initContainers": [{"name": "i"}]}), "initContainers"),
        (deployment({"containers": []}), "containers"),
        (deployment(readinessProbe={"exec": {"command": ["true"]}}), "httpGet"),
    ],
)
def test_unsupported_features_are_rejected_by_name(owner: Plain, says: str) -> None:
    """No field of the template is ignored silently."""
    with pytest.raises(DescriptionError, match=says) as caught:
        read_template(owner)
    assert "Deployment some" in str(caught.value)


def test_unknown_fields_of_the_pod_are_rejected_by_name() -> None:
    """And so is a container without a command."""
    with pytest.raises(DescriptionError, match=r"spec\.nodeName"):
        planned(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
    with pytest.raises(DescriptionError, match="has no command"):
        planned(command=[])


def test_a_port_is_found_by_name_and_by_number() -> None:
    """It has the URL of its replacement; an undeclared port has its own number."""
    template = read_template(deployment(livenessProbe={"httpGet": {"port": "http", "path": "/x"}}))
    container = template.spec.container
    assert container.liveness_probe is not None
    assert container.liveness_probe.http_get == HttpGet("http", "/x")
    found = [sandbox().url(container, port) for port in ("http", 8080, 9090)]
    assert found == ["http://127.0.0.1:31234", "http://127.0.0.1:31234", "http://127.0.0.1:9090"]
