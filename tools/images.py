"""Build the image: wheels by the locks, a base image, and the Dockerfile.

The folder `build/image/` is the context of the build. The engine is buildah, podman or docker, the first that is
installed. Where no base image can be pulled, `--base stand-in` makes one from Debian packages. An archive that is up to
date is not built again.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).parents[1]
CONTEXT = ROOT / "build" / "image"
GIVEN = (ROOT / "docker" / "Dockerfile", ROOT / "tools" / "sbom.py")
LOCKS = tuple(ROOT / "requirements" / f"{name}.lock" for name in ("processes", "image"))
STAND_IN = "localhost/kube-cpg-base"
PACKAGES = "python3-minimal,python3-venv,ca-certificates"
ENGINES = ("buildah", "podman", "docker")
_ENTRY = re.compile(r"(?P<what>[^\s#]+==\S+)(?: ; (?P<when>.+))? \\$")


class ImageError(Exception):
    """The image cannot be built."""


def main() -> int:
    """Build the image; return the exit code."""
    given = _arguments()
    try:
        engine = _engine(given.engine)
        digest = _digest(given)
        if is_current(digest, given):
            print(f"{given.archive} is up to date.")
            return 0
        print(f"Image {given.tag}, built by {engine}.")
        step("Wheels by their locks", lambda: fetch_wheels(given.python))
        if given.base == "stand-in":
            step(f"Stand-in base {STAND_IN}", lambda: make_stand_in_base(engine))
        step("Image", lambda: build_image(engine, given))
        if given.archive:
            step(f"Archive {given.archive}", lambda: write_archive(engine, given.tag, given.archive))
            _stamp(given).write_text(digest, "utf-8")
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def is_current(digest: str, given: argparse.Namespace) -> bool:
    """Return whether the archive exists and was built from these sources."""
    if not given.archive or not Path(given.archive).exists():
        return False
    return _stamp(given).exists() and _stamp(given).read_text("utf-8") == digest


def fetch_wheels(python: str) -> None:
    """Fetch the wheels of all dependencies by their hashes, and build our own."""
    folder = CONTEXT / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = CONTEXT / "wheels.txt"
    wanted.write_text("".join(select_entries(lock.read_text("utf-8"), python) for lock in LOCKS), "utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    exact = ["--python-version", python, "--only-binary=:all:", "--require-hashes", "--no-deps"]
    run([*pip, "download", *exact, "-d", str(folder), "-r", str(wanted)])
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)])


def select_entries(lock: str, python: str) -> str:
    """Return the entries of a lock for a version of Python, without markers: pip would evaluate them for its own."""
    there = {"python_version": python, "python_full_version": f"{python}.99"}
    lines, is_ours = [], True
    for line in lock.splitlines(keepends=True):
        entry = _ENTRY.match(line)
        if entry is not None:
            is_ours = not entry["when"] or Marker(entry["when"]).evaluate(there)
        if is_ours:
            lines.append(line if entry is None else f"{entry['what']} \\\n")
    return "".join(lines)


def make_stand_in_base(engine: str) -> None:
    """Make a base image from Debian packages, where no image can be pulled."""
    if engine != "buildah":
        raise ImageError("a stand-in base is made with buildah only; name a base that can be pulled: --base IMAGE")
    inspect = ["buildah", *_storage_options(), "inspect", STAND_IN]
    if subprocess.run(inspect, capture_output=True, check=False).returncode == 0:  # noqa: S603 - our own arguments, a program of the system
        return
    folder = ROOT / "build" / "base"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder / "base.tar")])
    except FileNotFoundError as error:
        raise ImageError("a stand-in base needs mmdebstrap; or name a base that can be pulled: --base IMAGE") from error
    (folder / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n", "utf-8")
    run([*_build_command(engine), "-t", STAND_IN, str(folder)])
    (folder / "base.tar").unlink()


def build_image(engine: str, given: argparse.Namespace) -> None:
    """Build the image."""
    base = STAND_IN if given.base == "stand-in" else given.base
    for file in GIVEN:
        shutil.copy(file, CONTEXT)
    arguments = {"BASE": base, "VERSION": version(), "REVISION": revision(), "CREATED": creation_time()}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    words += ["--label", f"org.opencontainers.image.source={given.source}"] if given.source else []
    run([*_build_command(engine), *words, "-t", given.tag, str(CONTEXT)])


def write_archive(engine: str, tag: str, place: str) -> None:
    """Write the image to an archive that a container runtime can import."""
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).unlink(missing_ok=True)
    if engine == "buildah":
        run(["buildah", *_storage_options(), "push", tag, f"oci-archive:{place}:{tag}"])
    else:
        run([engine, "save", "-o", place, tag])


def version() -> str:
    """Return the project's version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def revision() -> str:
    """Return the commit that is built, or `unknown`."""
    return _git("rev-parse", "HEAD") or "unknown"


def creation_time() -> str:
    """Return the time of creation: SOURCE_DATE_EPOCH, or the time of the commit, so that builds are reproducible."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or 0)
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607 - git of the system
    return done.stdout.strip()


def step(title: str, act: Callable[[], None]) -> None:
    """Run one step, and print how long it took."""
    print(f"  {title} ...", end=" ", flush=True)
    began = time.monotonic()
    try:
        act()
    except BaseException:
        print("failed")
        raise
    print(f"{time.monotonic() - began:.0f} s")


def run(command: Sequence[str]) -> None:
    """Run a command; raise with its output when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        raise ImageError(f"{' '.join(command[:3])} ... failed:\n{(done.stdout + done.stderr)[-2000:]}")


def _digest(given: argparse.Namespace) -> str:
    """Return a digest of all inputs of the image."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [path for package in packages["packages"] for path in (ROOT / package).rglob("*") if path.is_file()]
    files = [path for path in sources if "__pycache__" not in path.parts]
    files += [ROOT / "pyproject.toml", *LOCKS, *GIVEN]
    digest = sha256(repr((given.base, given.python, given.tag, given.source)).encode())
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _stamp(given: argparse.Namespace) -> Path:
    return Path(f"{given.archive}.sources")


def _build_command(engine: str) -> list[str]:
    """Return the build command of the engine; buildah runs without privileges for containers."""
    if engine == "buildah":
        return ["buildah", *_storage_options(), "bud", "--isolation", "chroot"]
    return [engine, "build"]


def _storage_options() -> list[str]:
    return ["--storage-driver", os.environ.get("STORAGE_DRIVER", "vfs")]


def _engine(requested: str | None) -> str:
    found = next((name for name in ([requested] if requested else ENGINES) if shutil.which(name)), None)
    if found is None:
        raise ImageError(f"none of {', '.join(ENGINES)} is installed")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the image of kube-cpg.")
    parser.add_argument("--base", default="python:3.11-slim", help="base image, or stand-in (default: %(default)s)")
    parser.add_argument("--python", default="3.11", help="the base's version of Python (default: %(default)s)")
    parser.add_argument(
        "--tag", default=f"localhost/kube-cpg:{version()}", help="name of the image (default: %(default)s)"
    )
    parser.add_argument("--source", help="URL of the sources, for a label")
    parser.add_argument("--engine", choices=ENGINES, help="the engine (default: the first that is installed)")
    parser.add_argument("--archive", help="write the image to this file as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
