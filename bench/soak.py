"""The soak: random changes of a cluster for half an hour, and the scheduler's memory meanwhile. Run by ``make soak``.

Trees are of either flavour, and some preempt others; nodes are cordoned, deleted and created again. Fails if the
process died, a tree was lost or is in two racks, a unit stays in the queue, or memory is too large or grows. Growth is
measured after a warm-up, as the median of the slopes between all pairs of samples (Theil and Sen), on which outliers
have no effect.
"""

import argparse
import asyncio
import itertools
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from churn import FLAVOURS, Churn
from result_files import load_average, measured_code, peak_mb, write_result

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica
from cpg_lab.specs import ClusterSpec

NODES = "2 blocks x 4 racks x 8 nodes, cpu=8, memory=32Gi"
TREES = 40
SECONDS_PER_CHANGE = 0.1
"""Least seconds between two changes."""
MAX_MB = 1000.0
"""MB of memory that the process may use."""
MAX_SAMPLES = 200
"""The result file has at most so many samples."""
MAX_GROWTH = 0.05
"""Memory may grow by this share after the warm-up; below ``NOISE_MB`` MB growth is noise."""
NOISE_MB = 4.0
TIMEOUT_SECONDS = 60.0
Sample = tuple[float, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--api", choices=tuple(FLAVOURS), default="crd", help="flavour of the groups")
    given = parser.parse_args(arguments)
    measured, before = measured_code(), load_average()
    with Cluster(SPECS[given.api]) as cluster, tempfile.TemporaryDirectory() as folder:
        if given.api == "crd":
            cluster.kubectl("apply", "-f", "manifests/crds")
            cluster.access.wait_for_crds()
        replica = Replica(cluster.kubeconfig, Path(folder), "soaked", settings={"api": given.api})
        problems, figures = asyncio.run(soak(cluster, replica, given.seconds, seed=given.seed, api=given.api))
        replica.process.stop(20)
        problems += [f"exit code {replica.process.exit_code}"] if replica.process.exit_code else []
        problems += [
            f"{len(replica.log_lines(word))} times in the log: {word}" for word in BAD_EVENTS if replica.log_lines(word)
        ]
    options = {"api": given.api, "seed": given.seed, "load_before": before, "load_after": load_average()}
    write_result("soak", {**options, **figures, "problems": problems}, measured=measured)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


POOL = NodePool.parse(NODES)
SPECS = {
    "crd": ClusterSpec(components=("kwok",), nodes=(POOL,)),
    # The controller manager removes the finalizers of native groups.
    "native": ClusterSpec(gates="native", components=("kwok", "controller-manager"), nodes=(POOL,)),
}
BAD_EVENTS = ("attempt failed", "process failed", "object refused")


async def soak(
    cluster: Cluster, replica: Replica, seconds: float, *, seed: int, api: str
) -> tuple[list[str], dict[str, object]]:
    """Change the cluster for so many seconds; return problems and figures."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        churn = Churn(connection, seed, trees=TREES, pool=POOL, api=api)
        await churn.prepare()
        await asyncio.to_thread(replica.await_log_line, "ready")
        began, samples, full = time.monotonic(), list[Sample](), 0.0
        while (now := time.monotonic() - began) < seconds and replica.process.is_running:
            await asyncio.gather(churn.change(), asyncio.sleep(SECONDS_PER_CHANGE))
            if not samples or now - samples[-1][0] >= 1:
                samples.append((now, replica.resident()))
                full = full or (now if len(churn.alive) >= TREES else 0.0)
                show(now, seconds, churn, samples[-1][1])
        sys.stderr.write("\n")
        if not replica.process.is_running:
            return [f"the scheduler died: {replica.process.tail()}"], {"samples": sampled_evenly(samples)}
        await churn.settle()
        problems = await _remaining_problems(churn, replica)
        figures = summary(samples, churn, replica, full=full)
    return [*problems, *memory_problems(figures)], {"figures": figures, "samples": sampled_evenly(samples)}


async def _remaining_problems(churn: Churn, replica: Replica) -> list[str]:
    """Return the problems that remain after a minute without changes."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        await churn.replace_missing_pods()
        found = await churn.problems()
        left = queued(await asyncio.to_thread(replica.get, "/metrics"))
        found += [f"{left} units are left in the queue"] if left else []
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def queued(answer: tuple[int, str]) -> int:
    """Return how many units are in the queue, by a metrics page."""
    return int(sum(float(found) for found in re.findall(r"(?m)^scheduler_queued_entities\{.*\} (\S+)$", answer[1])))


def summary(samples: Sequence[Sample], churn: Churn, replica: Replica, *, full: float) -> dict[str, float]:
    """Print and return the figures of a soak."""
    warm = after_warm_up(samples, full)
    span = warm[-1][0] - warm[0][0]
    plans = replica.log_lines("preempting")
    found = {
        "seconds": samples[-1][0],
        "acts": churn.acts,
        "trees_made": churn.created,
        "trees_removed": churn.deleted,
        "pods_replaced": churn.replaced,
        "binds": sum(line["binds"] for line in replica.log_lines("bound")),
        "plans": len(plans),
        "units_evicted": sum(len(line["victims"]) for line in plans),
        "first_mb": samples[0][1],
        "middle_mb": statistics.median(size for _, size in warm),
        "largest_mb": max(size for _, size in samples),
        "peak_mb": peak_mb(replica.process.pid),
        "warm_seconds": span,
        "growth_mb": slope(warm) * span,
    }
    print(
        "{acts} acts in {seconds:.0f} s: {trees_made} trees made, {trees_removed} removed, {binds} binds, {plans} plans"
        " that evicted {units_evicted} units\n"
        "memory: {first_mb:.0f} MB at first, {middle_mb:.0f} MB in the middle, {largest_mb:.0f} MB at most,"
        " {growth_mb:+.1f} MB in the last {warm_seconds:.0f} s".format(**found)
    )
    return found


def after_warm_up(samples: Sequence[Sample], full: float) -> Sequence[Sample]:
    """Return the samples after the warm-up: a quarter of the time, or until all trees exist, but at most half."""
    late = sum(at <= full for at, _ in samples)
    return samples[max(len(samples) // 4, min(late, len(samples) // 2)) :]


def memory_problems(figures: Mapping[str, float]) -> list[str]:
    """Return the problems of the memory's size and growth."""
    largest, growth = figures["largest_mb"], figures["growth_mb"]
    problems = [f"{largest:.0f} MB are more than {MAX_MB:.0f}"] if largest > MAX_MB else []
    if growth > max(NOISE_MB, MAX_GROWTH * figures["middle_mb"]):
        problems.append(f"memory grows: {growth:.1f} MB in {figures['warm_seconds']:.0f} s")
    return problems


def sampled_evenly(samples: Sequence[Sample]) -> list[Sample]:
    """Return an even selection of the samples, small enough for a result file."""
    every = -(-len(samples) // MAX_SAMPLES)
    return [(round(at, 1), round(size, 2)) for at, size in samples[:: every or 1]]


def slope(samples: Sequence[Sample]) -> float:
    """Return the median slope between all pairs of at most 300 samples."""
    few = samples[:: max(1, len(samples) // 300)]
    found: float = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(few, 2))
    return found


def show(now: float, seconds: float, churn: Churn, size: float) -> None:
    """Show the progress on one line."""
    share = min(now / seconds, 1.0)
    bar = ("#" * int(share * 30)).ljust(30, ".")
    line = f"{bar} {now:5.0f}/{seconds:.0f} s  {len(churn.alive)} trees  {churn.acts} acts  {size:.0f} MB"
    sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n" * (int(now) % 30 == 0))
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
