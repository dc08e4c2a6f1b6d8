"""Evicting: in which order a plan is written down and performed, and what ends it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog
from msgspec.structs import replace

from cpg_api.core.pod import PodCondition, PodStatus
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError
from cpg_client.resources import CPG_POD_GROUPS
from cpg_client.timing import Timing
from cpg_engine.testing.builders import metadata, pod, pod_group
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.preemption.executor import DOUBTS, EvictionJob, Evictor, Preemptor, Victim, is_told, told, whom
from cpg_scheduler.testing.wire import Wire, Write
from cpg_scheduler.write_gate import WriteGate

TREE = pod_group("train", meta=metadata("train", namespace="ml"))
WHOLE = pod_group("whole", all_=True)
PREEMPTOR = Preemptor(GroupKey("PodGroup", "ml", "train"), "uid-train", TREE)
SAID = "cpg-scheduler: preempting to accommodate a higher priority podgroup ml/train uid-train"


RIGHTLESS = 'pods "v0" is forbidden: User "me" cannot delete resource "pods" in the namespace "default"'


IN_FLIGHT = 9


async def no_time(_: float) -> None:
    """Wait for nothing."""
    await asyncio.sleep(0)


class Court:
    """An evictor, an order for two victims of a group, and what became of it."""

    def __init__(self, wire: Wire | None = None, *, known: bool = False) -> None:
        self.wire = wire or Wire(Timing(sleep=no_time))
        self.metrics = Metrics("", lambda: 0.0)
        self.log = structlog.testing.CapturingLogger()
        self.falls = False
        self.commits = True
        self.committed = False
        self.refused: list[str] = []
        self.order = EvictionJob(
            preemptor=PREEMPTOR,
            victims=[
                Victim([pod(name, node_name="n1")], "its room is needed", groups)
                for name, groups in (("v0", [WHOLE]), ("v1", []))
            ],
            nominations=[] if known else [(pod("p0"), "n1")],
            stands=lambda: self.committed or not self.falls,
            commit=self._commit,
            refused=self._refuse,
            known=known,
        )

    def _commit(self) -> bool:
        self.committed, self.falls = self.commits, not self.commits
        return self.commits

    def _refuse(self, victim: Any, _: ClientError) -> None:  # noqa: ANN401 - a pod
        self.refused.append(victim.metadata.name)
        self.committed, self.falls = False, True

    async def perform(self, act: Callable[[Evictor], None] | None = None) -> None:
        """Perform the order, or do something else, to the end."""
        async with asyncio.TaskGroup() as tasks:
            evictor = Evictor(
                cast("Connection", self.wire),
                lambda _: CPG_POD_GROUPS,
                tasks,
                scheduler_name="cpg-scheduler",
                instance="me",
                metrics=self.metrics,
                log=structlog.wrap_logger(self.log, processors=[]),
                in_flight=IN_FLIGHT,
                gate=WriteGate(),
            )
            (act or (lambda one: one.start(self.order)))(evictor)
            await evictor.drained()

    def unite(self) -> None:
        """Have both victims go as a whole."""
        pods = [victim.pods[0] for victim in self.order.victims]
        self.order = replace(self.order, victims=[Victim(pods, "its room is needed", [WHOLE])])

    def deleted(self) -> list[str]:
        """Return whom the server was asked to delete in earnest."""
        deletions = (one for one in self.wire.writes if one.method == "DELETE" and "dryRun" not in one.body)
        return [write.path.rsplit("/")[-1] for write in deletions]

    def conditions(self, name: str) -> list[dict[str, Any]]:
        """Return what was written about a pod going, or staying."""
        path = f"pods/{name}/status"
        found = (write.body["status"].get("conditions", ()) for write in self.wire.writes if write.path.endswith(path))
        return [one for conditions in found for one in conditions]

    def marks(self, name: str = "whole") -> list[str]:
        """Return what was written about a group going, or staying."""
        found = (one for one in self.wire.writes if one.path.endswith(f"podgroups/{name}/status"))
        return [one.body["status"]["conditions"][0].status for one in found]

    def did(self) -> list[str]:
        """Return what was sent, in short."""
        return [f"{write.method} {write.path.rsplit('namespaces/default/')[-1]}" for write in self.wire.writes]


async def test_nobody_is_touched_before_the_pods_are_nominated_and_each_is_told_before_it_goes() -> None:
    """Whoever finds it half done can tell what it was."""
    court = Court()
    await court.perform()
    did = court.did()
    assert did[:2] == ["PATCH pods/p0/status", "PATCH podgroups/whole/status"]
    assert [one for one in did[2:] if one != "POST events"] == [
        "PATCH pods/v0/status",
        "DELETE pods/v0",
        "PATCH pods/v1/status",
        "DELETE pods/v1",
    ]
    assert did.count("POST events") == 2


async def test_a_unit_is_told_as_a_whole_before_the_first_of_it_goes() -> None:
    """After it was asked whether it may: then a new leader knows it by those that are left."""
    court = Court()
    court.unite()
    await court.perform()
    asked, did = court.did()[:2], court.did()[4:8]
    assert ([one.body.get("dryRun") for one in court.wire.writes[:2]], asked) == (
        [["All"], ["All"]],
        ["DELETE pods/v0", "DELETE pods/v1"],
    )
    assert did == ["PATCH pods/v0/status", "PATCH pods/v1/status", "DELETE pods/v0", "DELETE pods/v1"]
    assert not any("dryRun" in one.body for one in court.wire.writes[6:8])


async def test_a_unit_of_which_one_must_not_go_stays_as_it_is() -> None:
    """Nobody has been told anything by then."""
    court = Court()
    court.unite()
    forbidden = ApiError(403, "Forbidden", "no")
    court.wire.error = lambda write: forbidden if write.path.endswith("/v1") else None
    await court.perform()
    assert (court.refused, court.did(), court.deleted()) == (
        ["v1"],
        ["DELETE pods/v0", "PATCH pods/p0/status"],
        [],
    )


async def test_a_webhook_that_cannot_be_asked_forbids_nothing() -> None:
    """It has side effects, and the API server says so."""
    court = Court()
    court.unite()
    unsupported = ApiError(400, "BadRequest", "admission webhook does not support dry run")
    court.wire.error = lambda write: unsupported if write.body and "dryRun" in write.body else None
    await court.perform()
    assert (court.refused, court.deleted()) == ([], ["v0", "v1"])


async def test_a_unit_that_was_begun_is_carried_through() -> None:
    """Also when one of it is refused after all; that one is told that it stays."""
    court = Court()
    court.unite()
    forbidden = ApiError(403, "Forbidden", "no")
    court.wire.error = lambda write: (
        forbidden if write.method == "DELETE" and "dryRun" not in write.body and "/v0" in write.path else None
    )
    await court.perform()
    assert (court.refused, court.deleted()) == (["v0"], ["v1"])
    assert [one["status"] for one in court.conditions("v0")] == ["True", "False"]
    assert [one["status"] for one in court.conditions("v1")] == ["True"]
    assert court.marks() == ["True", "False"]


async def test_a_group_that_was_told_to_go_is_told_to_stay_where_nobody_of_it_goes() -> None:
    """A refusal of its first pod's condition ends the plan; a group that has not been begun hears nothing."""
    court = Court()
    court.unite()
    others = Victim([pod("w0", node_name="n1"), pod("w1", node_name="n1")], "room", [pod_group("other", all_=True)])
    court.order = replace(court.order, victims=[*court.order.victims, others])
    forbidden = ApiError(403, "Forbidden", "no")
    court.wire.error = lambda write: forbidden if write.path.endswith("/v0/status") else None
    await court.perform()
    assert (court.deleted(), court.marks(), court.marks("other")) == ([], ["True", "False"], [])


async def test_a_refusal_stops_those_that_have_not_been_begun() -> None:
    """They are not told either; those under way are so many as are sent at once."""
    court = Court()
    court.order = replace(
        court.order, victims=[Victim([pod(f"v{number}", node_name="n1")], "room") for number in range(100)]
    )
    forbidden = ApiError(403, "Forbidden", "no")
    court.wire.error = lambda write: forbidden if write.method == "DELETE" and write.path.endswith("/v5") else None
    await court.perform()
    told = {name for name in (f"v{number}" for number in range(100)) if court.conditions(name)}
    assert (court.refused, len(court.deleted()) < 30, len(told) < 30) == (["v5"], True, True)
    staying = {name for name in told if court.conditions(name)[-1]["status"] == "False"}
    assert staying == told - set(court.deleted())
    assert "v5" in staying


async def test_a_unit_whose_turn_does_not_come_is_not_told() -> None:
    """It is in vain by now: the preemptor has gone while others went."""
    court = Court()
    court.order = replace(court.order, begins=lambda one: one.pods if one.pods[0].metadata.name == "v0" else None)
    await court.perform()
    assert (court.deleted(), bool(court.conditions("v1")), court.refused) == (["v0"], False, [])


async def test_what_is_written() -> None:
    """Condition, nomination, precondition and event, as kube-scheduler has them, and for whom."""
    court = Court()
    await court.perform()
    by = {f"{write.method} {'/'.join(write.path.split('/')[-2:])}": write for write in court.wire.writes}
    (condition,) = by["PATCH v0/status"].body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "DisruptionTarget",
        "True",
        "PreemptionByScheduler",
        SAID,
    )
    assert by["PATCH p0/status"].body["status"] == {"nominatedNodeName": "n1"}
    (shown,) = by["PATCH whole/status"].body["status"]["conditions"]
    assert (shown.type, shown.reason, shown.message) == ("DisruptionTarget", "PreemptionByScheduler", SAID)
    assert by["DELETE pods/v0"].body["preconditions"] == {"uid": "uid-default-v0"}
    event = next(write.body for write in court.wire.writes if write.method == "POST")
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Preempted", "Preempting")
    assert event["note"] == "Preempted by podgroup uid-train: its room is needed"
    related = event["related"]
    assert (related["kind"], related["name"], related["uid"]) == ("PodGroup", "train", "uid-train")


async def test_a_plan_that_does_not_stand_any_more_evicts_nobody() -> None:
    """The nomination is taken back."""
    court = Court()
    court.commits = False
    await court.perform()
    assert court.did()[-1] == "PATCH pods/p0/status"
    assert court.wire.writes[-1].body["status"] == {"nominatedNodeName": None}
    assert not any(write.method == "DELETE" for write in court.wire.writes)


@pytest.mark.parametrize("words", ["no", RIGHTLESS])
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_a_refusal_ends_it(method: str, words: str) -> None:
    """The first of a namespace goes ahead, so that what is forbidden there is found out with one."""
    court = Court()
    forbidden = ApiError(403, "Forbidden", words)
    court.wire.error = lambda write: forbidden if write.method == method and "/v0" in write.path else None
    await court.perform()
    assert court.refused == ["v0"]
    assert not any(write.method == "DELETE" for write in court.wire.writes)


@pytest.mark.parametrize(
    "error",
    [
        ApiError(500, "InternalError", ""),
        ApiError(429, "TooManyRequests", ""),
        ApiError(401, "Unauthorized", ""),
        ApiError(403, "Forbidden", RIGHTLESS),
        ApiError(409, "Conflict", "the object has been modified"),
        ConnectionFailedError("", "", ""),
    ],
)
async def test_what_fails_is_tried_again(error: ClientError) -> None:
    """For as long as the plan stands."""
    court = Court()
    failures: list[Write] = []

    def fail(write: Write) -> ClientError | None:
        failures.append(write)
        return error if len(failures) % 3 else None

    court.wire.error = fail
    await court.perform()
    deleted = [write.path for write in court.wire.writes if write.method == "DELETE"]
    assert (len(deleted), court.refused) == (2, [])


@pytest.mark.parametrize(
    "error",
    [
        ApiError(404, "NotFound", ""),
        ApiError(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b"),
        ApiError(409, "Conflict", "another object has this name: v0"),
    ],
)
async def test_who_is_gone_is_gone(error: ClientError) -> None:
    """Nothing is left to do about such a victim."""
    court = Court()
    court.wire.error = lambda write: error if "/v0" in write.path else None
    await court.perform()
    assert (court.refused, "DELETE pods/v1" in court.did()) == ([], True)


async def test_a_unit_that_was_begun_before_a_restart_is_only_carried_through() -> None:
    """Who has been told is not told again, and nobody is asked."""
    court = Court(known=True)
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=SAID)
    told = replace(pod("v0", node_name="n1"), status=PodStatus(conditions=(condition,)))
    court.order = replace(court.order, victims=[Victim([told, pod("v1", node_name="n1")], "room")])
    await court.perform()
    assert (court.conditions("v0"), len(court.conditions("v1")), court.deleted()) == ([], 1, ["v0", "v1"])
    assert not any("dryRun" in write.body for write in court.wire.writes)


async def test_all_that_was_begun_before_a_restart_is_carried_through() -> None:
    """Also where one pod is refused now: of any other unit somebody may have gone already."""
    court = Court(known=True)
    units = [Victim([pod(f"{unit}{number}", node_name="n1") for number in range(2)], "room") for unit in "abc"]
    court.order = replace(court.order, victims=units, stands=lambda: True)
    forbidden = ApiError(403, "Forbidden", "no")
    court.wire.error = lambda write: forbidden if write.method == "DELETE" and write.path.endswith("/a0") else None
    await court.perform()
    assert (court.refused, sorted(court.deleted())) == (["a0"], ["a1", "b0", "b1", "c0", "c1"])


async def test_who_was_told_for_nothing_is_told_to_stay() -> None:
    """Of nobody, that is no request."""
    court = Court()
    await court.perform(lambda evictor: evictor.retract([pod("v0"), pod("v1")]))
    assert [court.conditions(name)[0]["status"] for name in ("v0", "v1")] == ["False", "False"]
    await court.perform(lambda evictor: evictor.retract([]))
    assert len(court.wire.writes) == 2


async def test_nominations_are_taken_back_when_asked_to() -> None:
    """Of nobody, that is no request."""
    court = Court()
    await court.perform(lambda evictor: evictor.clear([pod("p0"), pod("p1")]))
    assert [write.body["status"] for write in court.wire.writes] == [{"nominatedNodeName": None}] * 2
    await court.perform(lambda evictor: evictor.clear([]))
    assert len(court.wire.writes) == 2


async def test_a_word_that_cannot_be_written_stops_nothing() -> None:
    """Events and conditions of groups are for people."""
    court = Court()
    court.wire.error = lambda write: ApiError(403, "Forbidden", "") if write.method == "POST" else None
    await court.perform()
    assert sum(did.startswith("DELETE") for did in court.did()) == 2
    assert [call.kwargs["event"] for call in court.log.calls] == ["report failed"] * 2


async def test_how_long_it_took_is_counted() -> None:
    """By who preempts, and by how it ended."""
    court = Court()
    await court.perform()
    page = court.metrics.page("").body.decode()
    assert 'preemption_execution_duration_seconds_count{preemptor="podgroup",result="success"} 1.0' in page


def test_a_victim_tells_whose_it_is() -> None:
    """Also to the leader after us."""
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=SAID)
    victim = replace(pod("v"), status=PodStatus(conditions=(condition,)))
    assert is_told(victim, "uid-train")
    assert not is_told(victim, "train")
    assert not is_told(pod("v"), "uid-train")


@pytest.mark.parametrize("kind", ["Pod", "PodGroup", "CompositePodGroup"])
def test_a_victim_tells_whom_it_goes_for(kind: str) -> None:
    """So a leader knows it of the victims of the one before; what others have said is theirs."""
    preemptor = Preemptor(GroupKey(kind, "ml", "big"), "uid-1")
    assert whom("cpg-scheduler", told("cpg-scheduler", preemptor)) == preemptor
    assert whom("cpg-scheduler", told("other-scheduler", preemptor)) is None
    assert whom("cpg-scheduler", "default-scheduler: preempting to accommodate a higher priority pod") is None


async def test_who_was_told_to_stay_is_told_anew_when_he_goes_after_all() -> None:
    """What is known of him may be older than that."""
    court = Court()
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=SAID)
    told = replace(pod("v0", node_name="n1"), status=PodStatus(conditions=(condition,)))
    court.order = replace(court.order, victims=[Victim([told], "room")])

    def again(evictor: Evictor) -> None:
        evictor.retract([told])
        evictor.start(court.order)

    await court.perform(again)
    assert ([one["status"] for one in court.conditions("v0")], court.deleted()) == (["False", "True"], ["v0"])


async def test_a_server_that_always_fails_is_believed_after_a_while() -> None:
    """A webhook that cannot be asked, say: nobody waits for ever, and others may be evicted instead."""
    court = Court()
    court.wire.error = lambda write: ApiError(500, "InternalError", "") if write.path.endswith("pods/v0") else None
    await court.perform()
    assert (court.refused, court.deleted()) == (["v0"], [])
    assert [one["status"] for one in court.conditions("v0")] == ["True", "False"]


async def test_units_that_are_stuck_let_others_begin() -> None:
    """As many cannot be deleted as may be under way, and each is tried again and again."""
    court = Court()
    pods = [pod(f"v{n}", node_name="n1", meta=metadata(f"v{n}", namespace=f"ns{n}")) for n in range(2 * IN_FLIGHT)]
    court.order = replace(court.order, victims=[Victim([one], "room") for one in pods])
    lost = ConnectionFailedError("", "", "")
    stuck = {f"v{number}" for number in range(IN_FLIGHT)}

    def fail(write: Write) -> ClientError | None:
        is_waiting = len(court.deleted()) < IN_FLIGHT and write.method == "DELETE"
        return lost if is_waiting and write.path.rpartition("/")[2] in stuck else None

    court.wire.error = fail
    async with asyncio.timeout(10):
        await court.perform()
    assert (set(court.deleted()[:IN_FLIGHT]) & stuck, len(court.deleted())) == (set(), 2 * IN_FLIGHT)


async def test_a_pod_is_nominated_to_another_node() -> None:
    """Nobody is evicted for that."""
    court = Court()
    await court.perform(lambda evictor: evictor.move([(pod("p0"), "n2")]))
    assert [write.body["status"] for write in court.wire.writes] == [{"nominatedNodeName": "n2"}]


@pytest.mark.parametrize(
    "then",
    [
        ApiError(500, "InternalError", ""),
        ApiError(503, "ServiceUnavailable", ""),
        ConnectionFailedError("", "", ""),
    ],
)
async def test_the_rest_of_a_unit_is_insisted_on(then: ClientError) -> None:
    """The plan is told, once, and does not wait for it; half a unit is not left behind, whatever else fails."""
    court = Court()
    court.unite()
    failures = 0

    def fail(write: Write) -> ClientError | None:
        nonlocal failures
        is_it = write.method == "DELETE" and "dryRun" not in write.body and write.path.endswith("/v1")
        failures += is_it
        found = ApiError(500, "InternalError", "") if failures <= DOUBTS + 1 else then
        return found if is_it and failures < 3 * DOUBTS else None

    court.wire.error = fail
    await court.perform()
    assert (court.refused, court.deleted(), court.marks()) == (["v1"], ["v0", "v1"], ["True"])


async def test_a_unit_of_which_nobody_has_gone_is_not_insisted_on() -> None:
    """It would go in vain when the server is well again."""
    court = Court()
    court.unite()
    failed = ApiError(500, "InternalError", "")
    court.wire.error = lambda write: failed if write.method == "DELETE" and "dryRun" not in write.body else None
    await court.perform()
    assert (set(court.refused), court.deleted(), court.marks()) == ({"v0", "v1"}, [], ["True", "False"])


async def test_the_last_of_a_unit_is_insisted_on() -> None:
    """The others have gone by themselves, or before a restart."""
    court = Court()
    court.unite()
    court.order = replace(court.order, begins=lambda one: one.pods[1:])
    failures = 0

    def fail(write: Write) -> ClientError | None:
        nonlocal failures
        is_it = write.method == "DELETE" and "dryRun" not in write.body
        failures += is_it
        return ApiError(500, "InternalError", "") if is_it and failures < 2 * DOUBTS else None

    court.wire.error = fail
    await court.perform()
    assert (court.refused, court.deleted()) == (["v1"], ["v1"])


async def test_a_unit_of_which_nobody_is_left_is_told_nothing() -> None:
    """All have come to their end when its turn comes."""
    court = Court()
    court.unite()
    court.order = replace(court.order, begins=lambda _: ())
    await court.perform()
    assert (court.deleted(), court.marks(), court.refused) == ([], [], [])


async def test_who_drops_a_plan_that_is_performed_takes_its_nominations_back() -> None:
    """A unit of it is another by now, say."""
    court = Court()

    def begins(_: Victim) -> None:
        evictor.clear([court.order.nominations[0][0]])

    court.order = replace(court.order, begins=begins)
    evictor = cast("Evictor", None)

    def start(one: Evictor) -> None:
        nonlocal evictor
        evictor = one
        one.start(court.order)

    await court.perform(start)
    said = [write.body["status"] for write in court.wire.writes if write.path.endswith("p0/status")]
    assert said[0] == {"nominatedNodeName": "n1"}
    assert said[-1] == {"nominatedNodeName": None}
