"""Making nodes, against a connection that only writes down what it is sent."""

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
    """A connection that notes what was posted, and how much of it at once."""

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
        """Take a node."""
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
    """Put the recorder in the place of every connection."""
    connection = Recorder()
    monkeypatch.setattr(Connection, "from_kubeconfig", lambda _: connection)
    return connection


def test_every_node_is_made_once(recorder: Recorder) -> None:
    """All nodes of all pools are posted, many at once but not all."""
    pools = [NodePool.parse("10 racks x 50 nodes"), NodePool.parse("3 nodes, name=gpu")]
    assert node_creation.create_nodes(Path("/kubeconfig"), pools) == 503
    assert sorted(recorder.names) == sorted([*pools[0].names(), *pools[1].names()])
    assert 8 < recorder.most < 100


def test_a_refusal_is_reported(recorder: Recorder) -> None:
    """The server's words are in the error."""
    recorder.refused = "node-2"
    with pytest.raises(LabError, match=r'1 of 4 nodes were not made; the first: .*nodes "node-2" already exists'):
        node_creation.create_nodes(Path("/kubeconfig"), [NodePool.parse("4 nodes")])


def test_names_are_checked_before_anything_is_made(recorder: Recorder) -> None:
    """Pools that share a name make no node at all."""
    pool = NodePool.parse("4 nodes")
    with pytest.raises(DescriptionError):
        node_creation.create_nodes(Path("/kubeconfig"), [pool, pool])
    assert recorder.names == []
