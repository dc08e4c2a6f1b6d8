"""An installation of our programs as in the image: with the packages of its lock only, in its environment.

A development environment has more packages, and some are imported where they exist: structlog imports rich, which takes
a sixth of the start.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "processes.lock"


def install() -> Path:
    """Return the folder of our programs, installed by the current lock, with the code of this checkout."""
    stamp = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / "build" / f"installed-{stamp}"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        install = ("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"))
        _uv("venv", "--quiet", "--python", sys.executable, str(folder))
        _uv(*install, "--require-hashes", "-r", str(LOCK))
        _uv(*install, "--no-deps", "--editable", str(ROOT))
        (folder / "done").touch()
    return folder / "bin"


def environment() -> dict[str, str]:
    """Return our environment with the image's settings: modules are compiled before they are imported."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OPENBLAS_NUM_THREADS": "1"}


def _uv(*arguments: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("uv")), *arguments], check=True)  # noqa: S603  # ours
