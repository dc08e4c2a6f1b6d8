"""Building programs once, into the cache, only those that are asked for.

A program's place in the cache is a digest of everything that decides what it is: its sources (the module's
`go.mod` and `go.sum`, and Go files of ours), the flags, the Go version, the platform. So nothing is ever rebuilt in
place, two checkouts share what they agree on, and a changed pin simply leads elsewhere. Go builds beside the place and
the result is renamed into it, so what is there is whole. An interrupted build goes on where it was, for Go
keeps every compiled package in a cache of its own.
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
_POLL = 0.1
_COMPILED_BEFORE = "available in build cache"
_DOWNLOAD = "go: downloading"


def ensure(names: Iterable[str], display: Display | None = None) -> dict[str, Path]:
    """Give where the programs are, building first those that are not there yet."""
    display = display or Display()
    programs = [_named(name) for name in names]
    modules = list(dict.fromkeys(program.module for program in programs))
    compiler = toolchain.find(toolchain.needed_version(module.name for module in modules), display.say)
    places = {program.name: place(program, compiler) for program in programs}
    for module in modules:
        group = [program for program in programs if program.module == module]
        if _missing(group, places):
            _build_group(module, group, places, Builder(compiler, module, display))
    return places


def place(program: Program, compiler: Toolchain) -> Path:
    """Give the program's place in the cache, whether or not it is there."""
    return folders.cache() / "programs" / f"{program.name}-{program.version}-{key(program, compiler)}" / program.name


def key(program: Program, compiler: Toolchain) -> str:
    """Give the digest of all that decides what the program is."""
    folder = folders.module_folder(program.module.name)
    digest = hashlib.sha256()
    digest.update(json.dumps([program.package, linker_flags(program.module), FLAGS]).encode())
    digest.update(json.dumps([compiler.version, compiler.platform]).encode())
    for source in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


def linker_flags(module: Module) -> str:
    """Give what the linker is told: no debugging symbols, and which version this is."""
    return " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in module.stamps)])


def _named(name: str) -> Program:
    if name not in BY_NAME:
        raise DescriptionError(f"the lab has no program {name}; it has {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _missing(programs: Iterable[Program], places: dict[str, Path]) -> list[Program]:
    return [program for program in programs if not places[program.name].exists()]


def _build_group(module: Module, programs: Sequence[Program], places: dict[str, Path], builder: "Builder") -> None:
    """Build what is missing of one module, unless somebody else just did while we waited for him."""
    say = builder.display.say
    waiting = f"Another lab builds {module.name} right now; waiting for it."
    with locks.held(folders.cache() / "locks" / module.name, on_wait=lambda: say(waiting)):
        missing = _missing(programs, places)
        if not missing:
            return
        part = folders.cache() / "building" / module.name
        shutil.rmtree(part, ignore_errors=True)  # of a builder that was killed: we hold the lock
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
    """One module, the compiler for it, and where to show how far it is."""

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
        """Count the packages that Go has not compiled before; this fetches the sources on the way."""
        listing = "{{if .Stale}}{{.ImportPath}} {{.StaleReason}}{{end}}"
        output = self._run(
            ["list", "-deps", *FLAGS, "-f", listing, *packages],
            log=into / "list.log",
            title=f"Fetching the sources of {self.module.name}",
            progress=Progress(self._modules_to_fetch()),
            counted=lambda line: line.startswith(_DOWNLOAD),
        )
        lines = (line for line in output.splitlines() if line and not line.startswith("go: "))
        return sum(_COMPILED_BEFORE not in line for line in lines)

    def _modules_to_fetch(self) -> int:
        """Count the modules whose sources are pinned but not in Go's cache."""
        pins = (folders.module_folder(self.module.name) / "go.sum").read_text().splitlines()
        versions = (line.split()[:2] for line in pins)
        return sum(
            not (self.compiler.module_cache / "cache" / "download" / _escaped(path) / "@v" / f"{version}.zip").exists()
            for path, version in versions
            if not version.endswith("/go.mod")
        )

    def _run(
        self, arguments: Sequence[str], *, log: Path, title: str, progress: Progress, counted: Callable[[str], bool]
    ) -> str:
        """Run Go to its end, showing how many of the lines that it will print are there."""
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
            while not go.wait(_POLL):
                done = sum(counted(line) for line in go.output().splitlines())
                progress = progress.advanced(done, time.monotonic() - began)
                self.display.show(progress)
        finally:
            go.kill()
            self.display.clear()
        if go.exit_code:
            raise BuildError(f"go {arguments[0]} failed for {self.module.name}:\n{go.tail(25)}")
        return go.output()


def _escaped(module_path: str) -> str:
    """Write a module path as Go's cache does, for file systems that do not tell capitals."""
    return "".join(f"!{letter.lower()}" if letter.isupper() else letter for letter in module_path)
