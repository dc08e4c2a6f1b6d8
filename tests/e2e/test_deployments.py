"""Pod templates run as processes with a token of their service account."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments, run_job
from cpg_lab.errors import LabError, StartError
from cpg_lab.specs import ClusterSpec

pytestmark = pytest.mark.e2e

SERVER = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

began = time.monotonic()
received = {"arguments": sys.argv[1:], "environment": dict(os.environ), "file": Path(sys.argv[1]).read_text()}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or time.monotonic() - began > 0.5
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(json.dumps(received).encode() if ready else b"not yet")

host, port = received["file"].split()[1].rsplit(":", 1)
HTTPServer((host, int(port)), Handler).serve_forever()
"""
Plain = dict[str, Any]


def owner(code: str, kind: str = "Deployment", replicas: int = 1, **container: Any) -> Plain:
    """Return a Deployment or Job of pods that run Python code; each has a settings file and a port."""
    plain = {
        "name": "main",
        "command": ["python3", "-c", code],
        "args": ["/etc/some/settings.yaml"],
        "env": [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "web", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "web"}},
        "volumeMounts": [{"name": "files", "mountPath": "/etc/some"}],
        **container,
    }
    volumes = [{"name": "files", "configMap": {"name": "some"}}]
    pod = {"serviceAccountName": "some", "containers": [plain], "volumes": volumes, "terminationGracePeriodSeconds": 1}
    metadata = {"name": "some", "namespace": "default"}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": replicas, "template": {"spec": pod}}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with a service account and a settings file."""
    with Cluster(ClusterSpec()) as running:
        running.kubectl("create", "serviceaccount", "some")
        running.kubectl("create", "configmap", "some", "--from-literal=settings.yaml=listen: :8080")
        yield running


def test_a_process_gets_what_a_container_would(cluster: Cluster, tmp_path: Path) -> None:
    """Arguments, variables, files and token; each replica has a port of its own, and none of our environment."""
    with Deployments(cluster.access, [owner(SERVER, replicas=2)], folder=tmp_path) as running:
        pods = running.pods["some"]
        assert len({pod.url("web") for pod in pods}) == 2
        for pod in pods:
            received = json.loads(pod.get("/", "web")[1])
            assert received["arguments"][0].endswith(f"{pod.name}/etc/some/settings.yaml")
            assert received["file"] == f"listen: {pod.url('web').removeprefix('http://')}"
            assert received["environment"]["ME"] == pod.name
            assert received["environment"]["KUBECONFIG"] == str(pod.kubeconfig)
            assert "VIRTUAL_ENV" not in received["environment"]
            identity = cluster.kubectl("auth", "whoami", "--kubeconfig", str(pod.kubeconfig), "-o", "json").stdout
            assert json.loads(identity)["status"]["userInfo"]["username"] == "system:serviceaccount:default:some"
            assert pod.is_alive()
    assert [pod.process.is_running for pod in pods] == [False, False]


def test_a_pod_that_does_not_become_ready_raises_with_its_log(cluster: Cluster, tmp_path: Path) -> None:
    """No process is left afterwards."""
    deployment = owner("import sys; sys.exit('broken on purpose')")
    running = Deployments(cluster.access, [deployment], folder=tmp_path)
    with pytest.raises(StartError, match="broken on purpose"), running:
        pass
    assert running.pods == {}


def test_a_job_is_run_to_its_end(cluster: Cluster, tmp_path: Path) -> None:
    """``run_job`` returns the finished pod, or raises with its log or with the name of a missing program."""
    job = run_job(cluster.access, owner("print('done')", "Job"), folder=tmp_path)
    assert job.process.output() == "done\n"
    with pytest.raises(LabError, match="a bad end"):
        run_job(cluster.access, owner("import sys; sys.exit('a bad end')", "Job"), folder=tmp_path)
    with pytest.raises(LabError, match="no program there-is-none"):
        run_job(cluster.access, owner("", "Job", command=["there-is-none"]), folder=tmp_path)
