"""The invariants of a night: fed with every write, asked for their violations."""

import heapq
import itertools
from collections.abc import Collection, Iterable, Sequence

from cpg_api.scheduling.names import GROUP, SCHEDULER_NAME
from cpg_scheduler.preemption.planner import REFUSED_VICTIM_TTL_SECONDS
from cpg_simulation.checks.changes import Change, role_of
from cpg_simulation.checks.cluster import ObservedCluster
from cpg_simulation.checks.evictions import victim_of
from cpg_simulation.checks.knowledge import Knowledge
from cpg_simulation.checks.leases import LEASES, Leases
from cpg_simulation.checks.night_end import NightEnd
from cpg_simulation.checks.registry import SENT_RULES, SETTLED_RULES, WRITE_RULES
from cpg_simulation.checks.takeovers import SECONDS_OF_STALL, SentBind
from cpg_simulation.checks.values import Expectation, Finding, RecordedWrite, Rule, SentRequest, Violation


class Checks:
    """Checks every write as it happens: ``server.on_write.append(checks.observe)``.

    The coordinator says what the writes do not show: when bytes leave a process (``sent``), what a process has received
    (``received``), that it has ended (``ended``), and until when something is faulty (``disturbed``). Without that, a
    write counts as sent when it arrives, by a process that knows everything.
    """

    def __init__(
        self,
        *,
        scheduler_name: str = SCHEDULER_NAME,
        api_groups: Sequence[str] = (GROUP,),
        rules: Sequence[Rule] = WRITE_RULES,
    ) -> None:
        """Know nothing yet; ``api_groups`` are those of the groups that are served."""
        self.violations: list[Violation] = []
        self.cluster = ObservedCluster(scheduler_name, api_groups)
        self.leases = Leases()
        self.knowledge = Knowledge()
        self._sent: dict[int, tuple[SentRequest, str, float]] = {}
        """When each request was sent, by the identity of its object, which the journal keeps."""
        self._rules = rules
        self._quiet_since = 0.0
        self._due: list[tuple[float, int, float, Rule, Expectation]] = []
        self._numbers = itertools.count()
        self._revision = 0
        self._newest: dict[str, int] = {}
        """The revision of the last write of each resource."""
        self._refused_until: dict[str, float] = {}
        """Until when pods may be no victims, by UID."""

    # What the coordinator reports.

    def sent(self, request: SentRequest, now: float) -> None:
        """Note that the first byte of a request has left a process."""
        process, role = self.knowledge.process(request.user), role_of(request.user)
        self._sent[id(request)] = (request, process, now)
        if request.method == "POST" and request.path.endswith("/binding"):
            name, batch = self._batch_of(request)
            self.knowledge.sent(request.user, name, batch, now)
            lease = self.leases.state(role, now)
            sent = SentBind(name, process, now, lease, self.cluster, self.knowledge)
            for rule in SENT_RULES:
                self._take(rule, rule.check(sent), now)

    def received(self, user: str, resource: str, revision: int, now: float) -> None:
        """Note that a process has received a revision of a resource."""
        self.knowledge.received(user, resource, revision, now)

    def ended(self, user: str, now: float) -> None:
        """Note that a process has ended or was killed."""
        self.knowledge.ended(user)
        self.disturbed(now)

    def resumed(self, user: str, seconds: float) -> None:
        """Note that a process goes on that was stopped for some seconds."""
        if seconds > SECONDS_OF_STALL:
            self.knowledge.resumed[self.knowledge.process(user)] = dict(self._newest)

    def disturbed(self, until: float) -> None:
        """Note a fault that lasts until some time: no rule with a time limit counts seconds before."""
        self._quiet_since = max(self._quiet_since, until)

    def restored(self, objects: Iterable[RecordedWrite], now: float) -> None:
        """Start anew from the objects of a restored etcd, each as if it were created now."""
        foreign = self.cluster.foreign_nominations
        self.cluster = ObservedCluster(self.cluster.scheduler_name, tuple(self.cluster.stores))
        self.cluster.foreign_nominations |= foreign
        self.leases.forget()
        self._newest.clear()
        self.knowledge = self.knowledge.after_restore(now)
        self._due.clear()
        self.disturbed(now)
        for write in objects:
            self.cluster.apply(write, "")

    def refused(self, request: SentRequest, now: float) -> None:
        """Note that a request was refused.

        A pod that cannot be marked or deleted is no victim for a while.
        A pod that is not bound leaves its tree incomplete.
        """
        victim = self.cluster.pods.get(victim_of(request))
        if victim is not None:
            self._refused_until[victim.pod.metadata.uid] = now + REFUSED_VICTIM_TTL_SECONDS
            self.cluster.refused_victims.add(victim.pod.metadata.uid)
        elif request.method == "POST" and request.path.endswith("/binding"):
            self.cluster.bind_refused_at[self._batch_of(request)[1]] = now

    def _batch_of(self, bind: SentRequest) -> tuple[str, str]:
        """Return the name of the pod of a bind, and that of what is bound together with it."""
        *_, namespace, _, name, _ = bind.path.split("/")
        pod = self.cluster.pods.get(f"{namespace}/{name}")
        return f"{namespace}/{name}", self.cluster.tree_name(pod) if pod is not None else bind.path

    # Checking.

    def observe(self, write: RecordedWrite) -> None:
        """Check a write, and every expectation that is due by now."""
        self.advance(write.time)
        self._revision = self._newest[write.resource] = write.revision
        role, unknown = role_of(write.user), (None, self.knowledge.process(write.user), write.time)
        # By the time a write arrives, its process may have ended, and the next one of its name may run.
        _, process, sent = self._sent.get(id(write.request), unknown)
        if write.resource == LEASES:
            self.leases.apply(write, role, process)
        name = f"{write.namespace}/{write.name}"
        if write.resource == "pods" and write.old is None:
            self.knowledge.forget(name)
        pod = self.cluster.apply(write, process if role else "")
        change = Change(write, self.cluster, self.leases, role, process, sent, self.knowledge, pod, self._quiet_since)
        for rule in self._rules:
            self._take(rule, rule.check(change), write.time)

    def advance(self, now: float) -> None:
        """Check the expectations that are due by now; those with a fault in their time get it anew, or are dropped."""
        while self._due and self._due[0][0] <= now:
            _, number, started, rule, expected = heapq.heappop(self._due)
            if started >= self._quiet_since:
                finding = expected.broken()
                if finding is not None:
                    self._report(rule, finding, now)
            elif not expected.is_dropped_by_faults:
                self._await(rule, expected, number)

    def is_settled(self, living: Collection[str], now: float) -> bool:
        """Return whether what has to hold at the end of a night holds now, and nothing is expected any more."""
        self.advance(now)
        if self._due:
            return False
        night_end = self._night_end(living, now)
        return not any(True for rule in SETTLED_RULES for _ in rule.check(night_end))

    def settle(self, living: Collection[str], now: float) -> list[Violation]:
        """Check what has to hold at the end of a night; ``living`` are the users of the processes that run."""
        self.advance(now)
        night_end = self._night_end(living, now)
        for rule in SETTLED_RULES:
            self._take(rule, rule.check(night_end), now)
        return self.violations

    def _night_end(self, living: Collection[str], now: float) -> NightEnd:
        processes = frozenset(map(self.knowledge.process, living))
        refused = frozenset(uid for uid, until in self._refused_until.items() if now < until)
        return NightEnd(self.cluster, self.leases, processes, now, refused)

    def _take(self, rule: Rule, findings: Iterable[Finding | Expectation], now: float) -> None:
        for found in findings:
            if isinstance(found, Finding):
                self._report(rule, found, now)
            else:
                self._await(rule, found, next(self._numbers), now)

    def _await(self, rule: Rule, expected: Expectation, number: int, now: float = 0.0) -> None:
        """Check an expectation after its seconds, which begin now or at the end of the present fault."""
        started = max(now, self._quiet_since)
        heapq.heappush(self._due, (started + expected.seconds, number, started, rule, expected))

    def _report(self, rule: Rule, finding: Finding, now: float) -> None:
        self.violations.append(Violation(rule.name, now, self._revision, finding.objects, finding.sentence))
