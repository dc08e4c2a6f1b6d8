"""A named cluster from one's own shell: kubectl, helm and our commands by their names, aimed at the cluster."""

import shlex
import sys
from pathlib import Path

from cpg_lab import building
from cpg_lab.labs import Lab
from cpg_lab.progress import Display

TOOLS = ("kubectl", "helm")


def exports(lab: Lab) -> str:
    """Return the shell's lines that do it; the links to the programs are in the cluster's folder and go with it."""
    access = lab.access()
    folder = lab.folder.path / "bin"
    folder.mkdir(exist_ok=True)
    for name, path in building.ensure(TOOLS, Display()).items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    first = f"{folder}:{Path(sys.executable).parent}"
    return f"export KUBECONFIG={shlex.quote(str(access.kubeconfig))}\nexport PATH={shlex.quote(first)}:$PATH\n"
