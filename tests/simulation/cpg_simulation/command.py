"""The command line of the simulation."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from rich.progress import Progress

from cpg_simulation.nights.generator import generate
from cpg_simulation.nights.plan import Night
from cpg_simulation.outcome import Outcome
from cpg_simulation.play import play
from cpg_simulation.runner import play_all
from cpg_simulation.shrinking import shrink
from cpg_simulation.story import beginning, plan_lines

SHOWN = 3
"""The broken promises of a night that are shown; the first one often causes the others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play nights; return 1 where one breaks a promise."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        nights = [msgspec.json.decode(path.read_bytes(), type=Night) for path in given.nights]
    except (OSError, msgspec.DecodeError) as error:
        parser.error(str(error))
    nights += [generate(seed) for seed in given.seeds or ()]
    if not nights:
        parser.error("no nights: give --seeds or --nights")
    if given.story or given.shrink:
        return max(_tell(night, given) for night in nights)
    began = time.monotonic()
    outcomes = []
    for outcome in _played(nights, given.jobs):
        outcomes.append(outcome)
        for one in outcome.broken[:SHOWN]:
            sys.stdout.write(f"seed {outcome.seed}, {one.time:.1f} s: {one.rule}: {one.sentence}\n")
        sys.stdout.flush()
        if outcome.broken and given.until_broken:
            break
    if given.digests:
        sys.stdout.writelines(f"{one.seed} {one.digest}\n" for one in sorted(outcomes, key=lambda one: one.seed))
    _report(outcomes, time.monotonic() - began, given.results)
    return int(any(outcome.broken for outcome in outcomes))


def _played(nights: list[Night], jobs: int) -> Iterator[Outcome]:
    """Yield all outcomes, and show how far it is: a bar on a terminal, else a line now and then."""
    is_terminal = sys.stderr.isatty()
    with Progress(disable=not is_terminal) as progress:
        task = progress.add_task("nights", total=len(nights))
        for number, outcome in enumerate(play_all(nights, play, jobs), 1):
            progress.advance(task)
            if not is_terminal and number % max(1, len(nights) // 20) == 0:
                sys.stderr.write(f"{number} of {len(nights)} nights\n")
            yield outcome


def _tell(night: Night, given: argparse.Namespace) -> int:
    """Tell a night in words, after having shortened it if it breaks a promise."""
    found = next(play_all([night], play, 1))
    if found.broken and given.shrink:
        night = shrink(night, found.broken[0].rule, partial(_attempts, jobs=given.jobs))
        if given.save is not None:
            given.save.write_bytes(msgspec.json.format(msgspec.json.encode(night), indent=1) + b"\n")
    (outcome,) = play_all([night], partial(play, is_told=given.story), 1)
    for line in (*beginning(night), *_merged(plan_lines(night), outcome.story)):
        sys.stdout.write(f"{line}\n")
    for broken in outcome.broken:
        sys.stdout.write(f"BROKEN at {broken.time:.1f} s: {broken.rule}: {broken.sentence}\n")
    sys.stdout.write(f"digest {outcome.digest}\n")
    return int(bool(outcome.broken))


def _merged(planned: list[tuple[float, str]], told: tuple[str, ...]) -> Iterator[str]:
    lines = [(float(time_text), text) for time_text, _, text in (line.partition(" ") for line in told)]
    for at, text in sorted([*planned, *lines], key=lambda line: line[0]):
        yield f"{at:9.3f} {text}"


def _attempts(nights: list[Night], jobs: int) -> Iterator[tuple[Night, Outcome]]:
    """Yield nights with their outcomes, in order; only as many are played at once as there are jobs."""
    for begin in range(0, len(nights), jobs):
        part = nights[begin : begin + jobs]
        # Outcomes come as they end, and the nights have the same seed, so each has its place as its seed.
        numbered = [msgspec.structs.replace(night, number=number) for number, night in enumerate(part)]
        outcomes = {outcome.number: outcome for outcome in play_all(numbered, play, jobs)}
        yield from ((night, outcomes[number]) for number, night in enumerate(part))


def _report(outcomes: list[Outcome], seconds: float, results: Path | None) -> None:
    broken = sorted((outcome for outcome in outcomes if outcome.broken), key=lambda outcome: outcome.seed)
    states = Counter(state for outcome in outcomes for state in outcome.states)
    cpu = sum(outcome.seconds for outcome in outcomes)
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("requests", "writes", "binds")}
    sys.stdout.write(
        f"{len(outcomes)} nights, {len(broken)} of them broken, in {seconds:.0f} s, "
        f"{cpu / max(len(outcomes), 1):.2f} s of CPU each; "
        f"{sums['requests']} requests, {sums['binds']} binds, {len(states)} different states\n"
    )
    if results is not None:
        summary = {
            "nights": len(outcomes),
            "seconds": round(seconds),
            **sums,
            "broken": {str(outcome.seed): [one.rule for one in outcome.broken] for outcome in broken},
            "nights_by_state": dict(sorted(states.items())),
        }
        results.write_text(json.dumps(summary, indent=1) + "\n")


def _seeds(text: str) -> list[int]:
    """Return the seeds of ``1-500`` or ``3,17``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cpg_simulation", description="Play nights in which everything fails.")
    parser.add_argument("--seeds", type=_seeds, help="such as 1-500 or 3,17")
    parser.add_argument("--nights", type=Path, nargs="*", default=[], help="files with nights, as --save writes them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="nights that are played at once")
    parser.add_argument("--story", action="store_true", help="tell each night in words, with every write")
    parser.add_argument("--shrink", action="store_true", help="shorten each night that breaks a promise, and tell it")
    parser.add_argument("--save", type=Path, help="with --shrink: write the shortened night")
    parser.add_argument("--until-broken", action="store_true", help="end with the first broken promise")
    parser.add_argument("--digests", action="store_true", help="print the digest of each night")
    parser.add_argument("--results", type=Path, help="write a summary as JSON")
    return parser
