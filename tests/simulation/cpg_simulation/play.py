"""Plays one night and judges it."""

import gc
import time
from collections.abc import Iterable, Iterator

import msgspec

from cpg_api.core.pod import Pod
from cpg_api.scheduling.names import GROUP, NATIVE_GROUP
from cpg_client.leader_election import LeadershipLostError
from cpg_client.versions import VersionsWentBackError
from cpg_scheduler.reflectors import KindsChangedError
from cpg_simulation.apiserver.values import Request, Write
from cpg_simulation.checks.checks import Checks
from cpg_simulation.ledgers import LedgerWatch
from cpg_simulation.nights.plan import Fault, Night
from cpg_simulation.outcome import Broken, Outcome
from cpg_simulation.simulation import Simulation
from cpg_simulation.states import StateCounter
from cpg_simulation.story import write_text

SECONDS_BETWEEN_LEDGERS = 3.0
DISTURBS_FOR = {"restart": 5.0, "restore": 5.0, "vanish": 5.0}
"""The seconds after the end of some faults in which their effects still show, such as pods of a node that is gone."""
ORDERLY_ENDS = (LeadershipLostError, VersionsWentBackError, KindsChangedError)
"""What ends a process on purpose: the next one begins with what is true then."""


def play(night: Night, *, is_told: bool = False) -> Outcome:
    """Return what came out of a night."""
    gc.disable()  # what is freed when must not depend on when the collector runs
    began = time.process_time()
    judge = Judge(Simulation(night), is_told=is_told)
    judge.simulation.play(judge.is_settled)
    simulation = judge.simulation
    return Outcome(
        seed=night.seed,
        number=night.number,
        digest=simulation.digest,
        broken=tuple(judge.broken()),
        steps=simulation.coordinator.steps,
        requests=simulation.network.requests,
        writes=len(simulation.server.journal),
        binds=sum(write.verb == "bind" for write in simulation.server.journal),
        seconds=time.process_time() - began,
        states=dict(judge.states.counts),
        story=(*judge.story, *(judge.logged() if is_told else ())),
    )


class Judge:
    """Shows the checks all that happens in a simulation."""

    def __init__(self, simulation: Simulation, *, is_told: bool) -> None:
        """Attach to a simulation that has not been played yet."""
        self.simulation = simulation
        self.story: list[str] = []
        self.states = StateCounter(simulation)
        self.checks = Checks(api_groups=(GROUP if simulation.night.flavour == "crd" else NATIVE_GROUP,))
        self._is_told = is_told
        self._clock = simulation.server_machine.wall
        for write in simulation.server.journal:
            self.checks.observe(write)
        simulation.server.on_write.append(self._observe)
        simulation.network.on_request = self._on_request
        simulation.network.on_refused = self._on_refused
        simulation.network.on_received = lambda user, resource, revision: self.checks.received(
            user, resource, revision, self._clock()
        )
        simulation.on_end = self._on_end
        simulation.faults.on_fault = self._on_fault
        simulation.faults.on_restored = self._on_restored
        simulation.faults.on_resumed = self.checks.resumed
        self.states.install()
        self.ledgers = LedgerWatch()
        self.ledgers.install()
        self._wrong_ledgers: list[Broken] = []
        simulation.coordinator.after(SECONDS_BETWEEN_LEDGERS, self._compare_ledgers)

    def is_settled(self) -> bool:
        """Return whether everything that has to hold at the end holds now, and nothing else is awaited."""
        return self.checks.is_settled(self.simulation.living, self._clock())

    def broken(self) -> list[Broken]:
        """Return what was broken, the first one first."""
        now = self._clock()
        start = now - self.simulation.coordinator.now
        self.checks.settle(self.simulation.living, now)
        found = [Broken(one.rule, one.time - start, one.sentence) for one in self.checks.violations]
        pods = [msgspec.convert(raw, Pod) for raw in self.simulation.server.objects("pods")]
        self._report_ledgers(self.ledgers.differences_at_the_end(self.simulation.living, pods))
        found += self._wrong_ledgers
        found += self._logged_errors()
        found += self._disorderly_ends()
        return sorted(found, key=lambda broken: broken.time)

    def logged(self) -> Iterator[str]:
        """Yield what the processes have logged."""
        for line in self.simulation.record.log:
            fields = " ".join(f"{name}={value}" for name, value in line.fields.items() if name != "event")
            yield f"{line.time:.6f} {line.process} logs {line.fields['event']}: {fields}"

    def _compare_ledgers(self) -> None:
        """Compare ledgers now and then: that costs as much as many writes."""
        self._report_ledgers(self.ledgers.differences(self.simulation.living))
        self.simulation.coordinator.after(SECONDS_BETWEEN_LEDGERS, self._compare_ledgers)

    def _report_ledgers(self, differences: Iterable[str]) -> None:
        now = self.simulation.coordinator.now
        self._wrong_ledgers += [Broken("the ledger is the sum of its pods", now, text) for text in differences]

    def _observe(self, write: Write) -> None:
        self.checks.observe(write)
        if self._is_told and (text := write_text(write)) is not None:
            self.story.append(f"{self.simulation.coordinator.now:.6f} {text}")

    def _on_request(self, request: Request) -> None:
        self.checks.sent(request, self._clock())
        self.states.sent(request)
        self.ledgers.sent(request)

    def _on_refused(self, request: Request) -> None:
        self.checks.refused(request, self._clock())
        self.ledgers.refused(request)

    def _on_end(self, name: str) -> None:
        self.checks.ended(name, self._clock())
        self.states.ended(name)

    def _on_fault(self, fault: Fault, process: str, request: Request | None) -> None:
        self.states.hit(fault, process, request)
        late = fault.amount if fault.kind == "delay" else DISTURBS_FOR.get(fault.kind, 0.0)
        left = fault.end - self.simulation.coordinator.now + late
        self.checks.disturbed(self._clock() + left)
        if self._is_told and process:
            self.story.append(f"{self.simulation.coordinator.now:.6f} fault: {fault.kind} hits {process}")

    def _on_restored(self) -> None:
        self.checks.restored(self._present(), self._clock())
        self.states.restored()
        self.ledgers.restored()

    def _present(self) -> Iterator[Write]:
        """Yield each object as if it were created now."""
        server, request = self.simulation.server, Request(method="POST", path="", user="")
        for resource in dict.fromkeys(write.resource for write in server.journal):
            for found in server.objects(resource):
                meta = found["metadata"]
                yield Write(
                    revision=server.revision,
                    time=self._clock(),
                    user="",
                    verb="create",
                    resource=resource,
                    namespace=meta.get("namespace", ""),
                    name=meta["name"],
                    subresource="",
                    old=None,
                    new=found,
                    request=request,
                )

    def _logged_errors(self) -> list[Broken]:
        return [
            Broken("no internal error is logged", line.time, f"{line.process}: {line.fields}")
            for line in self.simulation.record.log
            if line.fields["level"] in {"error", "critical", "exception"}
        ]

    def _disorderly_ends(self) -> list[Broken]:
        return [
            Broken("a process ends only for a reason that it has to", ended.time, f"{ended.process}: {ended.error!r}")
            for ended in self.simulation.record.exits
            if not _is_orderly(ended.error)
        ]


def _is_orderly(error: BaseException | None) -> bool:
    """Return whether a process has ended as it has to: it was asked to, or has lost its lease."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error is None or isinstance(error, ORDERLY_ENDS)
