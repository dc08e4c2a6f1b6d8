"""Building Go programs on demand, once, into the per-user cache.

The cache key of a program is a digest of its inputs: sources (the module's `go.mod` and `go.sum`, our own Go files),
flags, Go version and platform. So no program is rebuilt in place, checkouts with equal pins share programs, and a
changed pin gets a new folder. Go builds into a separate folder and the result is renamed, so every program in the cache
is complete. An interrupted build resumes, because Go caches every compiled package.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpg_lab import folders, locks, toolchain
from cpg_lab.errors import BuildError, DescriptionError
from cpg_lab.processes import Process
from cpg_lab.progress import LINK_WEIGHT, Display, Progress, duration
from cpg_lab.toolchain import Toolchain
from cpg_lab.versions import BY_NAME, Module, Program

FLAGS = ("-trimpath", "-buildvcs=false")
_POLL_SECONDS = 0.1
_IN_BUILD_CACHE = "available in build cache"
_DOWNLOAD = "go: downloading"


def ensure(names: Iterable[str], display: Display | None = None) -> dict[str, Path]:
    """Return the paths of the programs, and build those that are missing first."""
    display = display or Display()
    programs = [_program(name) for name in names]
    modules = list(dict.fromkeys(program.module for program in programs))
    compiler = toolchain.find(toolchain.needed_version(module.name for module in modules), display.say)
    places = {program.name: place(program, compiler) for program in programs}
    for module in modules:
        group = [program for program in programs if program.module == module]
        if _missing(group, places):
            _build_group(module, group, places, Builder(compiler, module, display))
    return places


def place(program: Program, compiler: Toolchain) -> Path:
    """Return the path of a program in the cache, whether or not it exists."""
    return folders.cache() / "programs" / f"{program.name}-{program.version}-{key(program, compiler)}" / program.name


def key(program: Program, compiler: Toolchain) -> str:
    """Return the digest of all inputs of a program."""
    folder = folders.module_folder(program.module.name)
    digest = hashlib.sha256()
    digest.update(json.dumps([program.package, linker_flags(program.module), FLAGS]).encode())
    digest.update(json.dumps([compiler.version, compiler.platform]).encode())
    for source in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


def linker_flags(module: Module) -> str:
    """Return the linker's flags: no debugging symbols, and the version."""
    return " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in module.stamps)])


def _program(name: str) -> Program:
    if name not in BY_NAME:
        raise DescriptionError(f"the lab has no program {name}; it has {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _missing(programs: Iterable[Program], places: dict[str, Path]) -> list[Program]:
    return [program for program in programs if not places[program.name].exists()]


def _build_group(module: Module, programs: Sequence[Program], places: dict[str, Path], builder: "Builder") -> None:
    """Build the missing programs of one module, unless another process built them while this one waited."""
    say = builder.display.say
    waiting = f"Another lab builds {module.name} right now; waiting for it."
    with locks.hold(folders.cache() / "locks" / module.name, on_wait=lambda: say(waiting)):
        missing = _missing(programs, places)
        if not missing:
            return
        part = folders.cache() / "building" / module.name
        shutil.rmtree(part, ignore_errors=True)  # left by a build that was killed: we hold the lock
        part.mkdir(parents=True)
        try:
            builder.build(missing, part)
            for program in missing:
                places[program.name].parent.mkdir(parents=True, exist_ok=True)
                (part / program.built_name).replace(places[program.name])
        finally:
            shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True)
class Builder:
    """Builds programs of one module with a compiler, and shows the progress."""

    compiler: Toolchain
    module: Module
    display: Display

    def build(self, programs: Sequence[Program], into: Path) -> None:
        """Build programs of the module into a folder."""
        began = time.monotonic()
        names = ", ".join(program.name for program in programs)
        self.display.say(f"Building {names} ({self.module.name}); this happens once.")
        packages = [program.package for program in programs]
        stale = self._packages_to_compile(packages, into)
        linking = LINK_WEIGHT * len(programs)
        self._run(
            ["build", "-v", "-o", f"{into}/", *FLAGS, "-ldflags", linker_flags(self.module), *packages],
            log=into / "build.log",
            title=f"Building {names}",
            progress=Progress(stale + linking, silent=linking),
            counted=lambda line: not line.startswith("go: "),
        )
        self.display.say(f"Built {names} in {duration(time.monotonic() - began)}.")

    def _packages_to_compile(self, packages: Sequence[str], into: Path) -> int:
        """Count the packages that Go has yet to compile; fetches the sources as a side effect."""
        listing = "{{if .Stale}}{{.ImportPath}} {{.StaleReason}}{{end}}"
        output = self._run(
            ["list", "-deps", *FLAGS, "-f", listing, *packages],
            log=into / "list.log",
            title=f"Fetching the sources of {self.module.name}",
            progress=Progress(self._modules_to_fetch()),
            counted=lambda line: line.startswith(_DOWNLOAD),
        )
        lines = (line for line in output.splitlines() if line and not line.startswith("go: "))
        return sum(_IN_BUILD_CACHE not in line for line in lines)

    def _modules_to_fetch(self) -> int:
        """Count the modules with pinned sources that are not in Go's cache."""
        pins = (folders.module_folder(self.module.name) / "go.sum").read_text().splitlines()
        versions = (line.split()[:2] for line in pins)
        return sum(
            not (self.compiler.module_cache / "cache" / "download" / _escape(path) / "@v" / f"{version}.zip").exists()
            for path, version in versions
            if not version.endswith("/go.mod")
        )

    def _run(
        self, arguments: Sequence[str], *, log: Path, title: str, progress: Progress, counted: Callable[[str], bool]
    ) -> str:
        """Run Go, and show how many of the expected lines it has printed."""
        self.display.title = title
        began = time.monotonic()
        go = Process(
            "go",
            [self.compiler.go, *arguments],
            log=log,
            env=toolchain.environment(),
            folder=folders.module_folder(self.module.name),
        )
        try:
            while not go.wait(_POLL_SECONDS):
                done = sum(counted(line) for line in go.output().splitlines())
                progress = progress.advanced(done, time.monotonic() - began)
                self.display.show(progress)
        finally:
            go.kill()
            self.display.clear()
        if go.exit_code:
            raise BuildError(f"go {arguments[0]} failed for {self.module.name}:\n{go.tail(25)}")
        return go.output()


def _escape(module_path: str) -> str:
    """Return a module path as Go's cache spells it, for file systems that ignore case."""
    return "".join(f"!{letter.lower()}" if letter.isupper() else letter for letter in module_path)
