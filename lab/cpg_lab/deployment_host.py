"""The Deployments of a namespace, run as processes for as long as a named cluster runs.

A host process, detached from the terminal, owns them, as the supervisor owns the cluster. It reads the Deployments from
the API server, writes a file once all pods are ready, and ends with the cluster.

Usage: python -m cpg_lab.deployment_host LAB NAMESPACE
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from cpg_api.decoding import decode
from cpg_lab.deployments import Deployments
from cpg_lab.errors import LabError
from cpg_lab.labs import Lab
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.processes import tail_of

READY = "ready.json"
START_TIMEOUT = 60.0
RESTART_AFTER_SECONDS = 20 * 3600.0
"""Their tokens expire after a day, so processes are restarted before."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class HostedDeployments:
    """The process that runs the Deployments, and the URLs of the pods of each."""

    host: ProcessIdentity
    urls: dict[str, list[str]]


def start_host(lab: Lab, namespace: str, timeout: float = START_TIMEOUT) -> dict[str, list[str]]:
    """Start a host process, unless one runs; return the URLs of each Deployment's pods once all are ready."""
    folder = _folder(lab, namespace)
    ready = _read_ready(folder)
    if ready is not None and ready.host.is_running():
        return ready.urls
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "cpg_lab.deployment_host", lab.name, namespace]
    with (folder / "log").open("ab") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    try:
        return _await_ready(process, folder, timeout)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def run_host(lab: Lab, namespace: str) -> None:
    """Run the pods of the Deployments until the cluster is gone, or a signal ends this process."""
    state, ourselves = lab.folder.read_state(), ProcessIdentity.of(os.getpid())
    if state is None or ourselves is None:
        raise LabError(f"{lab.name} does not run")
    folder = _folder(lab, namespace)
    while state.supervisor.is_running():
        answer = lab.access().kubectl("get", "deployments", "-n", namespace, "-o", "json").stdout
        with Deployments(lab.access(), decode(answer)["items"], folder=folder) as running:
            urls = {name: [pod.url() for pod in pods] for name, pods in running.pods.items()}
            _write_ready(folder / READY, HostedDeployments(ourselves, urls))
            _wait(state.supervisor, RESTART_AFTER_SECONDS)


def _wait(supervisor: ProcessIdentity, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while supervisor.is_running() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _await_ready(process: "subprocess.Popen[bytes]", folder: Path, timeout: float) -> dict[str, list[str]]:
    deadline = time.monotonic() + timeout
    while (ready := _read_ready(folder)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"the Deployments did not become ready; the end of their log:\n{tail_of(folder / 'log')}")
        time.sleep(_POLL_SECONDS)
    return ready.urls


def _read_ready(folder: Path) -> HostedDeployments | None:
    try:
        return decode((folder / READY).read_bytes(), HostedDeployments)
    except FileNotFoundError:
        return None


def _write_ready(path: Path, hosted: HostedDeployments) -> None:
    """Write the file atomically, so that a reader never sees a part of it."""
    beside = path.with_suffix(".part")
    beside.write_bytes(msgspec.json.encode(hosted))
    beside.replace(path)


def _folder(lab: Lab, namespace: str) -> Path:
    return lab.folder.path / "hosted" / namespace


def _end(number: int, _: FrameType | None) -> None:
    """Exit through the context managers."""
    sys.exit(f"ended by {signal.Signals(number).name}")


def main(arguments: list[str]) -> int:
    """Run the host process; return its exit code."""
    signal.signal(signal.SIGTERM, _end)
    name, namespace = arguments
    with contextlib.suppress(FileNotFoundError):  # the folder goes with the cluster
        try:
            run_host(Lab(name), namespace)
        except LabError as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
