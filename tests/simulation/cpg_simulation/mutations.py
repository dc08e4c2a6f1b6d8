"""Plants bugs, one at a time, and plays nights until a rule finds each: ``python -m cpg_simulation.mutations``.

A bug is a patch in ``tests/simulation/mutations``, which begins with a sentence about it. It is planted in a copy of
the code, which comes first on the path of the nights. A bug that no night shows says what the nights or the rules lack.
A night that breaks the same rule without the bug proves nothing, so the next ones are played.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import result_files
from msgspec import Struct, to_builtins

ROOT = Path(__file__).parents[3]
PATCHES = ROOT / "tests/simulation/mutations"
PLANTED = ("api", "scheduler", "operator")


class Mutation(Struct, frozen=True):
    """A bug: the name of its patch, and what it is in a sentence."""

    name: str
    sentence: str

    @property
    def patch(self) -> Path:
        """The file of the patch."""
        return PATCHES / f"{self.name}.patch"

    def plant(self, folder: Path) -> None:
        """Apply the patch to a copy of the code in a folder."""
        for name in PLANTED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        # In a folder of a repository, git would skip what that does not have.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
        command = ["git", "apply", str(self.patch)]
        subprocess.run(command, cwd=folder, env=environment, check=True)  # noqa: S603 - a patch of this repository


class Hunt(Struct, frozen=True, kw_only=True):
    """How a bug was found, or that it was not."""

    name: str
    sentence: str
    nights: int
    cpu_seconds: float
    seed: int | None = None
    """The night that has shown it."""
    rules: tuple[str, ...] = ()
    """The rules that this night breaks with the bug alone, the first one first."""


def main() -> int:
    """Hunt for bugs; return 1 where one was not found."""
    given = _parser().parse_args()
    measured, hunts = result_files.measured_code(), list[Hunt]()
    for mutation in mutations():
        if given.names and mutation.name not in given.names:
            continue
        sys.stderr.write(f"{mutation.name}: {mutation.sentence}\n")
        hunts.append(hunt(mutation, given.seeds, given.jobs))
        sys.stdout.write(f"{_line(hunts[-1])}\n")
        sys.stdout.flush()
    missed = [found.name for found in hunts if found.seed is None]
    sys.stdout.write(f"{len(hunts) - len(missed)} of {len(hunts)} mutations found\n")
    if given.results is not None:
        figures = {"seeds": given.seeds, "found": len(hunts) - len(missed), "mutations": to_builtins(hunts)}
        result_files.write_result("mutations", figures, measured=measured, folder=given.results)
    return 1 if missed or not hunts else 0


def mutations() -> Iterator[Mutation]:
    """Yield all bugs, by name."""
    for path in sorted(PATCHES.glob("*.patch")):
        yield Mutation(path.stem, path.read_text("utf-8").partition("\n")[0].removeprefix("# "))


def hunt(mutation: Mutation, seeds: str, jobs: int) -> Hunt:
    """Play nights with a bug until one breaks a rule that it keeps without the bug."""
    first, _, last = seeds.partition("-")
    seed, nights, began = int(first), 0, _cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "code")
        code.mkdir()
        mutation.plant(code)
        while seed <= int(last or first):
            played, broken = _play(code, seed, int(last or first), jobs)
            nights += played
            if not broken:
                break
            seed, rules = min(broken.items())
            _, plain = _play(ROOT, seed, seed, jobs)
            new = [rule for rule in dict.fromkeys(rules) if rule not in plain.get(seed, ())]
            if new:
                return _hunt(mutation, nights, began, seed, new)
            seed += 1
    return _hunt(mutation, nights, began)


def _hunt(mutation: Mutation, nights: int, began: float, seed: int | None = None, rules: Sequence[str] = ()) -> Hunt:
    return Hunt(
        name=mutation.name,
        sentence=mutation.sentence,
        nights=nights,
        cpu_seconds=round(_cpu_seconds() - began, 1),
        seed=seed,
        rules=tuple(rules),
    )


def _play(code: Path, first: int, last: int, jobs: int) -> tuple[int, dict[int, list[str]]]:
    """Play nights with some code until one is broken; return how many, and the rules that it breaks, by its seed."""
    path = [*(code / name for name in PLANTED), ROOT / "tests/simulation"]
    with tempfile.NamedTemporaryFile() as results:
        command = [sys.executable, "-m", "cpg_simulation", "--seeds", f"{first}-{last}", "--jobs", str(jobs)]
        command += ["--until-broken", "--results", results.name]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - ourselves
        summary = json.loads(Path(results.name).read_bytes())
    return summary["nights"], {int(seed): rules for seed, rules in summary["broken"].items()}


def _cpu_seconds() -> float:
    """Return the CPU time of the nights so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _line(found: Hunt) -> str:
    outcome = f"seed {found.seed}: {'; '.join(found.rules)}" if found.seed is not None else "NOT FOUND"
    return f"{found.name:20} {found.nights:4} nights {found.cpu_seconds:6.1f} s of CPU  {outcome}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cpg_simulation.mutations", description="Find planted bugs.")
    parser.add_argument("names", nargs="*", help="the bugs to plant; all by default")
    parser.add_argument("--seeds", default="1-500", help="the nights to play, such as 1-500")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="nights that are played at once")
    parser.add_argument("--results", type=Path, help="the folder for a result file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
