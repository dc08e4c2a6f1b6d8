"""Deployments without containers: the pods of an installed chart as processes of this machine.

A process runs what its Deployment says: command, arguments, environment, files of ConfigMaps, and a token of the
service account from the API server. It is ready by the probes of its template, which are sent as a kubelet sends them.
This module knows nothing about our programs; `podtemplates` describes how a process differs from a container.

    release = charts.ChartRelease(access, CHART, {"api": "crd"})     # applies all objects except those that create pods
    with Deployments(access, release.deployments, folder=folder) as running:
        running.pods["kube-cpg-scheduler"][0].get("/readyz")

The Deployments may also come from the API server (``kubectl get deployments -o json``), after ``helm install``.
"""

import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cpg_api.decoding import decode
from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint
from cpg_lab import podtemplates, probing
from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.errors import LabError, StartError
from cpg_lab.podtemplates import PodSandbox, PodTemplate, Probe, ProcessPlan
from cpg_lab.ports import free_port
from cpg_lab.processes import Process, stop_all

START_TIMEOUT = 60.0
_POLL_SECONDS = 0.05
_TOKEN_SECONDS = 24 * 3600
"""Seconds. A kubelet renews a token before it expires; here it is never renewed."""

Plain = dict[str, Any]


class PodProcess:
    """One pod as a process, which dies with the lab."""

    def __init__(self, access: Access, owner: Plain, folder: Path) -> None:
        """Start it. ``owner`` is a Deployment or a Job; service account and ConfigMaps are in its namespace."""
        meta = owner["metadata"]
        self.template = podtemplates.read_template(owner)
        self.name = f"{meta['name']}-{secrets.token_hex(3)}"
        ports = {port.container_port: free_port() for port in self.template.spec.container.ports}
        self._sandbox = PodSandbox(name=self.name, namespace=meta["namespace"], folder=folder / self.name, ports=ports)
        self._sandbox.folder.mkdir(parents=True)
        self.kubeconfig = self._sandbox.folder / "kubeconfig"
        maps, token = probing.run_blocking(_inputs(access, self.template, meta["namespace"]))
        write_kubeconfig(self.kubeconfig, url=access.url, ca_file=access.ca_file, token=token)
        self.process = self._start_process(podtemplates.plan_process(self.template, self._sandbox, maps))

    def url(self, port: int | str = "http") -> str:
        """Return the URL of a port on this machine."""
        return self._sandbox.url(self.template.spec.container, port)

    def get(self, path: str, port: int | str = "http") -> tuple[int, str]:
        """Return status and body of an answer at a port, or 0 and the error."""
        return probing.get_plain(self._sandbox.url(self.template.spec.container, port) + path)

    def unready_reason(self) -> str | None:
        """Return why the startup or readiness probe fails, or None if both succeed."""
        container = self.template.spec.container
        if not self.process.is_running:
            return f"ended with {self.process.exit_code}"
        reasons = (
            self._probe_failure(probe) for probe in (container.startup_probe, container.readiness_probe) if probe
        )
        return next((reason for reason in reasons if reason), None)

    def is_alive(self) -> bool:
        """Return whether the process runs and its liveness probe succeeds."""
        probe = self.template.spec.container.liveness_probe
        return self.process.is_running and (probe is None or self._probe_failure(probe) is None)

    def await_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until it is ready; raise with the end of its log when it exits, or after the timeout."""
        deadline = time.monotonic() + timeout
        while (reason := self.unready_reason()) is not None:
            if not self.process.is_running or time.monotonic() > deadline:
                raise StartError(f"{self.name} is not ready: {reason}; the end of its log:\n{self.process.tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Terminate it, and kill it after its termination grace period."""
        self.process.stop(self.template.spec.termination_grace_period_seconds)

    def _probe_failure(self, probe: Probe) -> str | None:
        status, body = self.get(probe.http_get.path, probe.http_get.port)
        return None if 200 <= status < 400 else f"{probe.http_get.path}: {status} {body.strip()}"

    def _start_process(self, plan: ProcessPlan) -> Process:
        for path, text in plan.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
        program = shutil.which(plan.command[0], path=programs)
        if program is None:
            raise LabError(f"{self.name}: no program {plan.command[0]} in {programs}")
        environment = {
            "PATH": programs,
            "HOME": str(self._sandbox.folder),
            "HOSTNAME": self.name,
            "KUBECONFIG": str(self.kubeconfig),
            **plan.environment,
        }
        log = self._sandbox.folder / "log"
        return Process(self.name, [program, *plan.command[1:]], log=log, env=environment, folder=self._sandbox.folder)


class Deployments:
    """The pods of Deployments, as a context manager."""

    def __init__(self, access: Access, deployments: Sequence[Plain], *, folder: Path) -> None:
        """Prepare the pods, which start on entry; each has a folder with its log in ``folder``."""
        self.pods: dict[str, list[PodProcess]] = {}
        self._access = access
        self._folder = folder
        self._deployments = deployments

    def __enter__(self) -> Self:
        try:
            for deployment in self._deployments:
                name = deployment["metadata"]["name"]
                self.pods[name] = [self._pod(deployment) for _ in range(deployment["spec"]["replicas"])]
            for pod in self._all():
                pod.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all pods."""
        stop_all([pod.process for pod in self._all()], max((_grace(pod) for pod in self._all()), default=0.0))
        self.pods.clear()

    def roll(self, deployments: Sequence[Plain]) -> None:
        """Replace Deployments of the same names by a rolling update: an old pod stops when a new one is ready."""
        for deployment in deployments:
            old = self.pods.get(deployment["metadata"]["name"], [])
            new: list[PodProcess] = []
            self.pods[deployment["metadata"]["name"]] = new
            try:
                for _ in range(deployment["spec"]["replicas"]):
                    new.append(self._pod(deployment))
                    new[-1].await_ready()
                    if old:
                        old.pop(0).stop()
            finally:
                for pod in old:
                    pod.stop()

    def _pod(self, deployment: Plain) -> PodProcess:
        return PodProcess(self._access, deployment, self._folder)

    def _all(self) -> list[PodProcess]:
        return [pod for pods in self.pods.values() for pod in pods]


def run_job(access: Access, job: Plain, *, folder: Path, timeout: float = START_TIMEOUT) -> PodProcess:
    """Run the pod of a Job to its end; raise with the end of its log when it fails, or after the timeout."""
    pod = PodProcess(access, job, folder)
    if not pod.process.wait(timeout) or pod.process.exit_code:
        pod.process.kill()
        raise LabError(f"{pod.name} ended with {pod.process.exit_code}; the end of its log:\n{pod.process.tail()}")
    return pod


def _grace(pod: PodProcess) -> float:
    return pod.template.spec.termination_grace_period_seconds


async def _inputs(access: Access, template: PodTemplate, namespace: str) -> tuple[dict[str, Mapping[str, str]], str]:
    """Return what a kubelet requests from the API server: the ConfigMaps of a pod, and a token."""
    endpoint = Endpoint(server=access.url, ca=access.ca_file, credentials=Credentials(token=access.token))
    space = f"/api/v1/namespaces/{namespace}"
    references = (one.value_from.config_map_key_ref for one in template.spec.container.env if one.value_from)
    names = {volume.config_map.name for volume in template.spec.volumes} | {one.name for one in references if one}
    async with Connection(endpoint) as connection:
        maps = {name: await connection.get(f"{space}/configmaps/{name}") for name in names}
        request = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        account = template.spec.service_account_name
        answer = await connection.post(f"{space}/serviceaccounts/{account}/token", request)
    token: str = decode(answer)["status"]["token"]
    return {name: decode(body).get("data", {}) for name, body in maps.items()}, token
