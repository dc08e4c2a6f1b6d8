"""The reflectors of pods, nodes and priority classes, and what is done where something may not be listed."""

from typing import cast

import pytest

from cpg_api.integrations.registry import RULES, Integrations
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import KINDS
from cpg_client.stores import Synced
from cpg_client.timing import Timing
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.sources.reflectors import ClusterAccess, Reflectors, find_access
from cpg_operator.sources.rejections import Rejections
from cpg_operator.testing.fixtures import ViewFixture


class Server:
    """Answers LISTs, or refuses them."""

    timing = Timing()

    def __init__(self, **refused: int) -> None:
        """Refuse some resources, by plural, with a status."""
        self._refused = refused

    async def get(self, path: str, *_: object) -> bytes:
        """Answer."""
        status = self._refused.get(path.rpartition("/")[2])
        if status is not None:
            raise ApiError(status, "Reason", "message", request="GET")
        return b"{}"


def connection(**refused: int) -> Connection:
    """Return a connection to a server that refuses some resources."""
    return cast("Connection", Server(**refused))


def reflectors(fixture: ViewFixture) -> Reflectors:
    """Return what builds the reflectors of a view."""
    return Reflectors(connection(), fixture.view, Rejections(OperatorMetrics()), Integrations([SCHEDULER_NAME], RULES))


async def test_with_all_rights_everything_is_reflected() -> None:
    """Pods of all namespaces, nodes, priority classes."""
    access = await find_access(connection())
    paths = [one.source.path for one in reflectors(ViewFixture()).build((), access)]
    assert paths == ["/api/v1/pods", "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses"]


async def test_without_rights_on_the_cluster_pods_alone_are_reflected() -> None:
    """Namespace by namespace: then there are no domains, and no priority class counts as missing."""
    access = await find_access(connection(nodes=403, priorityclasses=403))
    assert access == ClusterAccess(nodes=False, priority_classes=False)
    paths = [one.source.path for one in reflectors(ViewFixture()).build(("x", "y"), access)]
    assert paths == ["/api/v1/namespaces/x/pods", "/api/v1/namespaces/y/pods"]


async def test_another_error_is_no_refusal() -> None:
    """The caller tries again."""
    with pytest.raises(ApiError):
        await find_access(connection(nodes=500))


def test_a_namespace_has_been_read_once_its_pods_have() -> None:
    """And all groups and Workloads, by the sweep."""
    fixture = ViewFixture("x")
    for flavour, kinds in KINDS.items():
        for kind in kinds:
            fixture.view.mark_read("x", (flavour, kind))
    pods = next(reflectors(fixture).build(("x",), ClusterAccess()))
    assert fixture.view.is_unread("x")
    pods._on_change(Synced())
    assert not fixture.view.is_unread("x")
