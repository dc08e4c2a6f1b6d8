"""Fuzzing that follows coverage: each target of ``tests/fuzz`` for its share of the time. Run by ``make fuzz``.

Every target runs in a process of its own, from its seeds and from the inputs that are kept in
``tests/fuzz/kept``. An input that breaks a property ends its target, is kept there, and fails the run: so it is a
regression test already. ``--keep`` also keeps a few inputs that reach code which no kept one has reached.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from result_files import load_average, measured_code, write_result

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "fuzz" / "kept"
INSTRUMENTED = (
    *("cpg_api", "cpg_client", "cpg_engine.cel"),
    *("cpg_scheduler.cache.projections", "cpg_scheduler.settings", "cpg_operator.settings"),
)
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1", "-verbosity=1")
MAX_KEPT, MAX_KEPT_BYTES = 30, 1024
"""Inputs that are kept of a target, and their size: the unit tests replay them in seconds."""
EDGES = re.compile(r"cov: (\d+) ft: (\d+)")
EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--only", nargs="*", default=[], help="names of targets")
    parser.add_argument("--keep", action="store_true", help="keep inputs that reach further code")
    given = parser.parse_args(arguments)
    measured, before = measured_code(), load_average()
    known = import_targets()
    names = given.only or known
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for batch in (names[start : start + given.jobs] for start in range(0, len(names), given.jobs)):
            runs = [Run(name, Path(folder) / name, given.seconds / len(names), given.seed) for name in batch]
            found |= {run.name: run.end(keep=given.keep) for run in runs}
    broken = sorted(name for name, one in found.items() if one["broken"])
    totals = {"executions": sum(int(str(one["executions"])) for one in found.values()), "broken": broken}
    write_result("fuzz", {"seed": given.seed, "load_before": before, **totals, "targets": found}, measured=measured)
    return 1 if broken else 0


def import_targets() -> list[str]:
    """Import the targets, with the code instrumented; return their names. The processes are forked afterwards."""
    import atheris  # noqa: PLC0415 - it is there on some platforms alone

    sys.path.append(str(ROOT))
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - instrumented while it is imported
    return list(TARGETS)


class Run:
    """A target under the fuzzer, in a process of its own."""

    def __init__(self, name: str, folder: Path, seconds: float, seed: int) -> None:
        """Start it."""
        self.name, self._folder, self._seed = name, folder, seed
        self._began = time.monotonic()
        (folder / "corpus").mkdir(parents=True)
        options = [*LIMITS, f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed}", f"-artifact_prefix={folder}/"]
        self._process: BaseProcess = get_context("fork").Process(target=fuzz, args=(name, folder, options))
        self._process.start()

    def end(self, *, keep: bool) -> dict[str, object]:
        """Wait for the end, keep inputs, and return the figures."""
        self._process.join()
        text = (self._folder / "log").read_text("utf-8", "replace")
        broken = [path.read_bytes() for path in self._folder.glob("*-*")]
        edges, executions = EDGES.findall(text)[-1:], EXECUTIONS.findall(text)
        code = self._process.exitcode
        figures: dict[str, object] = {
            "seconds": round(time.monotonic() - self._began, 1),
            "executions": int(executions[0]) if executions else 0,
            "edges": int(edges[0][0]) if edges else 0,
            "features": int(edges[0][1]) if edges else 0,
            "broken": [repr(one)[:300] for one in broken] or ([f"exit code {code}"] if code else []),
        }
        print(f"{self.name}: {json.dumps(figures)}", flush=True)
        if figures["broken"]:
            print(*text.splitlines()[-40:], sep="\n")
        fresh = [path.read_bytes() for path in sorted((self._folder / "corpus").iterdir())] if keep else []
        small = [one for one in fresh if len(one) <= MAX_KEPT_BYTES]
        chance = random.Random(self._seed)  # noqa: S311 - no secret
        keep_inputs(self.name, broken, chance.sample(small, min(len(small), MAX_KEPT)))
        return figures


def keep_inputs(name: str, broken: list[bytes], fresh: list[bytes]) -> None:
    """Add inputs to the file of a target, one in a line as Python writes bytes."""
    file = KEPT / f"{name}.txt"
    lines = file.read_text("ascii").splitlines() if file.exists() else []
    room = MAX_KEPT - len(lines)
    added = [repr(one) for one in (*broken, *fresh[: max(room, 0)]) if repr(one) not in lines]
    if added:
        file.write_text("\n".join((*lines, *added)) + "\n", "ascii")


def fuzz(name: str, folder: Path, options: Sequence[str]) -> None:
    """Run a target under the fuzzer, which ends the process; the output goes to a file."""
    import atheris  # noqa: PLC0415 - as above
    from tests.fuzz.inputs import kept, mutated  # noqa: PLC0415 - the tests can be imported by now
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    with (folder / "log").open("wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    target = TARGETS[name]
    for number, data in enumerate((*target.seeds, *kept(name))):
        (folder / "corpus" / f"seed-{number}").write_bytes(data)
    more = {"custom_mutator": mutated} if target.is_json else {}
    atheris.Setup([__file__, *options, str(folder / "corpus")], target.check, **more)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
