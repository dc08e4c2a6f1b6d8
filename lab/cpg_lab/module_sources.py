"""Source files of other projects' modules, such as CRDs: pinned by hashes as programs are, and never built."""

import subprocess
from pathlib import Path

from cpg_api.decoding import decode
from cpg_lab import folders, toolchain
from cpg_lab.errors import BuildError
from cpg_lab.progress import Display


def fetch_module(module: str, path: str, display: Display | None = None) -> Path:
    """Return the folder of the sources of a Go module that a folder of `lab/go` pins; fetch them the first time."""
    say = (display or Display()).say
    compiler = toolchain.find(toolchain.needed_version([module]), say)
    done = subprocess.run(
        [compiler.go, "mod", "download", "-json", path],
        cwd=folders.module_folder(module),
        env=toolchain.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return Path(decode(done.stdout)["Dir"])
    except (ValueError, KeyError):
        raise BuildError(f"go mod download failed for {path}:\n{done.stdout}{done.stderr}") from None
