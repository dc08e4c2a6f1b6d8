"""The cluster of the demo; every change to it is a command that is shown."""

import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cpg_lab import building, deployment_host, node_creation
from cpg_lab.access import Access
from cpg_lab.errors import LabError
from cpg_lab.labs import Lab
from cpg_lab.nodes import NodePool
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec
from story.screen import Screen
from story.state import ClusterState, read_state

NAME = "demo"
SYSTEM = "1 node, name=system, cpu=4, memory=16Gi"
"""The node of the chart's own pods; it is in no rack."""

CHART = Path("charts") / "kube-cpg"
NAMESPACE = "kube-cpg"
_POLL_SECONDS = 0.25


def rack(block: int, number: int) -> str:
    """Return the description of a rack of four nodes for `cpg-lab nodes`."""
    key = "topology.cpg.dev"
    return (
        f"4 nodes, name=node-{block}-{number}, cpu=4, memory=16Gi, "
        f"label {key}/block=block-{block}, label {key}/rack=rack-{block}-{number}"
    )


@dataclass(frozen=True)
class DemoCluster:
    """A running cluster and the screen that shows it."""

    access: Access
    screen: Screen

    @classmethod
    def start(cls, screen: Screen) -> "DemoCluster":
        """Stop the cluster of an earlier demo and start one with two racks, each in its own block."""
        lab = Lab(NAME)
        if lab.down():
            screen.quote("The cluster of an earlier demo was stopped. Starting a new one.")
        building.ensure(["helm"], Display())
        nodes = tuple(map(NodePool.parse, (SYSTEM, rack(1, 1), rack(2, 1))))
        lab.up(ClusterSpec(components=("controller-manager", "scheduler", "kwok"), nodes=nodes), Display())
        return cls(lab.access(), screen)

    def kubectl(self, line: str) -> None:
        """Run kubectl and show the command and its output."""
        self.screen.command(f"kubectl {line}", self.access.kubectl(*shlex.split(line)).stdout)

    def query(self, line: str) -> str:
        """Run and show a kubectl command; return its output."""
        self.screen.command(f"kubectl {line}")
        return self.access.kubectl(*shlex.split(line)).stdout.strip()

    def helm(self, line: str) -> None:
        """Run and show a helm command."""
        self.screen.command(f"helm {line}")
        program = building.ensure(["helm"])["helm"]
        command = [str(program), "--kubeconfig", str(self.access.kubeconfig), *shlex.split(line)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
        if done.returncode:
            raise LabError(f"helm {line} failed: {done.stderr.strip()}")

    def host(self) -> dict[str, list[str]]:
        """Run the processes of the chart's Deployments; return the addresses of the pods of each."""
        self.screen.command(f"cpg-lab host --name {NAME} --namespace {NAMESPACE}")
        return deployment_host.start_host(Lab(NAME), NAMESPACE)

    def add_nodes(self, description: str) -> None:
        """Add nodes and show the command."""
        self.screen.command(f'cpg-lab nodes --name {NAME} "{description}"')
        node_creation.create_nodes(self.access.kubeconfig, [NodePool.parse(description)])

    def watch(self, until: Callable[[ClusterState], bool], what: str, timeout: float = 60.0) -> ClusterState:
        """Show the cluster until a condition holds; return the last state, or raise after a timeout."""
        deadline = time.monotonic() + timeout
        while not until(state := read_state(self.access)):
            self.screen.show(state)
            if time.monotonic() > deadline:
                raise LabError(f"{what}: not within {timeout:.0f} s; the cluster is still running")
            time.sleep(_POLL_SECONDS)
        self.screen.show(state)
        self.screen.finish(state)
        return state
