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
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    parser.add_argument("--target", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args(arguments)
    if given.target:
        fuzz(given.target, rest)
    names = given.only or target_names()
    measured, before = measured_code(), load_average()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        seconds = given.seconds / len(names)
        runs = [
            pool.submit(run, name, Path(folder) / name, seconds, seed=given.seed, keep=given.keep) for name in names
        ]
        found = {name: one.result() for name, one in zip(names, runs, strict=True)}
    broken = sorted(name for name, one in found.items() if one["broken"])
    totals = {"executions": sum(int(str(one["executions"])) for one in found.values()), "broken": broken}
    write_result("fuzz", {"seed": given.seed, "load_before": before, **totals, "targets": found}, measured=measured)
    return 1 if broken else 0


def target_names() -> list[str]:
    """Return the names of all targets, from a process of their own: here the code must not be imported yet."""
    command = [sys.executable, "-c", "from tests.fuzz.targets import TARGETS; print(*TARGETS)"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return found.stdout.split()


def environment() -> dict[str, str]:
    """Return the environment in which tests and benchmarks can be imported."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "bench", ROOT / "tools")))}


def run(name: str, folder: Path, seconds: float, *, seed: int, keep: bool) -> dict[str, object]:
    """Fuzz a target in another process; return its figures."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    limits = [*LIMITS, f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed}", f"-artifact_prefix={folder}/"]
    command = [sys.executable, __file__, "--target", name, *limits, str(corpus)]
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        code = subprocess.run(command, env=environment(), stdout=log, stderr=log, check=False).returncode  # noqa: S603 - our own
    text = (folder / "log").read_text("utf-8", "replace")
    broken = [path.read_bytes() for path in folder.glob("*-*") if path.is_file()]
    edges, executions = EDGES.findall(text)[-1:], EXECUTIONS.findall(text)
    figures: dict[str, object] = {
        "seconds": round(time.monotonic() - began, 1),
        "executions": int(executions[0]) if executions else 0,
        "edges": int(edges[0][0]) if edges else 0,
        "features": int(edges[0][1]) if edges else 0,
        "broken": [repr(one)[:300] for one in broken] or ([f"exit code {code}"] if code else []),
    }
    sys.stdout.write(f"{name}: {json.dumps(figures)}\n")
    if figures["broken"]:
        sys.stdout.write("\n".join(text.splitlines()[-40:]) + "\n")
    fresh = sorted((path.read_bytes() for path in corpus.iterdir()), key=len) if keep else []
    keep_inputs(name, broken, spread([one for one in fresh if len(one) <= MAX_KEPT_BYTES], random.Random(seed)))  # noqa: S311
    return figures


def spread(found: list[bytes], chance: random.Random) -> list[bytes]:
    """Return a few of the inputs."""
    return chance.sample(found, min(len(found), MAX_KEPT))


def keep_inputs(name: str, broken: list[bytes], fresh: list[bytes]) -> None:
    """Add inputs to the file of a target, one in a line as Python writes bytes."""
    file = KEPT / f"{name}.txt"
    lines = file.read_text("ascii").splitlines() if file.exists() else []
    room = MAX_KEPT - len(lines)
    added = [repr(one) for one in (*broken, *fresh[: max(room, 0)]) if repr(one) not in lines]
    if added:
        file.write_text("\n".join((*lines, *added)) + "\n", "ascii")


def fuzz(name: str, arguments: Sequence[str]) -> None:
    """Run a target under the fuzzer, which ends the process."""
    import atheris  # noqa: PLC0415 - it is there on some platforms alone

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz.inputs import kept, mutated  # noqa: PLC0415 - instrumented while it is imported
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415
    target = TARGETS[name]
    corpus = Path(arguments[-1])
    for number, data in enumerate((*target.seeds, *kept(name))):
        (corpus / f"seed-{number}").write_bytes(data)
    options = {"custom_mutator": mutated} if target.is_json else {}
    atheris.Setup([__file__, *arguments], target.check, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
