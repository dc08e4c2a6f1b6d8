"""An archive of the command line, installed as a user does it: unpacked into a folder of the PATH."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cpg_lab import building

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
IMPORT_ALL = """
import importlib, os, pkgutil, sys
home = sys.argv[1]
sys.path[:0] = [os.path.join(home, "lib", f"cp3{sys.version_info.minor}"), os.path.join(home, "lib", "common")]
import cpg_cli, kubernetes.stream
names = [one.name for one in pkgutil.walk_packages(cpg_cli.__path__, "cpg_cli.") if not one.name.endswith("__main__")]
print(len([importlib.import_module(name) for name in names]))
"""
GROUP = """
# stays
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 4}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the archive for this machine and this version of Python, and unpack it."""
    built, home = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("installed")
    name = f"{platform.system().lower()}-{MACHINES[platform.machine()]}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = ROOT / "tools" / "release_cli.py"
    command: list[str | Path] = [sys.executable, script, "--platform", name, "--python", python, "--out", built]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own tool
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    return home


def run(home: Path, *command: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a program with the archive on the PATH, and nothing of our environment."""
    kubectl = building.ensure(["kubectl"])["kubectl"]
    path = os.pathsep.join([str(home), str(kubectl.parent), os.defpath])
    base = Path(sys.base_prefix) / "bin" / "python3"
    environment = {"PATH": path, "HOME": str(home), "KUBECTL_CPG_PYTHON": str(base)}
    return subprocess.run(  # noqa: S603 - our own program
        [shutil.which(command[0], path=path) or command[0], *command[1:]],
        env=environment,
        input=stdin,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_kubectl_finds_it(installed: Path) -> None:
    """As a plugin, also by a symbolic link, as Krew makes one."""
    done = run(installed, "kubectl", "cpg", "--help")
    assert (done.returncode, "Commands:" in done.stdout, done.stderr) == (0, True, "")
    folder = installed / "links"
    folder.mkdir()
    (folder / "kubectl-cpg").symlink_to(installed / "kubectl-cpg")
    linked = run(folder, "kubectl-cpg", "--version")
    assert (linked.returncode, linked.stdout.count(".")) == (0, 2), linked


def test_a_command_works(installed: Path) -> None:
    """It reads standard input and writes manifests."""
    done = run(installed, "kubectl", "cpg", "convert", "-f", "-", stdin=GROUP)
    assert (done.returncode, done.stderr) == (0, "")
    assert "apiVersion: scheduling.cpg.dev/v1alpha3" in done.stdout
    assert "minCount: 4" in done.stdout


def test_a_simulation_needs_no_cluster(installed: Path) -> None:
    """It has the code of the operator and the scheduler."""
    examples = ROOT / "examples"
    files: list[str | Path] = ["-f", examples / "02-tree", "--cluster", examples / "nodes.yaml"]
    done = run(installed, "kubectl", "cpg", "simulate", *files)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "fits: 10 of 10 pods placed"), done.stderr


def test_kubectl_completes_its_commands(installed: Path) -> None:
    """By the second program of the archive."""
    done = run(installed, "kubectl", "__complete", "cpg", "doc")
    assert done.stdout.splitlines()[0].split("\t")[0] == "doctor", done


def test_no_command_needs_what_the_archive_leaves_out(installed: Path) -> None:
    """Every module can be imported without the packages of the operator."""
    done = run(installed, Path(sys.base_prefix) / "bin" / "python3", "-IS", "-c", IMPORT_ALL, str(installed))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_another_python_is_refused_with_a_reason(installed: Path) -> None:
    """There is no traceback."""
    os.rename(installed / "lib" / f"cp3{sys.version_info.minor}", installed / "lib" / "cp399")  # noqa: PTH104 - a folder
    try:
        done = run(installed, "kubectl-cpg", "--version")
    finally:
        os.rename(installed / "lib" / "cp399", installed / "lib" / f"cp3{sys.version_info.minor}")  # noqa: PTH104 - see above
    assert (done.returncode, done.stderr.startswith("error: this archive is for cp399")) == (1, True)
