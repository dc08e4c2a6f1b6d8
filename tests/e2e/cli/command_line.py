"""The command line as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

from cpg_lab.clusters import Cluster


class CommandLine:
    """Runs commands on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Use the kubeconfig of the administrator."""
        self.environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "100"}
        self._program = Path(sys.executable).with_name("kubectl-cpg")

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> "CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(  # noqa: S603 - our own program
            [self._program, *arguments],
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command."""
        return subprocess.Popen(  # noqa: S603 - our own program
            [self._program, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
