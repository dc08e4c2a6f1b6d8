"""Deployments without containers: an installed chart in its fast form, as processes of this machine.

What runs is what the Deployments say: the command and the arguments, the environment, the files of ConfigMaps, and the
token of the service account, which the API server gives for it. Ready is a pod by the probes that its template names,
asked as a kubelet asks. Nothing about our programs is known here; `podtemplates` tells in what a process differs from a
container.

    release = charts.Release(access, CHART, {"api": "crd"})     # everything but what would make pods is applied
    with Deployments(access, release.deployments, folder=folder) as running:
        running.pods["kube-cpg-scheduler"][0].ask("/readyz")

The Deployments may come from the API server as well (``kubectl get deployments -o json``), after ``helm install``.
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
_POLL = 0.05
_TOKEN_LASTS = 24 * 3600
"""Seconds; a kubelet would renew it in time, here nobody does."""

Plain = dict[str, Any]


class PodProcess:
    """One pod, as a process; it dies with us."""

    def __init__(self, access: Access, owner: Plain, folder: Path) -> None:
        """Start it. ``owner`` is a Deployment or a Job, in whose namespace the account and the files are."""
        meta = owner["metadata"]
        self.template = podtemplates.read_template(owner)
        self.name = f"{meta['name']}-{secrets.token_hex(3)}"
        ports = {port.container_port: free_port() for port in self.template.spec.container.ports}
        self._sandbox = PodSandbox(name=self.name, namespace=meta["namespace"], folder=folder / self.name, ports=ports)
        self._sandbox.folder.mkdir(parents=True)
        self.kubeconfig = self._sandbox.folder / "kubeconfig"
        maps, token = probing.run_blocking(_given(access, self.template, meta["namespace"]))
        write_kubeconfig(self.kubeconfig, url=access.url, ca_file=access.ca_file, token=token)
        self.process = self._started(podtemplates.plan_process(self.template, self._sandbox, maps))

    def url(self, port: int | str = "http") -> str:
        """Return where a port of it is on this machine."""
        return self._sandbox.url(self.template.spec.container, port)

    def ask(self, path: str, port: int | str = "http") -> tuple[int, str]:
        """Return what is answered at a port: the status and the body, or 0 and why there is none."""
        return probing.get_plain(self._sandbox.url(self.template.spec.container, port) + path)

    def unready_reason(self) -> str | None:
        """Ask as a kubelet asks; return None when it has started and is ready, else what was wrong."""
        container = self.template.spec.container
        if not self.process.alive:
            return f"ended with {self.process.exit_code}"
        reasons = (self._failed(probe) for probe in (container.startup_probe, container.readiness_probe) if probe)
        return next((reason for reason in reasons if reason), None)

    def is_alive(self) -> bool:
        """Tell whether a kubelet would let it go on."""
        probe = self.template.spec.container.liveness_probe
        return self.process.alive and (probe is None or self._failed(probe) is None)

    def await_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Return when it is ready; raise with its last words when it ends, or takes too long."""
        deadline = time.monotonic() + timeout
        while (reason := self.unready_reason()) is not None:
            if not self.process.alive or time.monotonic() > deadline:
                raise StartError(f"{self.name} is not ready: {reason}; it said last:\n{self.process.tail()}")
            time.sleep(_POLL)

    def stop(self) -> None:
        """Ask it to end, and end it by force after the grace that its template gives it."""
        self.process.stop(self.template.spec.termination_grace_period_seconds)

    def _failed(self, probe: Probe) -> str | None:
        status, body = self.ask(probe.http_get.path, probe.http_get.port)
        return None if 200 <= status < 400 else f"{probe.http_get.path}: {status} {body.strip()}"

    def _started(self, plan: ProcessPlan) -> Process:
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
    """The pods of Deployments, there within the block."""

    def __init__(self, access: Access, deployments: Sequence[Plain], *, folder: Path) -> None:
        """Start nothing yet; each pod gets a folder of its own in ``folder``, with its log."""
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
        """End all pods."""
        stop_all([pod.process for pod in self._all()], max((_grace(pod) for pod in self._all()), default=0.0))
        self.pods.clear()

    def roll(self, deployments: Sequence[Plain]) -> None:
        """Bring other Deployments of these names in by a rolling update: an old pod goes when a new one is ready."""
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
    """Run the pod of a Job to its end; raise with its last words when that is no good one, or takes too long."""
    pod = PodProcess(access, job, folder)
    if not pod.process.wait(timeout) or pod.process.exit_code:
        pod.process.kill()
        raise LabError(f"{pod.name} ended with {pod.process.exit_code}; it said last:\n{pod.process.tail()}")
    return pod


def _grace(pod: PodProcess) -> float:
    return pod.template.spec.termination_grace_period_seconds


async def _given(access: Access, template: PodTemplate, namespace: str) -> tuple[dict[str, Mapping[str, str]], str]:
    """Return what a kubelet asks the API server for: the ConfigMaps that a pod names, and its token."""
    endpoint = Endpoint(server=access.url, ca=access.ca_file, credentials=Credentials(token=access.token))
    space = f"/api/v1/namespaces/{namespace}"
    references = (one.value_from.config_map_key_ref for one in template.spec.container.env if one.value_from)
    names = {volume.config_map.name for volume in template.spec.volumes} | {one.name for one in references if one}
    async with Connection(endpoint) as connection:
        maps = {name: await connection.get(f"{space}/configmaps/{name}") for name in names}
        asked = {"spec": {"expirationSeconds": _TOKEN_LASTS}}
        account = template.spec.service_account_name
        answer = await connection.post(f"{space}/serviceaccounts/{account}/token", asked)
    token: str = decode(answer)["status"]["token"]
    return {name: decode(body).get("data", {}) for name, body in maps.items()}, token
