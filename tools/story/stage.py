"""The cluster that the story is told on, and what is done to it: each deed is a command that is shown."""

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
from story.sights import Sight, look

NAME = "demo"
SYSTEM = "1 node, name=system, cpu=4, memory=16Gi"
"""Where the chart's own pods are; it is in no rack."""

CHART = Path("charts") / "kube-cpg"
SPACE = "kube-cpg"
_LOOK_EVERY = 0.25


def rack(block: int, number: int) -> str:
    """Describe the four nodes of a rack, as `cpg-lab nodes` takes it."""
    key = "topology.cpg.dev"
    return (
        f"4 nodes, name=node-{block}-{number}, cpu=4, memory=16Gi, "
        f"label {key}/block=block-{block}, label {key}/rack=rack-{block}-{number}"
    )


@dataclass(frozen=True)
class Stage:
    """A cluster that runs, and the screen on which it is shown."""

    access: Access
    screen: Screen

    @classmethod
    def start(cls, screen: Screen) -> "Stage":
        """Start a cluster with two racks, each in a block of its own; one of an earlier demo is stopped first."""
        lab = Lab(NAME)
        if lab.down():
            screen.quote("The cluster of an earlier demo has been stopped, and a new one is started.")
        building.ensure(["helm"], Display())
        nodes = tuple(map(NodePool.parse, (SYSTEM, rack(1, 1), rack(2, 1))))
        lab.up(ClusterSpec(components=("controller-manager", "scheduler", "kwok"), nodes=nodes), Display())
        return cls(lab.access(), screen)

    def kubectl(self, line: str) -> None:
        """Run kubectl, and show the command and what it answers."""
        self.screen.command(f"kubectl {line}", self.access.kubectl(*shlex.split(line)).stdout)

    def ask(self, line: str) -> str:
        """Show a kubectl command, and return what it answers."""
        self.screen.command(f"kubectl {line}")
        return self.access.kubectl(*shlex.split(line)).stdout.strip()

    def helm(self, line: str) -> None:
        """Run helm, and show the command."""
        self.screen.command(f"helm {line}")
        program = building.ensure(["helm"])["helm"]
        command = [str(program), "--kubeconfig", str(self.access.kubeconfig), *shlex.split(line)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
        if done.returncode:
            raise LabError(f"helm {line} failed: {done.stderr.strip()}")

    def host(self) -> dict[str, list[str]]:
        """Run what the chart's Deployments say; show the command, and return the addresses of each one's pods."""
        self.screen.command(f"cpg-lab host --name {NAME} --namespace {SPACE}")
        return deployment_host.start_host(Lab(NAME), SPACE)

    def add_nodes(self, description: str) -> None:
        """Add nodes, and show the command."""
        self.screen.command(f'cpg-lab nodes --name {NAME} "{description}"')
        node_creation.create_nodes(self.access.kubeconfig, [NodePool.parse(description)])

    def watch(self, until: Callable[[Sight], bool], what: str, patience: float = 60.0) -> Sight:
        """Show what happens until something is so; return the last sight, and raise when it does not come."""
        deadline = time.monotonic() + patience
        while not until(sight := look(self.access)):
            self.screen.show(sight)
            if time.monotonic() > deadline:
                raise LabError(f"{what} did not come within {patience:.0f} s; the cluster is left for you to look at")
            time.sleep(_LOOK_EVERY)
        self.screen.show(sight)
        self.screen.settle(sight)
        return sight
