"""A run: rounds of load with faults, after each of which the cluster has to be as it should within a stated time."""

import asyncio
import contextlib
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from cpg_chaos.audit import AuditLog, LeaseCheck
from cpg_chaos.faults import Faults
from cpg_chaos.history import History
from cpg_chaos.invariants import Invariants
from cpg_chaos.record import RunRecord
from cpg_chaos.settled import ClusterState, misplaced, problems
from cpg_chaos.testbed import Testbed, topology
from cpg_chaos.users import Users
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_lab.clusters import Cluster

ROUND_SECONDS = 60.0
SETTLE_SECONDS = 60.0
RESTORE_SETTLE_SECONDS = 120.0
"""A restore of etcd is noticed within a minute, by the versions that have gone back."""
SECONDS_AFTER_RESTORE = 10.0
TREES = 28
MOST_VIOLATIONS = 20


class ChaosRun:
    """One run on one cluster."""

    def __init__(self, cluster: Cluster, folder: Path, *, seed: int, minutes: float) -> None:
        """Prepare nothing yet."""
        self.record = RunRecord()
        self.settled_after: list[float] = []
        self.waiting: list[int] = []
        self._folder, self._seed, self._seconds = folder, seed, minutes * 60
        self._cluster = cluster
        self._testbed = Testbed(cluster, self.record, folder)
        self._allocatable, self._labels = topology()

    async def play(self) -> None:
        """Play all rounds; violations are in the record."""
        async with self._testbed.running(), Connection.from_kubeconfig(self._cluster.kubeconfig) as connection:
            users = Users(connection, self.record, self._seed, most=TREES, nodes=self._allocatable)
            await users.prepare()
            tasks = [asyncio.create_task(one) for one in (users.act(), users.control())]
            try:
                await self._rounds(connection, users, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run for its result file."""
        faults = Counter(re.sub(r"-\d$", "", f"{fault.kind} {fault.target}") for fault in self.record.faults)
        return {
            "seconds": round(time.time() - self.record.began, 1),
            "faults": dict(sorted(faults.items())),
            "counts": dict(sorted(self.record.counts.items())),
            "seconds_until_settled": [round(one, 1) for one in self.settled_after],
            "pods_waiting_when_settled": self.waiting,
        }

    async def _rounds(self, connection: Connection, users: Users, tasks: list[asyncio.Task[None]]) -> None:
        history = History(connection)
        faults = Faults(self._testbed, history, self._seed)
        audit = AuditLog(self._cluster.audit_log, {one.credential: one.name for one in self._testbed.programs})
        leases, restored_at = LeaseCheck(self.record), 0.0
        for number in itertools.count(1):
            elapsed = time.time() - self.record.began
            if (number > 1 and elapsed >= self._seconds) or len(self.record.violations) >= MOST_VIOLATIONS:
                return
            has_restore = not restored_at and elapsed + ROUND_SECONDS > self._seconds / 2
            async with self._following(history) as invariants:
                users.is_idle = False
                with self._progress(f"round {number}"):
                    await asyncio.gather(faults.inject(ROUND_SECONDS), self._save_midway(is_wanted=has_restore))
                if not has_restore:
                    await users.rest()
                    await self._settle(connection, invariants, SETTLE_SECONDS)
            if has_restore:
                restored_at = elapsed + ROUND_SECONDS
                await self._restore(connection, history, users)
            self._check_logs(audit, leases)
            for task in tasks:
                if task.done():
                    task.result()

    def _check_logs(self, audit: AuditLog, leases: LeaseCheck) -> None:
        """Check what the audit log and our own logs have since the last round."""
        leases.check(audit.read())
        self._testbed.check_logs()
        self.record.counts["writes in the audit log"] = audit.writes

    async def _save_midway(self, *, is_wanted: bool) -> None:
        if is_wanted:
            await asyncio.sleep(ROUND_SECONDS / 2)
            async with self._testbed.plane:
                await self._testbed.save_etcd()

    async def _restore(self, connection: Connection, history: History, users: Users) -> None:
        """Restore etcd while users go on; then all has to be right for what the snapshot and they have."""
        with self.record.fault("restore", "etcd"):
            async with self._testbed.plane:
                await self._testbed.restore_etcd()
        async with self._following(history) as invariants:
            await asyncio.sleep(SECONDS_AFTER_RESTORE)
            await users.rest()
            await self._settle(connection, invariants, RESTORE_SETTLE_SECONDS)

    @contextlib.asynccontextmanager
    async def _following(self, history: History) -> AsyncIterator[Invariants]:
        """Follow the API server during the block; a defect in a check ends the block."""
        history.listeners = {}
        await history.load()
        invariants = Invariants(history, self.record, allocatable=self._allocatable, labels=self._labels)
        task = asyncio.create_task(history.follow())
        try:
            yield invariants
        finally:
            if task.done():
                task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _settle(self, connection: Connection, invariants: Invariants, limit: float) -> None:
        """Wait until nothing is wrong; what still is after the limit is a violation."""
        began = time.time()
        while True:
            found = await self._problems(connection, invariants)
            if not found:
                self.settled_after.append(time.time() - began)
                return
            if time.time() - began > limit:
                for problem in found:
                    self.record.violate(f"all is right {limit:.0f} s after the last fault", problem)
                return
            await asyncio.sleep(0.5)

    async def _problems(self, connection: Connection, invariants: Invariants) -> list[str]:
        try:
            state = await ClusterState.read(connection)
        except ClientError as error:
            return [f"the API server does not answer: {error}"]
        found = problems(state, self._allocatable, self._labels)
        present = {one["metadata"]["uid"] for one in state.pods}
        for unit, members in invariants.evicted_units.items():
            if left := members & present:
                found.append(f"of the unit {unit}, {len(left)} of {len(members)} pods were not evicted")
        if not found:
            found = await misplaced(self._cluster.kubeconfig, self._folder)
        if not found:
            self.waiting.append(sum(not one["spec"].get("nodeName") for one in state.pods))
        return found

    @contextlib.contextmanager
    def _progress(self, what: str) -> Iterator[None]:
        """Show the progress on one line."""
        task = asyncio.create_task(self._show(what))
        try:
            yield
        finally:
            task.cancel()

    async def _show(self, what: str) -> None:
        while True:
            now = time.time() - self.record.began
            share = min(now / self._seconds, 1.0)
            counts = self.record.counts
            line = (
                f"{'#' * int(share * 30):.<30} {now:5.0f}/{self._seconds:.0f} s  {what}"
                f"  {len(self.record.faults)} faults"
                f"  {counts['binds by us']} binds  {counts['pods evicted by us']} evictions"
                f"  {len(self.record.violations)} violations"
            )
            sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n")
            sys.stderr.flush()
            await asyncio.sleep(1 if sys.stderr.isatty() else 20)
