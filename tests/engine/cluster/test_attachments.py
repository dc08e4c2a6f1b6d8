"""The tally of claims in use and of attached volumes."""

import pytest

from cpg_api.core.pod import Pod
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.volumes import VolumeHandle
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import (
    DRIVER,
    LOCAL,
    claim,
    csi_node,
    inline,
    stock,
    storage_class,
    using,
    volume,
)


@pytest.fixture
def ledger() -> Ledger:
    """Return two nodes, and two claims for the same CSI volume beside one of its own."""
    ledger = Ledger()
    ledger.put_node(node("n1"))
    ledger.put_node(node("n2"))
    stock(
        ledger.storage, *(volume(f"v-{name}", handle=handle) for name, handle in (("a", "h"), ("b", "h"), ("c", "i")))
    )
    stock(ledger.storage, *(claim(name, bound_to=f"v-{name}") for name in "abc"))
    stock(ledger.storage, csi_node("n1", limit=9), csi_node("n2", limit=9))
    return ledger


def attached(ledger: Ledger) -> list[int]:
    """Return how many volumes each of the two nodes has."""
    column = ledger.attachments.attached(DRIVER)
    return [int(column[ledger.cluster.row_of[name]]) for name in ("n1", "n2") if name in ledger.cluster.row_of]


def user(name: str, *claims: str, drivers: tuple[str, ...] = ()) -> Pod:
    """Return a pod that uses these claims."""
    return pod(name, volumes=(*using(*claims), *inline(*drivers)))


def test_a_volume_is_attached_once(ledger: Ledger) -> None:
    """However many pods and claims use it, it counts once per node."""
    ledger.put_pod(user("p", "a"), "n1")
    assert attached(ledger) == [1, 0]
    ledger.put_pod(user("q", "a", "b", "c"), "n1")
    ledger.put_pod(user("r", "b"), "n2")
    assert attached(ledger) == [2, 1]
    assert ledger.attachments.rows_with(VolumeHandle(DRIVER, "h")) == [
        ledger.cluster.row_of["n1"],
        ledger.cluster.row_of["n2"],
    ]
    ledger.remove_pod("uid-default-q")
    assert attached(ledger) == [1, 1]
    ledger.remove_pod("uid-default-p")
    assert attached(ledger) == [0, 1]
    assert ledger.attachments.users == {"default/b": 1}


def test_inline_volumes_count_each(ledger: Ledger) -> None:
    """Each is made for one pod, so none is shared."""
    ledger.put_pod(user("p", drivers=(DRIVER, DRIVER)), "n1")
    assert attached(ledger) == [2, 0]
    ledger.put_pod(user("q", "a", drivers=(DRIVER,)), "n1")
    assert attached(ledger) == [4, 0]
    ledger.remove_pod("uid-default-p")
    assert attached(ledger) == [2, 0]


def test_a_claim_that_becomes_bound_counts_as_its_volume(ledger: Ledger) -> None:
    """Until then it counts with the driver that will provision it; an unknown claim counts for nothing."""
    ledger.put_pod(user("p", "new", "a"), "n1")
    assert attached(ledger) == [1, 0]
    stock(ledger.storage, storage_class(provisioner=DRIVER), claim("new"))
    assert attached(ledger) == [2, 0]
    stock(ledger.storage, claim("new", bound_to="v-a"))
    assert attached(ledger) == [1, 0]


def test_removing_a_node_removes_its_volumes(ledger: Ledger) -> None:
    """When the node comes back, its pods have them again."""
    ledger.put_pod(user("p", "a", drivers=(DRIVER,)), "n1")
    ledger.put_pod(user("q", "a"), "n2")
    assert attached(ledger) == [2, 1]
    ledger.remove_node("n1")
    assert attached(ledger) == [1]
    assert ledger.attachments.users == {"default/a": 1}
    ledger.put_node(node("n1"))
    assert attached(ledger) == [2, 1]


def test_drivers_without_limits_are_not_counted(ledger: Ledger) -> None:
    """A driver that gets a limit counts what is attached already."""
    ledger.put_pod(user("p", "a", drivers=("free",)), "n1")
    assert list(ledger.attachments.limits()) == [DRIVER]
    ledger.put_pod(user("q", drivers=("free", "invented")), "n1")
    stock(ledger.storage, csi_node("n1", limit=9, driver="free"))
    assert ledger.attachments.attached("free")[ledger.cluster.row_of["n1"]] == 2
    assert set(ledger.attachments.limits()) == {"free", DRIVER}
    ledger.put_pod(user("r", "b"), "n2")
    ledger.remove_pod("uid-default-q")
    assert ledger.attachments.attached("free")[ledger.cluster.row_of["n1"]] == 1


def test_limits_are_those_of_known_nodes(ledger: Ledger) -> None:
    """A driver without a limit on any node is left out; where a node has no limit, no number is too large."""
    stock(ledger.storage, csi_node("n1", limit=3), csi_node("gone", limit=1), csi_node("n2", driver="free"))
    limits = ledger.attachments.limits()
    assert list(limits) == [DRIVER]
    assert limits[DRIVER][ledger.cluster.row_of["n1"]] == 3
    assert limits[DRIVER][ledger.cluster.row_of["n2"]] > 10**6


def test_pods_without_volumes_leave_no_trace(ledger: Ledger) -> None:
    """The tally ignores them."""
    ledger.attachments.add(ledger.class_of(pod("p")), 0, 1)
    assert ledger.attachments.users == {}
    assert LOCAL not in ledger.attachments.limits()
