"""Builds the image: wheels by the lock, a bill of materials, a base, and then what the Dockerfile says.

Everything comes out in `build/image/`, which is also the whole of the build's context. The engine is buildah, podman
or docker, whichever is there. Where no base image can be pulled, `--base stand-in` makes one from Debian's packages.
What is up to date is not built again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTEXT = ROOT / "build" / "image"
STAND_IN = "localhost/kube-cpg-base"
PACKAGES = "python3-minimal,python3-venv,ca-certificates"
ENGINES = ("buildah", "podman", "docker")


class ImageError(Exception):
    """The image cannot be built, and why."""


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
        step("Wheels by requirements/runtime.lock", lambda: wheels(given.python))
        step("Bill of materials", bill_of_materials)
        if given.base == "stand-in":
            step(f"Stand-in base {STAND_IN}", lambda: stand_in(engine))
        step("Image", lambda: image(engine, STAND_IN if given.base == "stand-in" else given.base, given.tag))
        if given.archive:
            step(f"Archive {given.archive}", lambda: archive(engine, given.tag, given.archive))
            _stamp(given).write_text(digest, "utf-8")
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def is_current(digest: str, given: argparse.Namespace) -> bool:
    """Tell whether the archive is there and was built from just these sources."""
    if not given.archive or not Path(given.archive).exists():
        return False
    return _stamp(given).exists() and _stamp(given).read_text("utf-8") == digest


def wheels(python: str) -> None:
    """Fetch the wheels of all dependencies by their hashes, and build our own."""
    folder = CONTEXT / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    foreign = [] if python == here else ["--python-version", python]
    lock = str(ROOT / "requirements" / "runtime.lock")
    run(
        [
            *pip,
            "download",
            *foreign,
            "--only-binary=:all:",
            "--require-hashes",
            "--no-deps",
            "-d",
            str(folder),
            "-r",
            lock,
        ]
    )
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)])
    run([*pip, "download", "--no-deps", "-d", str(folder), "pip"])


def bill_of_materials() -> None:
    """Write what is in the image as CycloneDX, from the wheels themselves."""
    parts = [
        component(wheel) for wheel in sorted((CONTEXT / "wheels").glob("*.whl")) if not wheel.name.startswith("pip-")
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "kube-cpg", "version": version()}},
        "components": parts,
    }
    (CONTEXT / "sbom.json").write_text(json.dumps(bill, indent=2) + "\n", "utf-8")


def component(wheel: Path) -> dict[str, object]:
    """Return a wheel as a component: name, version, licence, hash."""
    with zipfile.ZipFile(wheel) as packed:
        place = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(packed.read(place).decode("utf-8"), headersonly=True)
    name, number = str(told["Name"]), str(told["Version"])
    licence = told["License-Expression"] or str(told["License"] or "unknown").partition("\n")[0]
    return {
        "type": "library",
        "name": name,
        "version": number,
        "purl": f"pkg:pypi/{name.lower()}@{number}",
        "licenses": [{"license": {"name": licence}}],
        "hashes": [{"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}],
    }


def stand_in(engine: str) -> None:
    """Make a base image of Debian's packages, for where nothing can be pulled."""
    if engine != "buildah":
        raise ImageError("a stand-in base is made with buildah only; name a base that can be pulled: --base IMAGE")
    if subprocess.run(["buildah", *_storage(), "inspect", STAND_IN], capture_output=True, check=False).returncode == 0:  # noqa: S603, S607 - our own words, a program of the system's
        return
    folder = ROOT / "build" / "base"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder / "base.tar")])
    except FileNotFoundError as error:
        raise ImageError("a stand-in base needs mmdebstrap; or name a base that can be pulled: --base IMAGE") from error
    (folder / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n", "utf-8")
    run([*_build(engine), "-t", STAND_IN, str(folder)])
    (folder / "base.tar").unlink()


def image(engine: str, base: str, tag: str) -> None:
    """Build the image itself."""
    shutil.copy(ROOT / "docker" / "Dockerfile", CONTEXT / "Dockerfile")
    arguments = {"BASE": base, "VERSION": version(), "REVISION": revision()}
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    run([*_build(engine), *given, "-t", tag, str(CONTEXT)])


def archive(engine: str, tag: str, place: str) -> None:
    """Write the image to a file that a container runtime can import."""
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).unlink(missing_ok=True)
    if engine == "buildah":
        run(["buildah", *_storage(), "push", tag, f"oci-archive:{place}:{tag}"])
    else:
        run([engine, "save", "-o", place, tag])


def version() -> str:
    """Return the project's version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def revision() -> str:
    """Return the commit that is built, or that it is none."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607 - git of the system
    return told.stdout.strip() or "unknown"


def step(title: str, act: Callable[[], None]) -> None:
    """Do one part of the work, and say how long it took."""
    print(f"  {title} ...", end=" ", flush=True)
    began = time.monotonic()
    try:
        act()
    except BaseException:
        print("failed")
        raise
    print(f"{time.monotonic() - began:.0f} s")


def run(command: Sequence[str]) -> None:
    """Run a command; when it fails, say how."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        raise ImageError(f"{' '.join(command[:3])} ... failed:\n{(done.stdout + done.stderr)[-2000:]}")


def _digest(given: argparse.Namespace) -> str:
    """Return a digest of everything that the image is made of."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [path for package in packages["packages"] for path in (ROOT / package).rglob("*") if path.is_file()]
    files = [path for path in sources if "__pycache__" not in path.parts]
    files += [ROOT / "pyproject.toml", ROOT / "requirements" / "runtime.lock", ROOT / "docker" / "Dockerfile"]
    digest = sha256(repr((given.base, given.python, given.tag)).encode())
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _stamp(given: argparse.Namespace) -> Path:
    return Path(f"{given.archive}.sources")


def _build(engine: str) -> list[str]:
    """Return how the engine builds; buildah does so without any privilege of containers."""
    if engine == "buildah":
        return ["buildah", *_storage(), "bud", "--isolation", "chroot"]
    return [engine, "build"]


def _storage() -> list[str]:
    return ["--storage-driver", os.environ.get("STORAGE_DRIVER", "vfs")]


def _engine(asked: str | None) -> str:
    found = next((name for name in ([asked] if asked else ENGINES) if shutil.which(name)), None)
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
    parser.add_argument("--engine", choices=ENGINES, help="who builds (default: the first that is there)")
    parser.add_argument("--archive", help="write the image to this file as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
