"""Compare our scheduler with kube-scheduler of the same Kubernetes: from a scheduler's start to the last bind.

Both use the native API of a real API server, one after the other, each in a cluster of its own with the same nodes and
the same backlog, without client limits. Compare ratios, never seconds: machines are shared. ``README.md`` explains the
table.
"""

import argparse
import sys
import time
from statistics import median

from backlogs import CASES
from result_files import measured_code
from tables import HEADING, row, shortfalls, write_result
from timed_runs import BARE, OURS, PEER, RunResult, Show, run_contender

from cpg_lab.progress import Display, Progress


def main() -> int:
    """Measure, print the table, write the results."""
    parser = _parser()
    given = parser.parse_args()
    names = given.cases or [case.name for case in CASES]
    if unknown := set(names) - {case.name for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    turns = [one for _ in range(given.rounds) for one in given.only or (OURS, PEER)]
    if given.check and given.only:
        parser.error("--check needs both: leave --only out")
    display, measured, short = Display(), measured_code(), list[str]()
    if measured.warning:
        print(measured.warning, flush=True)

    def run(title: str, contenders: list[str], number: int) -> list[RunResult]:
        outcomes = []
        case = CASES[number]
        for turn, contender in enumerate(contenders, start=1):
            display.title = f"{title}, {contender} ({turn} of {len(contenders)})"
            size = case.quick if given.quick else case.full
            outcomes.append(run_contender(contender, size, patience=given.patience, show=_progress_callback(display)))
            display.clear()
        return outcomes

    found = {BARE: run("the API server alone", [BARE] * given.rounds, 0)}
    limit = median(one.rate for one in found[BARE])
    print(f"bare binds: {limit:.0f}/s\n{HEADING}", flush=True)
    for number, case in enumerate(CASES):
        if case.name in names:
            found[case.name] = run(case.title, turns, number)
            print(row(case, found[case.name], limit), flush=True)
            short += shortfalls(case, found[case.name], limit)
    write_result(found, quick=given.quick, measured=measured)
    for one in short if given.check else ():
        print(f"BELOW ITS GOAL: {one}")
    return int(given.check and bool(short))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"of {', '.join(case.name for case in CASES)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the nodes and of the pods")
    parser.add_argument(
        "--rounds", type=int, default=2, help="runs of each, alternating; medians are shown (default: 2)"
    )
    parser.add_argument("--patience", type=float, default=240.0, help="seconds until a run is stopped (default: 240)")
    parser.add_argument("--only", action="append", choices=(OURS, PEER), help="measure one of the two")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed, naming each")
    return parser


def _progress_callback(display: Display) -> Show:
    """Return a callback that shows the progress of one run."""
    began = float("inf")

    def show(bound: int, pods: int) -> None:
        nonlocal began
        began = min(began, time.monotonic())
        display.show(Progress(pods).advanced(bound, time.monotonic() - began))

    return show


if __name__ == "__main__":
    sys.exit(main())
