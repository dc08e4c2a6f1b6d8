"""The Deployments of a namespace, run as processes while a named cluster runs: a kubelet for those without one.

A process of its own, detached from the terminal, owns them, as the supervisor owns the cluster. It is told what to run
by the API server, tells in a file when all is ready, and ends with the cluster.

Usage: python -m cpg_lab.hosting LAB NAMESPACE
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
from cpg_lab.identities import Identity
from cpg_lab.labs import Lab
from cpg_lab.processes import tail_of

READY = "ready.json"
PATIENCE = 60.0
RENEWED_AFTER = 20 * 3600.0
"""Seconds after which processes are started anew: the tokens that they began with last for a day."""
_POLL = 0.2


@dataclass(frozen=True)
class Hosted:
    """Who runs the Deployments, and where the pods of each are reached."""

    host: Identity
    urls: dict[str, list[str]]


def begin(lab: Lab, namespace: str, patience: float = PATIENCE) -> dict[str, list[str]]:
    """Start the processes, unless they run; return the addresses of each Deployment's pods once all are ready."""
    folder = _folder(lab, namespace)
    told = _told(folder)
    if told is not None and told.host.lives():
        return told.urls
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "cpg_lab.hosting", lab.name, namespace]
    with (folder / "log").open("ab") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    try:
        return _awaited(process, folder, patience)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def host(lab: Lab, namespace: str) -> None:
    """Run what the Deployments say until the cluster is gone, or we are told to end."""
    state, ourselves = lab.place.read_state(), Identity.of(os.getpid())
    if state is None or ourselves is None:
        raise LabError(f"{lab.name} does not run")
    folder = _folder(lab, namespace)
    while state.supervisor.lives():
        answer = lab.access().kubectl("get", "deployments", "-n", namespace, "-o", "json").stdout
        with Deployments(lab.access(), decode(answer)["items"], folder=folder) as running:
            urls = {name: [pod.url() for pod in pods] for name, pods in running.pods.items()}
            _tell(folder / READY, Hosted(ourselves, urls))
            _wait(state.supervisor, RENEWED_AFTER)


def _wait(supervisor: Identity, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while supervisor.lives() and time.monotonic() < deadline:
        time.sleep(_POLL)


def _awaited(process: "subprocess.Popen[bytes]", folder: Path, patience: float) -> dict[str, list[str]]:
    deadline = time.monotonic() + patience
    while (told := _told(folder)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"the Deployments did not get ready; the last words:\n{tail_of(folder / 'log')}")
        time.sleep(_POLL)
    return told.urls


def _told(folder: Path) -> Hosted | None:
    try:
        return decode((folder / READY).read_bytes(), Hosted)
    except FileNotFoundError:
        return None


def _tell(path: Path, hosted: Hosted) -> None:
    """Tell all at once: a reader never sees half of it."""
    beside = path.with_suffix(".part")
    beside.write_bytes(msgspec.json.encode(hosted))
    beside.replace(path)


def _folder(lab: Lab, namespace: str) -> Path:
    return lab.place.folder / "hosted" / namespace


def _end(number: int, _: FrameType | None) -> None:
    """Leave through the context manager."""
    sys.exit(f"told to end by {signal.Signals(number).name}")


def main(arguments: list[str]) -> int:
    """Run in the process of our own."""
    signal.signal(signal.SIGTERM, _end)
    name, namespace = arguments
    with contextlib.suppress(FileNotFoundError):  # the folder goes with the cluster
        try:
            host(Lab(name), namespace)
        except LabError as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
