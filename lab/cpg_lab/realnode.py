"""One real node: a kubelet and a container runtime, beside the nodes that kwok simulates.

Its pods are containers of the images that users run, under the service accounts and security contexts of the chart. It
needs root, and containerd, runc, ip and busybox of the system.

The node runs in namespaces and control groups of its own:

- Processes: the end of the first process ends the runtime, its shims and every container, also when the lab is killed.
- Network: a loopback with the node's address and that of the API server's Service, and a relay to the API server. So
  pods reach it as in any cluster, and several nodes do not conflict. Pods have no network of their own; they use the
  node's (`hostNetwork`) and its name.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from cpg_lab import building, container_images, folders, node_config, relay
from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.commands import SERVICE_IP
from cpg_lab.errors import LabError, StartError
from cpg_lab.node_config import NodeFiles
from cpg_lab.processes import Process, tail_of
from cpg_lab.temporary_folders import OwnedFolder

NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "busybox": "busybox-static",
}
"""Programs of the system, and the Debian package of each."""

START_TIMEOUT = 60.0
_NAMESPACES = ("--pid", "--mount", "--net", "--uts", "--fork", "--kill-child=KILL", "--mount-proc")
_RELAY = (sys.executable, relay.__file__)
_SERVICE_PORT = 443
_ADDRESS = "10.255.0.1"
"""The node's own address. Each node has a network of its own, so all have the same."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def missing() -> list[str]:
    """Return what this machine lacks for a real node, in words."""
    found = [f"{name} (Debian package {package})" for name, package in NEEDED.items() if not shutil.which(name)]
    if os.geteuid() != 0:
        found.append("root")
    return found


class RealNode:
    """A node of a running cluster, as a context manager."""

    def __init__(self, access: Access, *, name: str = "real", labels: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._access = access
        self._labels = dict(labels or {})
        self._owned_folder: OwnedFolder | None = None
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        if lacking := missing():
            raise LabError(f"a real node needs {', '.join(lacking)}")
        self._owned_folder = OwnedFolder.create(folders.temporary_clusters())
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def load(self, archive: Path) -> None:
        """Import an image from an archive, so that pods that never pull can use it."""
        command = [
            "ctr",
            "--address",
            str(self._files.socket),
            "--namespace",
            "k8s.io",
            "images",
            "import",
            str(archive),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"importing {archive} failed: {done.stderr.strip()}")

    def logs(self) -> dict[str, str]:
        """Return the output of each container, by pod, container and the number of its start."""
        found = sorted(self._files.pod_logs.glob("*/*/*.log"))
        return {str(one.relative_to(self._files.pod_logs)): one.read_text(errors="replace") for one in found}

    @property
    def _files(self) -> NodeFiles:
        if self._owned_folder is None:
            raise StartError("the node does not run")
        return NodeFiles(self._owned_folder.folder)

    @property
    def _group(self) -> str:
        return f"cpg-lab-{self._files.folder.name}"

    def _start(self) -> None:
        files = self._files
        kubelet = building.ensure(["kubelet"])["kubelet"]
        for folder in (files.networks, files.pod_logs):
            folder.mkdir()
        node_config.write_network(files)
        files.runtime_config.write_text(node_config.runtime_config(files, _snapshotter(files.folder)))
        files.kubelet_config.write_text(yaml.safe_dump(node_config.kubelet_config(files, self._group)))
        server = f"https://{SERVICE_IP}:{_SERVICE_PORT}"
        write_kubeconfig(files.kubeconfig, url=server, ca_file=self._access.ca_file, token=self._access.token)
        for group in _controllers():
            (group / self._group).mkdir(exist_ok=True)
        self._launch("relay", [*_RELAY, str(files.api_socket), self._access.url.removeprefix("https://")])
        self._launch("node", ["/usr/bin/unshare", *_NAMESPACES, "/bin/sh", "-c", self._script(kubelet)])
        self._await("the container runtime", self._runtime_answers)
        self._load_sandbox_image()
        self._await("the node", self._is_ready)

    def _launch(self, name: str, command: Sequence[str]) -> None:
        self._processes.append(Process(name, command, log=self._files.log))

    def _load_sandbox_image(self) -> None:
        archive = self._files.folder / "pause.tar"
        busybox = Path(shutil.which("busybox") or "busybox")
        container_images.write_image(
            archive,
            name=node_config.SANDBOX_IMAGE,
            program=busybox,
            command=[f"/bin/{busybox.name}", "tail", "-f", "/dev/null"],
        )
        self.load(archive)

    def _script(self, kubelet: Path) -> str:
        """Return the script of the first process of the namespaces: it waits for the kubelet, and reaps orphans."""
        files = self._files
        relay = [*_RELAY, f"{SERVICE_IP}:{_SERVICE_PORT}", str(files.api_socket)]
        kubelet_command = [
            str(kubelet),
            f"--config={files.kubelet_config}",
            f"--kubeconfig={files.kubeconfig}",
            f"--root-dir={files.folder / 'kubelet'}",
            f"--node-ip={_ADDRESS}",
            f"--hostname-override={self.name}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in self._labels.items())}",
        ]
        return "\n".join(
            (
                "mount --make-rshared /",
                f"echo {self.name} > /proc/sys/kernel/hostname",
                "ip link set lo up",
                f"ip address add {SERVICE_IP}/32 dev lo",
                f"ip address add {_ADDRESS}/32 dev lo",
                f"{shlex.join(relay)} &",
                f"containerd --config {files.runtime_config} &",
                f"until [ -S {files.socket} ]; do sleep 0.1; done",
                shlex.join(kubelet_command),
            )
        )

    def _runtime_answers(self) -> bool:
        command = ["ctr", "--address", str(self._files.socket), "--timeout", "2s", "version"]
        return self._files.socket.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _is_ready(self) -> bool:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        status = self._access.kubectl("get", "node", self.name, "-o", f"jsonpath={path}", check=False)
        return status.stdout == "True"

    def _await(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if time.monotonic() > deadline or not all(process.is_running for process in self._processes):
                raise StartError(f"{what} did not become ready; the end of its log:\n{tail_of(self._files.log)}")
            time.sleep(0.1)

    def _stop(self) -> None:
        """Kill all processes, and remove node, control groups and folder."""
        owned_folder = self._owned_folder
        if owned_folder is None:
            return
        self._access.kubectl("delete", "node", self.name, "--ignore-not-found", "--wait=false", check=False)
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()
        for group in _controllers():
            _remove_group(group / self._group)
        self._owned_folder = None
        owned_folder.release()


def _controllers() -> list[Path]:
    """Return the roots of control groups: one, or in version 1 one for each controller."""
    if (_CONTROL_GROUPS / "cgroup.controllers").exists():
        return [_CONTROL_GROUPS]
    return [found for found in _CONTROL_GROUPS.iterdir() if found.is_dir() and not found.is_symlink()]


def _remove_group(group: Path) -> None:
    """Remove a control group and those inside, from the leaves up; wait up to 1 s for processes that are ending."""
    if not group.exists():
        return
    inner = sorted((found for found in group.rglob("*") if found.is_dir()), key=lambda found: -len(found.parts))
    for one in (*inner, group):
        for _ in range(20):
            with contextlib.suppress(OSError):
                one.rmdir()
                break
            time.sleep(0.05)


def _snapshotter(folder: Path) -> str:
    """Return the snapshotter that works on this kernel: overlayfs, or else native, which copies layers."""
    lower, upper, work, merged = (folder / "trial" / name for name in ("lower", "upper", "work", "merged"))
    for one in (lower, upper, work, merged):
        one.mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    trial = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    worked = subprocess.run(trial, capture_output=True, check=False).returncode == 0
    return "overlayfs" if worked else "native"
