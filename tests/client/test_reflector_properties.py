"""For any changes and failures in any order, a reflector ends with the objects of the server.

The server is a model in place of a connection, so that hypothesis chooses every cut.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.core.pod import Pod
from cpg_client.connection import Connection, Params
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import PODS
from cpg_client.stores import Added, Change, Deleted, Modified, Rejection, Synced
from cpg_client.timing import Timing, cancel_and_wait

Act = Literal["put", "delete", "anew", "spoil"]
Ending = Literal["close", "cut", "garbage", "gone", "error", "refuse", "lose", "compact"]
Kept = tuple[str, str]


class Phase(NamedTuple):
    """What happens during one request, and how it ends."""

    acts: list[tuple[Act, str]]
    ending: Ending
    at: int


PHASES = st.lists(
    st.builds(
        Phase,
        acts=st.lists(st.tuples(st.sampled_from(Act.__args__), st.sampled_from("abcde")), max_size=6),  # type: ignore[attr-defined]
        ending=st.sampled_from(Ending.__args__),  # type: ignore[attr-defined]
        at=st.integers(0, 2000),
    ),
    max_size=14,
)


class ModelServer(Connection):
    """An API server that runs through phases, one for each request, and is healthy after the last."""

    def __init__(self, phases: list[Phase]) -> None:
        super().__init__(Endpoint(server="http://model"), timing=Timing(sleep=lambda _: asyncio.sleep(0)))
        self.phases = list(reversed(phases))
        self.version, self.floor = 1, 0
        self.objects: dict[str, dict[str, object]] = {}
        self.log: list[tuple[int, bytes]] = []
        self.snapshots: dict[str, tuple[int, list[object]]] = {}
        self.told_all = asyncio.Event()

    def expected(self) -> tuple[dict[str, Kept], set[str]]:
        """Return the objects to keep in the end, and those to reject."""
        specs = {
            f"ns/{name}": msgspec.convert(made, dict[str, dict[str, object]]) for name, made in self.objects.items()
        }
        good = {key for key, made in specs.items() if made["spec"]["nodeName"] != 7}
        return {
            key: (str(made["metadata"]["uid"]), str(made["spec"]["nodeName"]))
            for key, made in specs.items()
            if key in good
        }, specs.keys() - good

    def live(self, acts: list[tuple[Act, str]]) -> None:
        """Apply changes to the objects."""
        for act, name in acts:
            if act in {"delete", "anew"} and name in self.objects:
                self._log("DELETED", name)
                del self.objects[name]
            if act == "delete":
                continue
            kind = "MODIFIED" if name in self.objects else "ADDED"
            uid = self._metadata(name)["uid"] if name in self.objects else str(self.version)
            metadata = {"name": name, "namespace": "ns", "uid": uid}
            node = 7 if act == "spoil" else f"node-{self.version}"
            self.objects[name] = {"metadata": metadata, "spec": {"nodeName": node}}
            self._log(kind, name)

    def _metadata(self, name: str) -> dict[str, str]:
        return msgspec.convert(self.objects[name]["metadata"], dict[str, str])

    def _log(self, kind: str, name: str) -> None:
        self.version += 1
        made = self.objects[name] | {"metadata": self._metadata(name) | {"resourceVersion": str(self.version)}}
        self.objects[name] = made
        self.log.append((self.version, msgspec.json.encode({"type": kind, "object": made}) + b"\n"))

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """Answer a LIST, two objects at a time."""
        phase = self.phases.pop() if self.phases else Phase([], "close", 0)
        token = str((params or {}).get("continue", ""))
        if phase.ending in {"refuse", "error"}:
            raise ApiError(500, "InternalError", "")
        if phase.ending in {"lose", "cut"}:
            raise ConnectionFailedError("model", path, "lost")
        if phase.ending == "gone" and token:
            raise ApiError(410, "Expired", "")
        if phase.ending == "garbage":
            return b"garbage"
        version, rest = self.snapshots.pop(token) if token else (self.version, list[object](self.objects.values()))
        self.live(phase.acts)
        more = f"token-{len(self.snapshots)}-{self.version}" if len(rest) > 2 and (params or {}).get("limit") else ""
        if more:
            self.snapshots[more] = (version, rest[2:])
        metadata = {"resourceVersion": str(version), "continue": more}
        return msgspec.json.encode({"metadata": metadata, "items": rest[:2] if more else rest})

    async def stream(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        """Answer a WATCH, in chunks of odd sizes."""
        since = int((params or {})["resourceVersion"])
        phase = self.phases.pop() if self.phases else None
        if phase is not None and phase.ending == "refuse":
            raise ApiError(429, "TooManyRequests", "", retry_after=1)
        if since < self.floor:
            raise ApiError(410, "Expired", "")
        yield b""
        self.live(phase.acts if phase else [])
        data = b"".join(event for version, event in self.log if version > since) + self._tail(phase)
        if phase and phase.ending in {"cut", "lose", "compact"}:
            data = data[: phase.at]
        size = (phase.at if phase else 0) % 97 + 1
        for at in range(0, len(data), size):
            yield data[at : at + size]
        if phase is None:
            self.told_all.set()
            await asyncio.Event().wait()
        elif phase.ending in {"cut", "lose"}:
            raise ConnectionFailedError("model", path, "cut")
        elif phase.ending == "compact":
            self.floor = self.version

    def _tail(self, phase: Phase | None) -> bytes:
        """Return what follows the events: sometimes a bookmark, an error, or unknown data."""
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
        tails: dict[str, bytes] = {
            "close": msgspec.json.encode(bookmark) + b"\n",
            "gone": b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n',
            "error": b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n',
            "garbage": b"<html>\n",
        }
        return tails.get(phase.ending, b"") if phase else b""


class ReplayedStore:
    """Applies the changes one by one, and checks that each follows from those before."""

    def __init__(self) -> None:
        self.objects: dict[str, Kept] = {}
        self.versions: dict[str, int] = {}
        self.synced = False

    def apply(self, change: Change[Kept]) -> None:
        """Apply a change to the result of the changes before it."""
        match change:
            case Added(key, new):
                assert key not in self.objects
                self._advance(key, new)
            case Modified(key, old, new):
                assert old == self.objects[key] != new
                assert old[0] == new[0]
                self._advance(key, new)
            case Deleted(key, old):
                assert old == self.objects.pop(key)
            case Rejection(key):
                assert key not in self.objects
            case Synced():
                assert not self.synced
                self.synced = True

    def _advance(self, key: str, new: Kept) -> None:
        """Take a new version, which must be later than all before; the name of its node has the number."""
        version = int(new[1].removeprefix("node-"))
        assert version > self.versions.get(key, 0)
        self.versions[key], self.objects[key] = version, new


@settings(max_examples=300)
@given(PHASES)
def test_the_store_ends_with_the_objects_of_the_server(phases: list[Phase]) -> None:
    """The changes lead there step by step, none lost and none repeated."""

    async def live() -> None:
        world, replay = ModelServer(phases), ReplayedStore()
        source = Source(resource=PODS, kind=Pod, project=lambda pod: (pod.metadata.uid, pod.spec.node_name))

        def step(change: Change[Kept]) -> None:
            replay.apply(change)
            assert replay.objects == dict(reflector.objects)

        reflector = Reflector(world, source, step)
        task = asyncio.create_task(reflector.run())
        telling = asyncio.create_task(world.told_all.wait())
        await asyncio.wait({task, telling}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done() or task.result()
        await cancel_and_wait(task)
        assert telling.done()
        assert replay.synced
        assert (dict(reflector.objects), set(reflector.rejected)) == world.expected()

    asyncio.run(live())
