"""Small real programs and an empty cache, so that no test touches the user's cache."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpg_lab.processes import Process

Runner = Callable[..., Process]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty per-user cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("KUBE_CPG_CACHE", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    """Run Python code as a process of the lab; it is killed at the end of the test."""
    started: list[Process] = []

    def start(code: str, *arguments: str, name: str = "program") -> Process:
        log = tmp_path / f"{name}.log"
        process = Process(name, [sys.executable, "-u", "-c", code, *arguments], log=log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write an executable Python script."""

    def write(name: str, code: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
        return path

    return write
