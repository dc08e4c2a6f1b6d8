"""A shell environment for a named cluster: KUBECONFIG, and kubectl, helm and our commands on PATH."""

import shlex
import sys
from pathlib import Path

from cpg_lab import building
from cpg_lab.labs import Lab
from cpg_lab.progress import Display

TOOLS = ("kubectl", "helm")


def exports(lab: Lab) -> str:
    """Return the export commands; the programs are links in the cluster's folder, which are removed with it."""
    access = lab.access()
    folder = lab.folder.path / "bin"
    folder.mkdir(exist_ok=True)
    for name, path in building.ensure(TOOLS, Display()).items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    first = f"{folder}:{Path(sys.executable).parent}"
    return f"export KUBECONFIG={shlex.quote(str(access.kubeconfig))}\nexport PATH={shlex.quote(first)}:$PATH\n"
