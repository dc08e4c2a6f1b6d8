"""The demo: a local cluster, the CRDs, the example tree, and the scheduler that places it. Run by `make demo`.

Everything it does is a command that it prints first, so that a newcomer can do the same by hand afterwards. The
cluster is left running; a second run finds it and is quick.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cpg_lab.access import Access
from cpg_lab.errors import LabError
from cpg_lab.labs import Lab
from cpg_lab.nodes import NodePool
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec

NAME = "demo"
NODES = "2 blocks x 2 racks x 4 nodes, cpu=4, memory=16Gi"
EXAMPLE = "examples/02-tree/objects.yaml"
PODS = 10
PATIENCE = 60.0


def main() -> int:
    """Show the example; return the exit code."""
    try:
        show(start())
    except LabError as problem:
        print(f"demo: {problem}", *getattr(problem, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the cluster, if it runs, is stopped by: make lab-down", file=sys.stderr)
        return 130
    return 0


def start() -> Access:
    """Start the cluster, or find it running."""
    lab = Lab(NAME)
    headline(f"A Kubernetes control plane on this machine: {NODES}")
    began = time.monotonic()
    spec = ClusterSpec(components=("controller-manager", "kwok"), nodes=(NodePool.parse(NODES),))
    started = lab.up(spec, Display())
    print(f"{'Ready after' if started else 'It runs already; found in'} {time.monotonic() - began:.1f} s.")
    return lab.access()


def show(access: Access) -> None:
    """Apply the CRDs and the example, and show what kubectl says."""
    kubectl(access, "get", "nodes", "-L", "topology.cpg.dev/block,topology.cpg.dev/rack")
    headline("The kinds of kube-cpg: Workload, CompositePodGroup, PodGroup")
    kubectl(access, "apply", "-f", "manifests/crds")
    kubectl(access, "wait", "--for=condition=established", "--timeout=30s", "-f", "manifests/crds", quiet=True)
    headline("A training job of two replicas, each in one rack, both in one block")
    access.kubectl("delete", "--ignore-not-found", "--wait", "-f", EXAMPLE)  # of an earlier demo
    kubectl(access, "apply", "-f", EXAMPLE)
    await_pods(access)
    kubectl(access, "get", "workloads,cpg,podgroups")
    kubectl(access, "get", "pods", "-L", "scheduling.cpg.dev/pod-group")
    headline("cpg-scheduler starts, and places the whole tree or nothing")
    with scheduler(access):
        await_placed(access)
    kubectl(access, "get", "cpg,podgroups")
    show_places(access)
    headline("What next")
    print("The scheduler has stopped with the demo; the cluster goes on. Start it again, and look around:")
    print(f"  export KUBECONFIG={access.kubeconfig}")
    print("  .venv/bin/cpg-scheduler")
    print("  .venv/bin/cpg-lab kubectl --name demo -- describe cpg train")
    print("  .venv/bin/cpg-lab kubectl --name demo -- explain compositepodgroup.spec")
    print("Stop the cluster:\n  make lab-down")


@contextlib.contextmanager
def scheduler(access: Access) -> Iterator[None]:
    """Run the scheduler while the block runs."""
    log = access.kubeconfig.parent / "cpg-scheduler.log"
    command = [sys.executable, "-m", "cpg_scheduler", "--kubeconfig", str(access.kubeconfig), "--listen", ""]
    print(f"$ cpg-scheduler --kubeconfig {access.kubeconfig}")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 - our own command
    try:
        yield
        if process.poll() is not None:
            raise LabError(f"cpg-scheduler ended by itself; its log is {log}")
    finally:
        process.terminate()
        process.wait(PATIENCE)


def await_placed(access: Access) -> None:
    """Show how many pods have a node, until all have; raise when that takes too long."""
    began, shown = time.monotonic(), -1
    while shown < PODS:
        answer = access.kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").stdout
        placed = len(answer.split())
        if placed != shown:
            shown = placed
            print(f"  {time.monotonic() - began:5.1f} s  {'#' * placed}{'.' * (PODS - placed)}  {placed}/{PODS} placed")
        if time.monotonic() - began > PATIENCE:
            raise LabError(f"only {placed} of {PODS} pods were placed within {PATIENCE:.0f} s")
        time.sleep(0.1)


def show_places(access: Access) -> None:
    """Show for each group in which rack its pods are."""
    racks = "jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.topology\\.cpg\\.dev/rack}{'\\n'}{end}"
    rack_of = dict(line.split() for line in access.kubectl("get", "nodes", "-o", racks).stdout.splitlines())
    groups = (
        "jsonpath={range .items[*]}{.metadata.labels.scheduling\\.cpg\\.dev/pod-group} {.spec.nodeName}{'\\n'}{end}"
    )
    seats = [line.split() for line in access.kubectl("get", "pods", "-o", groups).stdout.splitlines()]
    print("\nWhere the pods of each group are:")
    for group in sorted({group for group, _ in seats}):
        nodes = sorted(node for found, node in seats if found == group)
        print(f"  {group:<10} {', '.join(sorted({rack_of[node] for node in nodes}))}: {', '.join(nodes)}")


def await_pods(access: Access) -> None:
    """Wait until the Jobs have made their pods; raise when they do not."""
    deadline = time.monotonic() + PATIENCE
    while len(access.kubectl("get", "pods", "-o", "name").stdout.split()) < PODS:
        if time.monotonic() > deadline:
            raise LabError(f"the example's Jobs did not make their {PODS} pods within {PATIENCE:.0f} s")
        time.sleep(0.2)


def kubectl(access: Access, *arguments: str, quiet: bool = False) -> None:
    """Run kubectl, and show the command and what it answers."""
    answer = access.kubectl(*arguments).stdout
    if not quiet:
        print(f"\n$ kubectl {' '.join(arguments)}\n{answer}", end="", flush=True)


def headline(text: str) -> None:
    """Say what comes next."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    if not Path("manifests/crds").is_dir():
        sys.exit("demo: run it in the root of the repository: make demo")
    sys.exit(main())
