"""The soak: hours of coming and going in minutes, and the scheduler's memory meanwhile. Run by ``make soak``.

Fails where the process died, a tree was lost or put in two racks, somebody is left in the queue, or memory is too
large or grows. Growth is the median of the slopes between all pairs of samples (Theil and Sen), which a few odd samples
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
from collections.abc import Sequence
from pathlib import Path

from churning import Churn

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
    given = parser.parse_args(arguments)
    spec = ClusterSpec(components=("kwok",), nodes=(NodePool.parse(NODES),))
    with Cluster(spec) as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.kubectl("apply", "-f", "manifests/crds")
        cluster.kubectl("wait", "--for=condition=established", "--timeout=30s", "-f", "manifests/crds")
        replica = Replica(cluster.kubeconfig, Path(folder), "soaked", settings={"api": "crd"})
        problems = asyncio.run(soak(cluster, replica, given.seconds, given.seed))
        replica.process.stop(20)
        problems += [f"exit code {replica.process.exit_code}"] if replica.process.exit_code else []
        problems += [f"{len(replica.said(word))} times in the log: {word}" for word in BAD if replica.said(word)]
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


BAD = ("attempt failed", "died", "object refused")


async def soak(cluster: Cluster, replica: Replica, seconds: float, seed: int) -> list[str]:
    """Churn for so long; return what was wrong."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        churn = Churn(connection, seed, TREES)
        await asyncio.to_thread(replica.await_said, "ready")
        began, samples = time.monotonic(), list[Sample]()
        while (now := time.monotonic() - began) < seconds and replica.process.alive:
            await asyncio.gather(churn.act(), asyncio.sleep(PACE))
            if not samples or now - samples[-1][0] >= 1:
                samples.append((now, replica.resident()))
                show(now, seconds, churn, samples[-1][1])
        sys.stderr.write("\n")
        if not replica.process.alive:
            return [f"the scheduler died: {replica.process.tail()}"]
        await churn.calm()
        problems = await _unrest(churn, replica)
    return [*problems, *judged(samples, churn, replica)]


async def _unrest(churn: Churn, replica: Replica) -> list[str]:
    """Return what is still not in order after a while in which nothing happened."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await churn.lost()
        left = queued(await asyncio.to_thread(replica.ask, "/metrics"))
        found += [f"{left} roots are left in the queue"] if left else []
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def queued(answer: tuple[int, str]) -> int:
    """Return how many roots a metrics page counts in the queue."""
    return int(sum(float(found) for found in re.findall(r"(?m)^scheduler_queued_entities\{.*\} (\S+)$", answer[1])))


def judged(samples: Sequence[Sample], churn: Churn, replica: Replica) -> list[str]:
    """Print the summary; return what is wrong with the memory."""
    warm = samples[len(samples) // 4 :]
    span, middle = warm[-1][0] - warm[0][0], statistics.median(size for _, size in warm)
    growth, largest = slope(warm) * span, max(size for _, size in samples)
    bound = sum(line["binds"] for line in replica.said("bound"))
    print(
        f"{churn.acts} acts in {samples[-1][0]:.0f} s: {churn.made} trees made, {churn.gone} removed, {bound} binds\n"
        f"memory: {samples[0][1]:.0f} MB at first, {middle:.0f} MB in the middle, {largest:.0f} MB at most,"
        f" {growth:+.1f} MB in the last {span:.0f} s ({growth / span * 3600:+.0f} MB an hour)"
    )
    problems = [f"{largest:.0f} MB are more than {LARGEST:.0f}"] if largest > LARGEST else []
    if growth > max(NOISE, GROWTH * middle):
        problems.append(f"memory grows: {growth:.1f} MB in {span:.0f} s")
    return problems


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
