"""The soak: hours of coming and going in minutes, and the scheduler's memory meanwhile. Run by ``make soak``.

Trees come in either flavour, some so important that others have to make room; nodes close, go and come back. Fails
where the process died, a tree was lost or put in two racks, somebody is left in the queue, or memory is too large or
grows. Growth is the median of the slopes between all pairs of samples (Theil and Sen), which a few odd samples
do not move, over what is left of the run after a warm-up.
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

from churning import FLAVOURS, Churn
from keeping import code, keep, load, peak_mb

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica
from cpg_lab.specs import ClusterSpec

NODES = "2 blocks x 4 racks x 8 nodes, cpu=8, memory=32Gi"
TREES = 40
PACE = 0.1
"""Seconds between two acts, at the least."""
LARGEST = 1000.0
"""MB that the process may take."""
KEPT = 200
"""Samples that are kept, at the most."""
GROWTH = 0.05
"""How much of its memory it may gain in the run after the warm-up; below ``NOISE`` MB anything is chance."""
NOISE = 4.0
PATIENCE = 60.0
Sample = tuple[float, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--api", choices=tuple(FLAVOURS), default="crd", help="of which groups the trees are")
    given = parser.parse_args(arguments)
    measured, before = code(), load()
    with Cluster(SPECS[given.api]) as cluster, tempfile.TemporaryDirectory() as folder:
        if given.api == "crd":
            cluster.kubectl("apply", "-f", "manifests/crds")
            cluster.kubectl("wait", "--for=condition=established", "--timeout=30s", "-f", "manifests/crds")
        replica = Replica(cluster.kubeconfig, Path(folder), "soaked", settings={"api": given.api})
        problems, figures = asyncio.run(soak(cluster, replica, given.seconds, seed=given.seed, api=given.api))
        replica.process.stop(20)
        problems += [f"exit code {replica.process.exit_code}"] if replica.process.exit_code else []
        problems += [
            f"{len(replica.log_lines(word))} times in the log: {word}" for word in BAD if replica.log_lines(word)
        ]
    asked = {"api": given.api, "seed": given.seed, "load_before": before, "load_after": load()}
    keep("soak", {**asked, **figures, "problems": problems}, measured=measured)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


POOL = NodePool.parse(NODES)
SPECS = {
    "crd": ClusterSpec(components=("kwok",), nodes=(POOL,)),
    # Built-in groups go when a controller has taken their protection off.
    "native": ClusterSpec(gates="native", components=("kwok", "controller-manager"), nodes=(POOL,)),
}
BAD = ("attempt failed", "died", "object refused")


async def soak(
    cluster: Cluster, replica: Replica, seconds: float, *, seed: int, api: str
) -> tuple[list[str], dict[str, object]]:
    """Churn for so long; return what was wrong, and the figures."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        churn = Churn(connection, seed, trees=TREES, pool=POOL, api=api)
        await churn.prepare()
        await asyncio.to_thread(replica.await_log_line, "ready")
        began, samples, full = time.monotonic(), list[Sample](), 0.0
        while (now := time.monotonic() - began) < seconds and replica.process.alive:
            await asyncio.gather(churn.act(), asyncio.sleep(PACE))
            if not samples or now - samples[-1][0] >= 1:
                samples.append((now, replica.resident()))
                full = full or (now if len(churn.alive) >= TREES else 0.0)
                show(now, seconds, churn, samples[-1][1])
        sys.stderr.write("\n")
        if not replica.process.alive:
            return [f"the scheduler died: {replica.process.tail()}"], {"samples": thinned(samples)}
        await churn.calm()
        problems = await _unrest(churn, replica)
        figures = summary(samples, churn, replica, full=full)
    return [*problems, *judged(figures)], {"figures": figures, "samples": thinned(samples)}


async def _unrest(churn: Churn, replica: Replica) -> list[str]:
    """Return what is still not in order after a while in which nothing happened."""
    deadline = time.monotonic() + PATIENCE
    while True:
        await churn.replace_the_gone()
        found = await churn.lost()
        left = queued(await asyncio.to_thread(replica.get, "/metrics"))
        found += [f"{left} roots are left in the queue"] if left else []
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def queued(answer: tuple[int, str]) -> int:
    """Return how many roots a metrics page counts in the queue."""
    return int(sum(float(found) for found in re.findall(r"(?m)^scheduler_queued_entities\{.*\} (\S+)$", answer[1])))


def summary(samples: Sequence[Sample], churn: Churn, replica: Replica, *, full: float) -> dict[str, float]:
    """Print what was done, and return it."""
    warm = warmed(samples, full)
    span = warm[-1][0] - warm[0][0]
    plans = replica.log_lines("preempting")
    found = {
        "seconds": samples[-1][0],
        "acts": churn.acts,
        "trees_made": churn.made,
        "trees_removed": churn.gone,
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


def warmed(samples: Sequence[Sample], full: float) -> Sequence[Sample]:
    """Return the samples after a warm-up: a quarter of all, or longer where there were not all trees by then.

    Half of them count whatever happened.
    """
    late = sum(at <= full for at, _ in samples)
    return samples[max(len(samples) // 4, min(late, len(samples) // 2)) :]


def judged(figures: Mapping[str, float]) -> list[str]:
    """Return what is wrong with the memory."""
    largest, growth = figures["largest_mb"], figures["growth_mb"]
    problems = [f"{largest:.0f} MB are more than {LARGEST:.0f}"] if largest > LARGEST else []
    if growth > max(NOISE, GROWTH * figures["middle_mb"]):
        problems.append(f"memory grows: {growth:.1f} MB in {figures['warm_seconds']:.0f} s")
    return problems


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return so many of the samples, evenly, that a file of them can be read."""
    every = -(-len(samples) // KEPT)
    return [(round(at, 1), round(size, 2)) for at, size in samples[:: every or 1]]


def slope(samples: Sequence[Sample]) -> float:
    """Return the median slope between all pairs of at most 300 samples."""
    few = samples[:: max(1, len(samples) // 300)]
    found: float = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(few, 2))
    return found


def show(now: float, seconds: float, churn: Churn, size: float) -> None:
    """Show how far it is, on one line."""
    share = min(now / seconds, 1.0)
    bar = ("#" * int(share * 30)).ljust(30, ".")
    line = f"{bar} {now:5.0f}/{seconds:.0f} s  {len(churn.alive)} trees  {churn.acts} acts  {size:.0f} MB"
    sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n" * (int(now) % 30 == 0))
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
