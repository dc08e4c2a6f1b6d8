"""The simulated API server answers random sequences of requests as a real one does.

A sequence has a namespace of its own. After each step, both have the same answer and the same object; at the end, the
same lists and the same events. Differences that are none: UIDs, times, and by how much a version grows.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.simulation.openapi_schemas import FILE, schemas_of
from tests.e2e.simulation.request_cases import KINDS, Step, creation, generate
from tests.e2e.simulation.worlds import Plain, RealWorld, SimulatedWorld, World

from cpg_client import resources
from cpg_client.resources import Resource
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster

SEQUENCES = int(os.environ.get("SEQUENCES", "15"))
SEED = int(os.environ.get("SEED", "1"))
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

pytestmark = pytest.mark.e2e


def test_the_schemas_are_those_of_kubernetes(real: BlockingClient) -> None:
    """With REWRITE_GOLDEN=1 they are written anew."""
    found = schemas_of(real)
    if os.environ.get("REWRITE_GOLDEN"):
        FILE.write_bytes(found)
    assert FILE.read_bytes() == found


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("seed", range(SEED, SEED + SEQUENCES))
def test_both_answer_alike(cluster: Cluster, seed: int) -> None:
    """``SEQUENCES`` and ``SEED`` choose more, or others."""
    worlds = RealWorld(cluster.access, f"sequence-{seed}"), SimulatedWorld(f"sequence-{seed}")
    for world in worlds:
        body = f'{{"metadata":{{"name":"{world.namespace}"}}}}'.encode()
        assert world.request("POST", resources.NAMESPACES.path(), {}, body, "application/json")[0] == 201
    comparison = Comparison(worlds)
    for step in (*generate(seed), *(creation(one, "sentinel") for one in KINDS)):
        comparison.play(step)
    for resource in KINDS:
        comparison.read(resource)
    worlds[0].close()


class Comparison:
    """Plays the same requests in two worlds."""

    def __init__(self, worlds: tuple[World, World]) -> None:
        """Begin where both are."""
        self._worlds = worlds
        self._log: list[str] = []
        self._began = [self._version(world) for world in worlds]

    def play(self, step: Step) -> None:
        """Send a step, and compare the answers and the object after it."""
        name = step.name or step.body["metadata"]["name"]
        answers = [world.send(step) for world in self._worlds]
        self._log.append(f"{answers[0][0]} {step}")
        if {code for code, _ in answers} == {422}:
            assert _is_cause(*(found for _, found in answers)), self._log[-1]
        else:
            self._compare("answers", *(_plain_answer(*answer) for answer in answers))
        looked = [world.look(step.resource, name) for world in self._worlds]
        self._compare("objects", *(_plain_answer(*found) for found in looked))
        self._compare("new versions", *(world.is_changed(step.resource, name) for world in self._worlds))

    def read(self, resource: Resource) -> None:
        """Compare the lists of a resource and its events since the beginning."""
        lists, events, matching = [], [], []
        for world, began in zip(self._worlds, self._began, strict=True):
            path, query = resource.path(world.namespace), {"watch": "true", "resourceVersion": began}
            lists.append([_plain_list(*found) for found in _pages(world, resource)])
            events.append(_plain_events(world.watch(path, query)))
            matching.append(_plain_events(world.watch(path, query | {"labelSelector": "color in (red, green)"})))
        self._compare("lists", *lists)
        self._compare("events", *events)
        self._compare("events of a selector", *matching)

    def _compare(self, what: str, real: object, simulated: object) -> None:
        assert simulated == real, f"{what} differ after\n" + "\n".join(self._log[-12:])

    @staticmethod
    def _version(world: World) -> str:
        path = resources.PODS.path(world.namespace)
        return str(
            world.request("GET", path, {"limit": "1"}, b"", "application/json")[1]["metadata"]["resourceVersion"]
        )


def _is_cause(real: Plain, simulated: Plain) -> bool:
    """Return whether an invalid field is one of those of the real server, which finds all of them."""
    fields = [[cause["field"] for cause in one.get("details", {}).get("causes", ())] for one in (real, simulated)]
    return all(any(field.startswith(one) for field in fields[0]) for one in fields[1])


def _pages(world: World, resource: Resource) -> Iterator[tuple[int, Plain]]:
    """Yield the pages of a list; an object that is created after the first page is in none of them."""
    token, path = "", resource.path(world.namespace)
    while True:
        query = {"limit": "1"} | ({"continue": token} if token else {})
        code, page = world.request("GET", path, query, b"", "application/json")
        yield code, page
        token = page["metadata"].get("continue", "")
        if not token:
            return
        world.send(creation(resource, "late"))


def _plain_list(code: int, page: Plain) -> object:
    items = [(one.get("kind"), _plain_object(one)) for one in page["items"]]
    return code, page["kind"], page["apiVersion"], items, page["metadata"].get("remainingItemCount")


def _plain_events(events: Any) -> object:  # noqa: ANN401  # JSON values
    ranks = {version: rank for rank, version in enumerate(_versions(events))}
    return [
        (one["type"], ranks[one["object"]["metadata"]["resourceVersion"]], _plain_object(one["object"]))
        for one in events
    ]


def _versions(events: Any) -> list[str]:  # noqa: ANN401  # JSON values
    return sorted({one["object"]["metadata"]["resourceVersion"] for one in events}, key=int)


def _plain_answer(code: int, found: Plain) -> object:
    if found.get("kind") != "Status":
        return code, _plain_object(found)
    details = found.get("details", {})
    causes = [(one.get("reason"), one.get("field")) for one in details.get("causes", ())]
    names = {name: details.get(name) for name in ("name", "kind", "group")}
    return code, found.get("reason"), found["status"], names, sorted(causes)


def _plain_object(found: Plain) -> object:
    """Return an object without what differs always; an absent field is null."""
    metadata = {
        name: one
        for name, one in found["metadata"].items()
        if name not in {"uid", "resourceVersion", "managedFields", "creationTimestamp"}
    }
    nominators = {
        one["manager"]
        for one in found["metadata"].get("managedFields", ())
        if "f:nominatedNodeName" in one["fieldsV1"].get("f:status", ()) and "nominatedNodeName" in found["status"]
    }
    return _plain_value({**found, "metadata": metadata, "nominators": sorted(nominators)})


def _plain_value(value: Any) -> Any:  # noqa: ANN401  # JSON values
    if isinstance(value, dict):
        return {name: _plain_value(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_plain_value(one) for one in value]
    return "a time" if isinstance(value, str) and TIME.fullmatch(value) else value
