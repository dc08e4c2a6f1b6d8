"""Building with a fake Go: what is built, when, where to, and which progress is shown."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cpg_lab import building, folders
from cpg_lab.errors import BuildError
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.progress import Display
from cpg_lab.toolchain import Toolchain
from cpg_lab.versions import BY_NAME

GO = """
import json, os, sys, time
from pathlib import Path
folder = Path(os.environ["FAKE_GO"])
verb, *rest = sys.argv[1:]
if verb == "env":
    print("go1.99.1", "linux", "amd64", folder / "modules", sep="\\n")
    sys.exit()
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([verb, *rest]) + "\\n")
packages = [part for part in rest if "/cmd/" in part or part.endswith("/v3")]
if verb == "list":
    print("go: downloading x.dev/y v1", file=sys.stderr)
    print("a.dev/a stale dependency", "", "b.dev/b not installed", sep="\\n")
    print(packages[0], "not installed but available in build cache")
elif (folder / "broken").exists():
    print("b.dev/b", "b.go:1: no such thing", sep="\\n", file=sys.stderr)
    sys.exit(1)
else:
    (folder / "pid").write_text(str(os.getpid()))
    for package in ("a.dev/a", "b.dev/b"):
        print(package, file=sys.stderr, flush=True)
        time.sleep(float(os.environ.get("FAKE_GO_SLEEP", "0.1")))
    for package in packages:
        name = package.split("/")[-2 if package.endswith("/v3") else -1]
        Path(rest[rest.index("-o") + 1], name).write_text(f"{package} of {os.getcwd()}")
"""


class FakeGo:
    """A fake Go that records its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def calls(self, verb: str) -> list[list[str]]:
        """Return the arguments of each call of one subcommand."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [call for call in map(json.loads, lines) if call[0] == verb]

    def identity(self) -> ProcessIdentity:
        """Wait until it builds, and return its identity."""
        deadline = time.monotonic() + 20
        while True:
            try:
                identity = ProcessIdentity.of(int((self.folder / "pid").read_text()))
            except (FileNotFoundError, ValueError):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                assert identity is not None
                return identity

    def break_builds(self) -> None:
        """Let builds fail from now on."""
        (self.folder / "broken").touch()

    def repair_builds(self) -> None:
        """Let builds succeed again."""
        (self.folder / "broken").unlink()


@pytest.fixture
def go(tmp_path: Path, cache: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """Put a fake Go on PATH."""
    assert not cache.exists()
    path = program("go", GO)
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("FAKE_GO", str(tmp_path))
    return FakeGo(tmp_path)


@pytest.fixture
def display() -> Display:
    """Return a display that writes to a string."""
    return Display(stream=io.StringIO())


def shown(display: Display) -> str:
    """Return the text that was shown."""
    assert isinstance(display.stream, io.StringIO)
    return display.stream.getvalue()


def test_a_missing_program_is_built_once(go: FakeGo, display: Display) -> None:
    """The second call finds it in the cache; the linker gets the version."""
    first = building.ensure(["kube-scheduler"], display)
    assert building.ensure(["kube-scheduler"], display) == first
    (call,) = go.calls("build")
    assert "k8s.io/component-base/version.gitVersion=v1.37.1" in call[call.index("-ldflags") + 1]
    assert "-trimpath" in call
    assert first["kube-scheduler"].read_text().startswith("k8s.io/kubernetes/cmd/kube-scheduler")


def test_programs_of_one_module_are_built_together(go: FakeGo, display: Display) -> None:
    """One run of Go per module builds the requested programs that are missing."""
    building.ensure(["kubectl"], display)
    places = building.ensure(["etcd", "kubectl", "kube-scheduler", "kwok"], display)
    kubernetes, kwok = go.calls("build")[1:]
    assert kubernetes[-2:] == ["go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-scheduler"]
    assert kwok[-1] == "sigs.k8s.io/kwok/cmd/kwok"
    assert all(path.is_file() for path in places.values())
    assert places["etcd"].name == "etcd"


def test_a_failed_build_leaves_nothing(go: FakeGo, display: Display, cache: Path) -> None:
    """The error has the end of Go's output, the cache stays empty, and the next call builds."""
    go.break_builds()
    with pytest.raises(BuildError, match=r"(?s)go build failed for kwok:.*b\.go:1: no such thing"):
        building.ensure(["kwok"], display)
    assert not (cache / "programs").exists()
    assert list((cache / "building").iterdir()) == []
    go.repair_builds()
    assert building.ensure(["kwok"], display)["kwok"].is_file()


def test_leftovers_of_a_killed_build_are_removed(go: FakeGo, display: Display, cache: Path) -> None:
    """A partial build is never used."""
    left = cache / "building" / "kwok" / "kwok"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    assert "half" not in building.ensure(["kwok"], display)["kwok"].read_text()
    assert len(go.calls("build")) == 1


def test_two_concurrent_builds_build_once(go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process builds, the other shows that it waits, and both get the program."""
    monkeypatch.setenv("FAKE_GO_SLEEP", "0.5")
    command = [sys.executable, "-m", "cpg_lab", "build", "kwok"]
    builders = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603  # our own
        for _ in range(2)
    ]
    outputs = [builder.communicate(timeout=60) for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    assert outputs[0][0] == outputs[1][0]
    assert len(go.calls("build")) == 1
    waited = [errors for _, errors in outputs if "Another lab builds kwok right now; waiting for it." in errors]
    assert len(waited) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_an_interrupted_build_can_be_repeated(
    go: FakeGo, cache: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and kill -9 also end Go and leave no program; the next call builds it."""
    monkeypatch.setenv("FAKE_GO_SLEEP", "30")
    command = [sys.executable, "-m", "cpg_lab", "build", "kwok"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as builder:  # noqa: S603  # our own
        compiler = go.identity()
        builder.send_signal(number)
        builder.wait(20)
    deadline = time.monotonic() + 10
    while compiler.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not (cache / "programs").exists()
    monkeypatch.setenv("FAKE_GO_SLEEP", "0")
    assert building.ensure(["kwok"], Display(stream=io.StringIO()))["kwok"].is_file()


def test_progress_is_shown(go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The display shows a percentage; packages that Go compiled before do not count, linking does."""
    monkeypatch.setenv("FAKE_GO_SLEEP", "0.3")
    now = iter(range(0, 100_000, 20))
    display = Display(stream=io.StringIO(), clock=lambda: float(next(now)))
    building.ensure(["kwok"], display)
    text = shown(display)
    assert "Building kwok (kwok); this happens once.\n" in text
    assert "Building kwok: 2%" in text  # one of two packages, and 40 for the linking
    assert "Building kwok: 5%, linking" in text
    assert "Built kwok in 1 s." in text
    assert go.calls("list")


def test_the_cache_key_depends_on_all_inputs(go: FakeGo, cache: Path, tmp_path: Path) -> None:
    """Compiler, platform, program and pins change the folder; the path of the compiler does not."""
    program = BY_NAME["kwok"]
    compiler = Toolchain(tmp_path / "go", "go1.26.8", "linux/amd64", tmp_path)
    key = building.key(program, compiler)
    assert building.key(program, replace(compiler, go=Path("/elsewhere"), module_cache=Path("/x"))) == key
    others = [
        building.key(program, replace(compiler, version="go1.26.9")),
        building.key(program, replace(compiler, platform="linux/arm64")),
        building.key(replace(program, package="x.dev/cmd/kwok"), compiler),
        building.key(replace(program, module=replace(program.module, stamps=(("a", "b"),))), compiler),
        building.key(BY_NAME["helm"], compiler),
    ]
    assert len({key, *others}) == len(others) + 1
    assert building.place(program, compiler).is_relative_to(cache)
    assert go.calls("build") == []


def test_changed_sources_change_the_folder(go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new line in go.sum, in go.mod or in a source of ours."""
    compiler = Toolchain(tmp_path / "go", "go1.26.8", "linux/amd64", tmp_path)
    module = tmp_path / "module"
    module.mkdir()
    monkeypatch.setattr(folders, "module_folder", lambda _: module)
    keys = set()
    for mod, pins, ours in [("a", "b", "c"), ("a", "c", "c"), ("d", "b", "c"), ("a", "b", "d")]:
        (module / "go.mod").write_text(mod)
        (module / "go.sum").write_text(pins)
        (module / "main.go").write_text(ours)
        keys.add(building.key(BY_NAME["kwok"], compiler))
    assert len(keys) == 4
    assert go.calls("build") == []


def test_modules_in_the_cache_of_go_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only sources that are pinned and missing are counted; capitals are spelled as Go does."""
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.sum").write_text(
        "x.dev/Big v1.0.0 h1:abc=\nx.dev/Big v1.0.0/go.mod h1:abc=\nx.dev/other v1.0.0 h1:abc=\n"
    )
    there = tmp_path / "cache" / "download" / "x.dev" / "!big" / "@v" / "v1.0.0.zip"
    there.parent.mkdir(parents=True)
    there.touch()
    monkeypatch.setattr(folders, "module_folder", lambda _: module)
    compiler = Toolchain(tmp_path / "go", "go1.26.8", "linux/amd64", tmp_path)
    assert building.Builder(compiler, BY_NAME["kwok"].module, Display())._modules_to_fetch() == 1
