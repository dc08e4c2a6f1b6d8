"""The built image: its content, its user, its labels, and that its programs start.

`test_installed.py` runs its processes in containers.
"""

import importlib.metadata
import json
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg" / "Chart.yaml"
UNPRIVILEGED = "65532:65532"
PROGRAMS = ("cpg-operator", "cpg-scheduler")
"""The programs that the chart starts by name."""

MAX_COMPRESSED_MEGABYTES = 130
MAX_UNPACKED_MEGABYTES = 130
"""The limits of the whole image compressed, and of our part unpacked."""

OPEN_TO_ALL = {"tmp", "var/tmp", "run/lock", "dev/shm"}
"""Folders that are writable for every user on Linux; in the chart the whole file system is read-only."""

Plain = dict[str, Any]

pytestmark = [pytest.mark.e2e, pytest.mark.realnode]


class Image:
    """An image, unpacked."""

    def __init__(self, archive: Path, folder: Path) -> None:
        """Unpack it, layer over layer."""
        self.root = folder / "root"
        self.root.mkdir()
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="fully_trusted")  # noqa: S202 - our own build
        self._blobs = folder / "blobs"
        (manifest,) = json.loads((folder / "index.json").read_text())["manifests"]
        layers: Plain = self._read(manifest)
        self.packed = sum(layer["size"] for layer in layers["layers"])
        self.config: Plain = self._read(layers["config"])["config"]
        for layer in layers["layers"]:
            with tarfile.open(self._blob(layer)) as packed:
                packed.extractall(self.root, filter="fully_trusted")  # noqa: S202 - likewise
        for removed in self.root.rglob(".wh.*"):  # a whiteout: the layer removes a file of an earlier one
            pytest.fail(f"{removed}: this test does not support whiteouts")

    def run(self, *command: str) -> str:
        """Run a program as in a container: unprivileged, with the image's environment and a read-only file system."""
        environment = ["HOME=/", *self.config["Env"]]
        mounts = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t proc proc "$0/proc"'
        start = f'{mounts} && exec chroot --userspec={UNPRIVILEGED} "$0" /usr/bin/env -i "$@"'
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(  # noqa: S603 - built here
            [*spaces, "sh", "-c", start, str(self.root), *environment, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _read(self, reference: Plain) -> Plain:
        found: Plain = json.loads(self._blob(reference).read_text())
        return found

    def _blob(self, reference: Plain) -> Path:
        return self._blobs.joinpath(*reference["digest"].split(":"))


@pytest.fixture(scope="module")
def unpacked(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return the image."""
    return Image(image, tmp_path_factory.mktemp("image"))


def installed(image: Image) -> Iterator[importlib.metadata.Distribution]:
    """Yield the packages installed in the image."""
    (packages,) = image.root.glob("opt/kube-cpg/lib/python3*/site-packages")
    return iter(importlib.metadata.distributions(path=[str(packages)]))


COMMAND_LINE = {"kubectl-cpg", "kubectl_complete-cpg"}
"""Programs of a user's machine; the image lacks their packages."""


def test_versions_agree(unpacked: Image) -> None:
    """The project, the chart, the label of the image and each program in it have the same version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load(CHART.read_text())
    labels = unpacked.config["Labels"]
    assert (chart["appVersion"], labels["org.opencontainers.image.version"]) == (version, version)
    for program in PROGRAMS:
        assert unpacked.run(program, "--version").strip() == f"{program} {version}"


def test_every_program_starts_from_the_image(unpacked: Image) -> None:
    """No program needs a module that only a developer has."""
    (ours,) = (one for one in installed(unpacked) if one.name == "kube-cpg")
    programs = {entry.name for entry in ours.entry_points if entry.group == "console_scripts"}
    assert programs >= {*PROGRAMS, *COMMAND_LINE}
    for program in sorted(programs - COMMAND_LINE):
        assert unpacked.run(program, "--help").startswith("usage:"), program


def test_the_bill_of_materials_lists_what_is_installed(unpacked: Image) -> None:
    """It lists exactly the installed packages with version, licence and digest."""
    components = json.loads((unpacked.root / "usr/share/kube-cpg/sbom.json").read_text())["components"]
    ours = [one for one in components if one["purl"].startswith("pkg:pypi/")]
    listed = {(one["name"].lower().replace("_", "-"), one["version"]) for one in ours}
    assert listed == {(one.name.lower().replace("_", "-"), one.version) for one in installed(unpacked)}
    for one in ours:
        assert one["licenses"][0]["license"]["name"] not in {"", "unknown"}, one["name"]
        assert len(one["hashes"][0]["content"]) == 64


def test_the_bill_of_materials_lists_the_base(unpacked: Image) -> None:
    """It lists Python and each package of dpkg with its version."""
    components = json.loads((unpacked.root / "usr/share/kube-cpg/sbom.json").read_text())["components"]
    (python,) = (one for one in components if one["purl"].startswith("pkg:generic/python@"))
    assert unpacked.run("/opt/kube-cpg/bin/python3", "--version").strip() == f"Python {python['version']}"
    packages = (unpacked.root / "var/lib/dpkg/status").read_text().split("\n\n")
    found = [dict(re.findall(r"^(Package|Version): (.+)$", one, re.MULTILINE)) for one in packages if one.strip()]
    listed = {(one["name"], one["version"]) for one in components if one["purl"].startswith("pkg:deb/")}
    assert listed == {(one["Package"], one["Version"]) for one in found}
    assert len(listed) > 50


def test_the_image_is_small(unpacked: Image) -> None:
    """Both the pull and the unpacked size are limited; most of it is numpy and the base."""
    files = [path.lstat().st_size for path in (unpacked.root / "opt").rglob("*") if not path.is_symlink()]
    assert sum(files) < MAX_UNPACKED_MEGABYTES * 2**20
    assert unpacked.packed < MAX_COMPRESSED_MEGABYTES * 2**20


def test_the_image_has_the_oci_labels(unpacked: Image) -> None:
    """Registries show these labels."""
    labels = {name.rpartition(".")[2]: value for name, value in unpacked.config["Labels"].items()}
    assert labels["title"] == "kube-cpg"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["revision"]
    assert datetime.fromisoformat(labels["created"]).tzinfo is not None
    assert labels["name"].endswith("kube-cpg-base")


def test_the_user_of_the_image_cannot_write_to_it(unpacked: Image) -> None:
    """It is not root and owns nothing; our files belong to root and only root can change them."""
    assert unpacked.config["User"] == UNPRIVILEGED
    assert unpacked.run("id", "-u").strip() == UNPRIVILEGED.partition(":")[0]
    found = set()
    for path in unpacked.root.rglob("*"):
        status = path.lstat()
        if path.is_symlink() or str(path.relative_to(unpacked.root)).startswith("dev/"):
            continue
        if status.st_mode & 0o002 or 65532 in {status.st_uid, status.st_gid}:
            found.add(str(path.relative_to(unpacked.root)))
    assert found <= OPEN_TO_ALL
    for path in (unpacked.root / "opt").rglob("*"):
        assert path.is_symlink() or (path.stat().st_uid, path.stat().st_mode & 0o022) == (0, 0), path
