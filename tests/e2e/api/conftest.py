"""Cases from YAML, and the API servers that they run against.

A session runs one API server for each version that we support and one for the native API.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import pytest_asyncio
import yaml

from cpg_api.scheduling.names import API_VERSION, GROUP, NATIVE_GROUP, VERSION
from cpg_client.connection import JSON_PATCH, Connection
from cpg_client.errors import ApiError
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

CASES = Path(__file__).parent / "cases"
CRDS = Path(__file__).parents[3] / "manifests" / "crds"
PRIORITY_CLASSES = (
    ("high", 1000, "PreemptLowerPriority"),
    ("highest", 1_000_000_000, "PreemptLowerPriority"),
    ("lowest", -5, "PreemptLowerPriority"),
    ("meek", 500, "Never"),
)
PLURALS = {"Workload": "workloads", "PodGroup": "podgroups", "CompositePodGroup": "compositepodgroups"}

Expectation = Literal["accepted", "refused"]
Object = dict[str, Any]


class Native(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Differences of scheduling.k8s.io, and their reason; ``skip`` where there is nothing to compare."""

    why: str
    expect: Expectation | None = None
    message: str = ""
    field: str = ""
    stored: Object | None = None
    skip: bool = False


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One object and the expected answer; ``cases/README.md`` explains the fields."""

    name: str
    rule: str = ""
    object: Object = {}
    whole: Object | None = None
    update: Object | list[Object] | None = None
    status: Object | None = None
    expect: Expectation
    message: str = ""
    field: str = ""
    stored: Object | None = None
    validation: Literal["Strict", "Warn", "Ignore"] = "Strict"
    native: Native | None = None

    kind: str = ""
    base: Object = {}
    file: str = ""
    index: int = 0

    @property
    def id(self) -> str:
        """The name of the case in pytest."""
        return f"{self.file}-{self.rule or 'extra'}-{self.name}".replace(" ", "-")

    @property
    def object_name(self) -> str:
        """The name of the object, from the case or generated."""
        return str(self.body["metadata"]["name"])

    @property
    def body(self) -> Object:
        """The object to create."""
        given = self.whole if self.whole is not None else merged(self.base, self.object)
        return {"metadata": {"name": f"{self.file}-{self.index}"}, **given}

    def on_native(self) -> "Case":
        """Return the case with the answer expected from the native API; messages are not compared, fields are."""
        if self.native is None:
            return msgspec.structs.replace(self, message="")
        return msgspec.structs.replace(
            self,
            expect=self.native.expect or self.expect,
            message=self.native.message,
            field=self.native.field,
            stored=self.native.stored if self.native.stored is not None else self.stored,
        )


class CaseFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of cases of one kind, all derived from one valid object."""

    kind: Literal["Workload", "PodGroup", "CompositePodGroup"]
    base: Object
    cases: list[Case]


def merged(base: Object, patch: Object) -> Object:
    """Return an object with a JSON merge patch applied: null removes, lists are replaced."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def load_cases() -> Iterator[Case]:
    """Yield the cases of all files, each with its file and index."""
    for path in sorted(CASES.glob("*.yaml")):
        file = msgspec.convert(yaml.safe_load(path.read_text()), CaseFile)
        for index, case in enumerate(file.cases):
            yield msgspec.structs.replace(case, kind=file.kind, base=file.base, file=path.stem, index=index)


FULL: dict[str, Object] = yaml.safe_load((CASES.parent / "full.yaml").read_text())
ALL_CASES = tuple(load_cases())
COMPARABLE_CASES = tuple(case for case in ALL_CASES if case.native is None or not case.native.skip)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that take a case."""
    for fixture, cases in (("case", ALL_CASES), ("comparable_case", COMPARABLE_CASES)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, cases, ids=[case.id for case in cases])


class Api:
    """The three kinds of one API group, at one API server."""

    def __init__(self, connection: Connection, group: str = GROUP) -> None:
        self.connection = connection
        self.group = group

    def path(self, kind: str, *rest: str) -> str:
        """Return the path of a kind in the default namespace, or of something below it."""
        return "/".join((f"/apis/{self.group}/{VERSION}/namespaces/default/{PLURALS[kind]}", *rest))

    async def create(self, kind: str, body: Object, validation: str = "Strict") -> Object:
        """Create an object; by default unknown fields are refused."""
        whole = {"apiVersion": f"{self.group}/{VERSION}", "kind": kind, **body}
        return decoded(await self.connection.post(self.path(kind), whole, {"fieldValidation": validation}))

    async def read(self, kind: str, name: str) -> Object:
        """Read an object."""
        return decoded(await self.connection.get(self.path(kind, name)))

    async def change(
        self, kind: str, name: str, patch: Object | list[Object], *below: str, validation: str = "Strict"
    ) -> Object:
        """Patch an object or a subresource of it: a list is a JSON patch, anything else a merge patch."""
        path, params = self.path(kind, name, *below), {"fieldValidation": validation}
        if isinstance(patch, list):
            return decoded(await self.connection.patch(path, patch, JSON_PATCH, params=params))
        return decoded(await self.connection.patch(path, patch, params=params))

    async def install(self) -> None:
        """Install the CustomResourceDefinitions and wait until they are served."""
        for path in sorted(CRDS.glob("*.yaml")):
            await self.connection.post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text())
            )
        for kind in PLURALS:
            await self._served(kind)

    async def add_classes(self) -> None:
        """Create the priority classes of the cases; the native API requires them."""
        for name, value, policy in PRIORITY_CLASSES:
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            await self.connection.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)

    async def _served(self, kind: str) -> None:
        for _ in range(100):
            try:
                await self.connection.get(self.path(kind))
            except ApiError as error:
                if error.status not in (404, 503):
                    raise
                await asyncio.sleep(0.1)
            else:
                return
        pytest.fail(f"{kind} of {API_VERSION} is not served")


def decoded(answer: bytes) -> Object:
    """Return an answer as a JSON object."""
    return msgspec.json.decode(answer, type=dict[str, Any])


@pytest.fixture(scope="package", params=["1.37", "1.30"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run an API server of the newest and of the oldest supported version."""
    with Cluster(ClusterSpec(kubernetes=request.param)) as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """Install our API from the generated files."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        served = Api(connection)
        await served.add_classes()
        await served.install()
        yield served


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def native_api() -> AsyncIterator[Api]:
    """Run an API server of 1.37 with the native feature gates, and access its native API."""
    with Cluster(ClusterSpec(gates="native")) as running:
        async with Connection.from_kubeconfig(running.kubeconfig) as connection:
            served = Api(connection, NATIVE_GROUP)
            await served.add_classes()
            yield served


@pytest.fixture
def cases() -> tuple[Case, ...]:
    """Return all cases."""
    return ALL_CASES


@pytest.fixture(params=FULL.items(), ids=list(FULL))
def full(request: pytest.FixtureRequest) -> tuple[str, Object]:
    """Return a kind, and an object of it with every field set."""
    kind, body = request.param
    return kind, body


@pytest.fixture
def crd_files() -> dict[str, Path]:
    """Return the file of each kind's definition."""
    return {kind: CRDS / f"{GROUP}_{plural}.yaml" for kind, plural in PLURALS.items()}
