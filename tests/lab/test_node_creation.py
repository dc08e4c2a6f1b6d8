"""Creating nodes, against a connection that records requests."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_lab import node_creation
from cpg_lab.errors import DescriptionError, LabError
from cpg_lab.nodes import NodePool


class Recorder:
    """A connection that records what is posted, and how many requests are concurrent."""

    refused = ""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.now = self.most = 0

    async def __aenter__(self) -> Self:
        """Open nothing."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close nothing."""

    async def post(self, path: str, body: dict[str, dict[str, str]]) -> bytes:
        """Record a node."""
        assert path == "/api/v1/nodes"
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        name = body["metadata"]["name"]
        if name == self.refused:
            raise ApiError(409, "AlreadyExists", f'nodes "{name}" already exists')
        self.names.append(name)
        return b""


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Replace every connection by the recorder."""
    connection = Recorder()
    monkeypatch.setattr(Connection, "from_kubeconfig", lambda _: connection)
    return connection


def test_every_node_is_created_once(recorder: Recorder) -> None:
    """The nodes of all pools, many at a time but not all."""
    pools = [NodePool.parse("10 racks x 50 nodes"), NodePool.parse("3 nodes, name=gpu")]
    assert node_creation.create_nodes(Path("/kubeconfig"), pools) == 503
    assert sorted(recorder.names) == sorted([*pools[0].names(), *pools[1].names()])
    assert 8 < recorder.most < 100


def test_an_error_of_the_server_is_reported(recorder: Recorder) -> None:
    """With its message."""
    recorder.refused = "node-2"
    with pytest.raises(LabError, match=r'1 of 4 nodes were not created; the first: .*nodes "node-2" already exists'):
        node_creation.create_nodes(Path("/kubeconfig"), [NodePool.parse("4 nodes")])


def test_names_are_checked_first(recorder: Recorder) -> None:
    """Pools that share a name create no node at all."""
    pool = NodePool.parse("4 nodes")
    with pytest.raises(DescriptionError):
        node_creation.create_nodes(Path("/kubeconfig"), [pool, pool])
    assert recorder.names == []
