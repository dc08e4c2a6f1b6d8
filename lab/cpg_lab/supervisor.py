"""The process that owns a named cluster's components. Run by `labs`, detached from the terminal.

It starts the cluster, tells the state in a file, and sleeps until told to end. Its components die with it,
even when it is killed; and when somebody removes its folder it ends by itself, for nobody could find it again.

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

_LOOK_EVERY = 1.0


def main(path: Path) -> None:
    """Detach, and leave once the child's identity is noted, so that whoever started us can find it."""
    folder = LabFolder(path)
    ready, tell = os.pipe()
    child = os.fork()
    if child:
        identity = ProcessIdentity.of(child)
        if identity is not None:
            folder.write_state(LabState(supervisor=identity))
        os.write(tell, b".")
        os._exit(0)
    os.close(tell)
    if os.read(ready, 1):  # nothing: the parent was interrupted, and nobody knows of us
        os.close(ready)
        supervise(folder)


def supervise(folder: LabFolder) -> None:
    """Run the cluster until told to end."""
    state = folder.read_state()
    if state is None:
        sys.exit(f"{folder.state} does not say who I am")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    spec = folder.read_spec()
    cluster = Cluster(spec, folder=folder.path)
    try:
        cluster.start()
        folder.write_state(_ready(state, cluster))
        while folder.state.exists():
            time.sleep(_LOOK_EVERY)
    except LabError as problem:
        folder.write_state(replace(state, phase="failed", error=str(problem)))
    finally:
        cluster.stop()


def _ready(state: LabState, cluster: Cluster) -> LabState:
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
    """Leave through the context manager, and let nobody disturb that."""
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(f"told to end by {signal.Signals(number).name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
