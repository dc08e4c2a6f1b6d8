"""Tables and result files of runs: a row per case, and the goals that were missed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from backlogs import Case
from result_files import MeasuredCode
from result_files import write_result as write_result_file
from timed_runs import OURS, PEER, RunResult

HEADING = (
    f"{'case':<25}{'ours':>16}{'kube-scheduler':>24}{'ratio':>9}"
    f"{'goal':>7}{'binds/s':>9}{'of limit':>10}{'peak MB':>12}"
)


def row(case: Case, outcomes: Sequence[RunResult], limit: float) -> str:
    """Return a row of the table: medians, and the number of bound pods for a stopped run."""
    ours, peer = _by_contender(outcomes)
    text = f"{case.title:<25}{_time_text(ours):>16}{_time_text(peer):>24}"
    if ours and peer:
        is_bound = ">" if _is_given_up(peer) else ""
        text += f"{f'{is_bound}{_median_seconds(peer) / _median_seconds(ours):.1f}x':>9}"
    else:
        text += f"{'-':>9}"
    rate = median(one.rate for one in ours) if ours else 0.0
    memory = " / ".join(f"{max(one.peak_mb for one in some):.0f}" if some else "-" for some in (ours, peer))
    return f"{text}{f'{case.goal:g}x':>7}{rate:>9.0f}{rate / limit:>10.0%}{memory:>12}"


def shortfalls(case: Case, outcomes: Sequence[RunResult], limit: float) -> Iterator[str]:
    """Yield the missed goals of a case; a goal that was not measured is missed."""
    ours, peer = _by_contender(outcomes)
    if not ours or not peer:
        yield f"{case.name}: no ratio, since both have to be measured"
        return
    ratio, share = _median_seconds(peer) / _median_seconds(ours), median(one.rate for one in ours) / limit
    if _is_given_up(ours):
        yield f"{case.name}: given up with {min(one.bound for one in ours)} of {ours[0].pods} pods bound"
    elif ratio < case.goal:
        at_least = "at least " if _is_given_up(peer) else ""
        yield f"{case.name}: {at_least}{ratio:.2f}x, and the goal is {case.goal:g}x"
    if share < case.share:
        yield f"{case.name}: {share:.0%} of the limit of binds, and the goal is {case.share:.0%}"


def write_result(found: Mapping[str, Sequence[RunResult]], *, quick: bool, measured: MeasuredCode) -> Path:
    """Write the raw figures of all runs to a result file."""
    outcomes = {name: [asdict(one) for one in some] for name, some in found.items()}
    return write_result_file("peer", {"quick": quick, "outcomes": outcomes}, measured=measured)


def _by_contender(outcomes: Sequence[RunResult]) -> tuple[list[RunResult], list[RunResult]]:
    ours, peer = ([one for one in outcomes if one.contender == contender] for contender in (OURS, PEER))
    return ours, peer


def _is_given_up(outcomes: Sequence[RunResult]) -> bool:
    return any(one.bound < one.pods for one in outcomes)


def _median_seconds(outcomes: Sequence[RunResult]) -> float:
    return median(one.seconds for one in outcomes)


def _time_text(outcomes: Sequence[RunResult]) -> str:
    if not outcomes:
        return "-"
    worst = min(outcomes, key=lambda one: one.bound)
    given_up = f"({worst.bound} bound) > " if worst.bound < worst.pods else ""
    return f"{given_up}{_median_seconds(outcomes):.2f} s"
