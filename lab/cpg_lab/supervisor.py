"""The process that owns a named cluster's components. Run by `labs`, detached from the terminal.

It starts the cluster, writes its state to a file, and waits for a signal. Its components die with it, even when it is
killed. It also ends when its folder is removed, because no command could find it again.

Usage: python -m cpg_lab.supervisor FOLDER
"""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.labs import LabFolder, LabState
from cpg_lab.process_identity import ProcessIdentity

_CHECK_SECONDS = 1.0


def main(path: Path) -> None:
    """Fork and exit once the identity of the child is in the state file, where the caller reads it."""
    folder = LabFolder(path)
    ready, notify = os.pipe()
    child = os.fork()
    if child:
        identity = ProcessIdentity.of(child)
        if identity is not None:
            folder.write_state(LabState(supervisor=identity))
        os.write(notify, b".")
        os._exit(0)
    os.close(notify)
    if os.read(ready, 1):  # empty: the parent was interrupted, and no command knows this process
        os.close(ready)
        supervise(folder)


def supervise(folder: LabFolder) -> None:
    """Run the cluster until a signal, or until the state file is removed."""
    state = folder.read_state()
    if state is None:
        sys.exit(f"{folder.state} does not name a supervisor")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    spec = folder.read_spec()
    cluster = Cluster(spec, folder=folder.path)
    try:
        cluster.start()
        folder.write_state(_ready_state(state, cluster))
        while folder.state.exists():
            time.sleep(_CHECK_SECONDS)
    except LabError as problem:
        folder.write_state(replace(state, phase="failed", error=str(problem)))
    finally:
        cluster.stop()


def _ready_state(state: LabState, cluster: Cluster) -> LabState:
    identities = [(name, process.identity) for name, process in cluster.processes.items()]
    return replace(
        state,
        phase="ready",
        url=cluster.url,
        token=cluster.token,
        kubectl_path=str(building.ensure(["kubectl"])["kubectl"]),
        components=tuple((name, identity) for name, identity in identities if identity is not None),
    )


def _end(number: int, _: FrameType | None) -> None:
    """Exit through the context managers, and ignore further signals meanwhile."""
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(f"ended by {signal.Signals(number).name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
