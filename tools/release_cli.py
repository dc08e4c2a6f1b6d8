"""Build the archives of `kubectl cpg`, one for each platform, and the manifest by which Krew installs them.

An archive has the wheels of the lock, as they are installed: for each version of Python those that are compiled for it,
and once those that are the same for all. Nothing is compiled here, so any machine builds for all platforms. An archive
needs Python on the machine where it is used, and on Linux the C library of GNU.
"""

import argparse
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import yaml

from release.krew import archive_name, krew_manifest

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "runtime.lock"
LAUNCHER = ROOT / "tools" / "release" / "kubectl-cpg"
PROGRAMS = ("kubectl-cpg", "kubectl_complete-cpg")
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""The platforms of Krew, by the names of uv."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OF_THE_OPERATOR = (
    "aiohappyeyeballs",
    "aiohttp",
    "aiohttp-retry",
    "aiosignal",
    "cffi",
    "cryptography",
    "frozenlist",
    "iso8601",
    "jsonpatch",
    "jsonpointer",
    "kopf",
    "multidict",
    "propcache",
    "pycparser",
    "pykube-ng",
    "python-json-logger",
    "yarl",
)
"""Packages that no command imports."""
UNUSED = ("tests", "bin", "cpg_lab", "__pycache__")
"""Folders that no command reads."""
URL = "https://YOUR-HOST/kube-cpg"


def main() -> int:
    """Build what the command line asks for; return the exit code."""
    given = _arguments()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    given.out.mkdir(parents=True, exist_ok=True)
    sums: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        wheel = _wheel(Path(folder))
        for platform in given.platform:
            tree = Path(folder) / platform
            _assemble(tree, wheel, platform, given.python)
            archive = given.out / archive_name(version, platform)
            pack(tree, archive)
            shutil.rmtree(tree)
            sums[platform] = hashlib.sha256(archive.read_bytes()).hexdigest()
            print(f"{archive} {archive.stat().st_size / 2**20:.0f} MiB")
    manifest = given.out / "cpg.yaml"
    manifest.write_text(yaml.safe_dump(krew_manifest(version, given.url, sums), sort_keys=False), "utf-8")
    print(manifest)
    return 0


def _wheel(folder: Path) -> Path:
    """Build the wheel of the project."""
    _uv("build", "--wheel", "--no-build-isolation", "--quiet", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _assemble(tree: Path, wheel: Path, platform: str, pythons: Sequence[str]) -> None:
    """Write the contents of an archive."""
    lock = wheel.with_name("cli.lock")
    lock.write_text(without_packages(LOCK.read_text("utf-8"), OF_THE_OPERATOR), "utf-8")
    installed = {f"cp{one.replace('.', '')}": one for one in pythons}
    for name, python in installed.items():
        target = tree / "lib" / name
        _install(target, platform, python, "--require-hashes", "-r", lock)
        _install(target, platform, python, wheel)
        _prune(target)
    if len(installed) > 1:
        move_common([tree / "lib" / name for name in installed], tree / "lib" / "common")
    for program in PROGRAMS:
        shutil.copy(LAUNCHER, tree / program)
        (tree / program).chmod(0o755)
    shutil.copy(ROOT / "LICENSE", tree)


def without_packages(lock: str, names: Sequence[str]) -> str:
    """Return a lock without some packages; an entry is a line with a version, and the lines with its hashes."""
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if entry.partition("==")[0] not in names)


def _install(target: Path, platform: str, python: str, *what: str | Path) -> None:
    where = ("--target", target, "--python-platform", PLATFORMS[platform], "--python-version", python)
    _uv("pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy", *where, *what)


def _prune(target: Path) -> None:
    """Remove what no command uses."""
    for folder in [one for one in target.rglob("*") if one.name in UNUSED and one.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)
    (target / ".lock").unlink(missing_ok=True)


def move_common(folders: Sequence[Path], common: Path) -> None:
    """Move each package that is the same in all folders into one; a package is never divided."""
    common.mkdir(parents=True)
    names = set.intersection(*({one.name for one in folder.iterdir()} for folder in folders))
    for name in sorted(names):
        if len({_checksum(folder / name) for folder in folders}) == 1:
            shutil.move(folders[0] / name, common / name)
            for folder in folders[1:]:
                _remove(folder / name)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _checksum(path: Path) -> str:
    """Return the checksum of the names and contents of a file or folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(f"{file.relative_to(path.parent)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def pack(tree: Path, archive: Path) -> None:
    """Pack a folder; the same contents give the same archive."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as packed,
    ):
        for file in sorted(tree.rglob("*")):
            if file.is_file():
                entry = packed.gettarinfo(file, str(file.relative_to(tree)))
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = ""
                entry.mode = 0o755 if file.parent == tree and file.name in PROGRAMS else 0o644
                with file.open("rb") as contents:
                    packed.addfile(entry, contents)


def _uv(*arguments: str | Path) -> None:
    subprocess.run([Path(sys.executable).with_name("uv"), *arguments], cwd=ROOT, check=True)  # noqa: S603 - our own tool


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", nargs="+", choices=PLATFORMS, default=list(PLATFORMS), help="default: all")
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=list(PYTHONS), help="default: all")
    parser.add_argument(
        "--url", default=URL, help="where the archives will be, for the manifest (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write (default: dist)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
