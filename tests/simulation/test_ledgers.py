"""The ledger of a scheduler is compared with the pods that it has, and with the binds that it has sent."""

import json
from collections.abc import Callable

import pytest

from cpg_engine.testing.builders import node, pod
from cpg_scheduler.testing.cache import with_fields
from cpg_scheduler.testing.stage import Stage
from cpg_simulation.apiserver.values import Request
from cpg_simulation.ledgers import LedgerWatch

PATH = "/api/v1/namespaces/default/pods/p"
LIVING = ("scheduler-0",)


def request(method: str, path: str, uid: str = "") -> Request:
    """Return a request of the scheduler; with a UID it is a bind."""
    body = {"metadata": {"uid": uid}, "target": {"name": "n1"}}
    return Request(method=method, path=path, body=json.dumps(body).encode() if uid else b"", user="scheduler-0")


class BoundStage:
    """A scheduler that has assumed a pod and sent its bind."""

    def __init__(self) -> None:
        self.stage = Stage(node("n1"), pod("p", cpu=1))
        self.uid = self.stage.pod("p").metadata.uid
        self.stage.cache.assume(self.uid, "n1")
        self.watch = LedgerWatch()
        self.watch.note("scheduler-0", self.stage.cache)
        self.bind = request("POST", f"{PATH}/binding", self.uid)
        self.watch.sent(self.bind)

    def differences(self) -> list[str]:
        """Return the differences, in words."""
        return list(self.watch.differences(LIVING))


def test_an_assumption_that_ends_too_early_is_a_difference() -> None:
    """While the bind is under way, its room is not free, whatever the process takes for assumed."""
    found = BoundStage()
    assert found.differences() == []
    found.stage.cache.forget(found.uid)
    (difference,) = found.differences()
    assert difference.startswith("the ledger of scheduler-0 has {} used on n1, its pods use {'cpu': 1000")


@pytest.mark.parametrize(
    "end",
    [
        lambda found: found.watch.refused(found.bind),
        lambda found: found.watch.sent(request("GET", PATH)),
        lambda found: found.watch.restored(),
        lambda found: found.watch.note("scheduler-0", found.stage.cache),
    ],
    ids=["refused", "read", "restored", "restarted"],
)
def test_a_bind_counts_until_its_process_may_know_better(end: Callable[[BoundStage], None]) -> None:
    """It was refused, its pod is read, etcd was restored, or another process has started."""
    found = BoundStage()
    found.stage.cache.forget(found.uid)
    end(found)
    assert found.differences() == []


def test_a_pod_that_ends_gives_its_room_back_at_once() -> None:
    """Its bind can have no effect any more."""
    found = BoundStage()
    ending = with_fields(found.stage.pod("p"), metadata__deletion_timestamp="2026-11-20T00:00:00Z")
    found.stage.put(ending)
    assert found.differences() == []
