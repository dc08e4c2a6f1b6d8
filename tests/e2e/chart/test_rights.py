"""The rights of the chart's accounts, checked for every verb on every resource that the API server serves."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
import yaml

from cpg_api.integrations.registry import RULES
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.endpoint import Credentials
from cpg_client.errors import ApiError
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "charts" / "kube-cpg" / "files" / "roles"
NEEDS = Path(__file__).with_name("needs.yaml")
PARTS = ("scheduler", "operator", "release")
INTEGRATIONS = ("jobset", "leaderworkerset", "disaggregatedset", "raycluster", "job", "deployment", "statefulset")
"""The default, of the release that is not limited; the other one has the first alone."""
LIMITED, OURS, ANOTHER = "limited", ("left", "right"), "another"
"""A release limited to two namespaces, and a namespace outside them."""

FOREIGN = {"auto": "none", "crd": "scheduling.k8s.io", "native": "scheduling.cpg.dev"}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
SPECIAL = (
    *(("", one, "impersonate") for one in ("users", "groups", "serviceaccounts")),
    *(("authentication.k8s.io", one, "impersonate") for one in ("uids", "userextras/scopes")),
    *(("rbac.authorization.k8s.io", one, verb) for one in ("roles", "clusterroles") for verb in ("bind", "escalate")),
    *(("certificates.k8s.io", "signers", verb) for verb in ("approve", "sign", "attest")),
    ("*", "*", "*"),
)
"""Verbs that discovery does not list."""

IN_FLIGHT = 64
Plain = dict[str, Any]


class Right(NamedTuple):
    """A verb on a resource or subresource, optionally of one object only."""

    group: str
    resource: str
    verb: str
    name: str = ""


class Account(NamedTuple):
    """A service account of a release and the namespaces of that release; none means all."""

    part: str
    release: str = "kube-cpg"
    namespaces: tuple[str, ...] = ()
    api: str = "auto"
    integrations: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return its name within its namespace."""
        return f"kube-cpg-{self.part}"

    def rights(self, namespace: str) -> set[Right]:
        """Return its rights in a namespace by its list, or in the whole cluster without one."""
        lists: Plain = yaml.safe_load((ROLES / f"{self.part}.yaml").read_text())
        if self.part == "operator" and self.integrations:
            further: Plain = yaml.safe_load((ROLES / "integrations.yaml").read_text())
            lists["granted"] += [rule for name in ("any", *self.integrations) for rule in further[name]]
        sections = ["cluster"]
        if not self.namespaces:
            sections += ["whole", "granted"]
        elif namespace in self.namespaces:
            sections += ["granted"]
        elif namespace == "default":
            sections += ["default"]
        found = {right for section in sections for right in self._read(lists.get(section, ()))}
        if namespace == self.release and self.part != "release":
            found |= {Right("coordination.k8s.io", "leases", "create")}
            found |= {Right("coordination.k8s.io", "leases", verb, self.name) for verb in ("get", "patch")}
        elif namespace == self.release:
            found.add(Right("coordination.k8s.io", "leases", "get", "kube-cpg-operator"))
        return found

    def _read(self, rules: Iterable[Plain]) -> Iterator[Right]:
        for rule in rules:
            for one in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                if one[0] != FOREIGN[self.api] or one[1] == "priorityclasses" or self.part == "release":
                    yield Right(*one)


EVERYWHERE = tuple(Account(part, integrations=INTEGRATIONS) for part in PARTS)
NARROW = tuple(Account(part, LIMITED, OURS, "crd", INTEGRATIONS[:1]) for part in PARTS)


class RightsReview:
    """Access reviews of the API server."""

    def __init__(self, cluster: Cluster, connection: Connection) -> None:
        """Send reviews as the administrator."""
        self.cluster = cluster
        self.connection = connection

    def as_account(self, account: Account) -> Connection:
        """Return a connection with the token of an account."""
        token = self.cluster.token_for(account.name, account.release)
        return Connection(dataclasses.replace(self.connection.endpoint, credentials=Credentials(token=token)))

    async def served(self) -> set[Right]:
        """Return every verb on every served resource, and the verbs that discovery does not list."""
        paths = ["/api/v1", *(f"/apis/{version}" for version in await self._versions())]
        found = {Right(*one) for one in SPECIAL}
        for path in paths:
            group = path.split("/")[2] if path.startswith("/apis") else ""
            for one in _decoded(await self.connection.get(path))["resources"]:
                found |= {Right(group, one["name"], verb) for verb in {*VERBS, *one["verbs"]}}
        return found

    async def _versions(self) -> list[str]:
        groups = _decoded(await self.connection.get("/apis"))["groups"]
        return [version["groupVersion"] for group in groups for version in group["versions"]]

    async def allowed(self, account: Account, namespace: str, rights: Iterable[Right]) -> set[Right]:
        """Return which of the rights an account has."""
        waiting, found = iter(rights), set()

        async def work() -> None:
            for right in waiting:
                if await self._allows(account, namespace, right):
                    found.add(right)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        return found

    async def _allows(self, account: Account, namespace: str, right: Right) -> bool:
        resource, _, part = right.resource.partition("/")
        asked = {"group": right.group, "resource": resource, "subresource": part, "verb": right.verb}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.release}", "system:authenticated"]
        spec = {
            "user": f"system:serviceaccount:{account.release}:{account.name}",
            "groups": groups,
            "resourceAttributes": {**asked, "namespace": namespace, "name": right.name},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(_decoded(await self.connection.post(path, {"spec": spec}))["status"]["allowed"])


def _decoded(body: bytes) -> Plain:
    found: Plain = msgspec.json.decode(body)
    return found


@pytest.fixture(scope="module")
def cluster(install: Installer) -> Iterator[Cluster]:
    """Run a cluster that serves both flavours, with the chart in it twice: for all namespaces, and for two."""
    with Cluster(ClusterSpec(gates="native")) as running:
        for name in (*OURS, ANOTHER):
            running.kubectl("create", "namespace", name)
        install(running, {})
        install(running, {"namespaces": OURS, "api": "crd", "integrations": INTEGRATIONS[:1]}, LIMITED)
        running.kubectl("create", "serviceaccount", "kube-cpg-without-rights", "-n", LIMITED)
        yield running


@pytest.fixture
async def review(cluster: Cluster) -> AsyncIterator[RightsReview]:
    """Return the access reviews of the cluster."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        yield RightsReview(cluster, connection)


async def rules(connection: Connection, namespace: str) -> set[Right]:
    """Return all rights of the sender, as the API server lists them."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = _decoded(await connection.post(path, {"spec": {"namespace": namespace}}))["status"]
    assert not status["incomplete"]
    return {
        Right(*one)
        for rule in status["resourceRules"]
        for one in itertools.product(
            rule.get("apiGroups", [""]), rule["resources"], rule["verbs"], rule.get("resourceNames") or [""]
        )
    }


@pytest.mark.parametrize("account", [*EVERYWHERE, *NARROW], ids=lambda one: f"{one.release}-{one.part}")
async def test_the_rights_of_an_account_are_its_list(review: RightsReview, account: Account) -> None:
    """In every namespace it has exactly these, beyond the rights of every authenticated user."""
    async with (
        review.as_account(Account("without-rights", LIMITED)) as baseline,
        review.as_account(account) as connection,
    ):
        for namespace in ("kube-cpg", LIMITED, *OURS, ANOTHER, "default", "kube-system"):
            found = await rules(connection, namespace) - await rules(baseline, namespace)
            assert found == account.rights(namespace), namespace


@pytest.mark.parametrize("account", EVERYWHERE, ids=lambda one: one.part)
async def test_everything_else_that_is_served_is_refused(review: RightsReview, account: Account) -> None:
    """Each verb on each resource and subresource is reviewed in the whole cluster."""
    served = await review.served() | account.rights("")
    assert len(served) > 1000
    base = await review.allowed(Account("without-rights", LIMITED), "", served)
    assert await review.allowed(account, "", served) - base == account.rights("")


@pytest.mark.parametrize("account", NARROW, ids=lambda one: one.part)
async def test_a_limited_release_has_no_rights_in_other_namespaces(review: RightsReview, account: Account) -> None:
    """The rights in its namespaces hold neither in another one nor in the whole cluster."""
    only_there = account.rights("left") - account.rights("")
    assert len(only_there) >= 4
    assert await review.allowed(account, "right", only_there) == only_there
    for elsewhere in ("", ANOTHER, "kube-system"):
        assert await review.allowed(account, elsewhere, only_there) == set()


def needed(part: str) -> Iterator[tuple[str, Right]]:
    """Yield the tests that need a right, each with its right."""
    for test, lines in yaml.safe_load(NEEDS.read_text())[part].items():
        for line in lines:
            place, *verbs = line.split()
            resource, _, group = place.partition(".")
            yield from ((test, Right(group, resource, verb)) for verb in verbs)


@pytest.mark.parametrize("part", PARTS)
def test_every_right_is_needed_by_a_test(part: str) -> None:
    """needs.yaml names a test for each right in the list, and no other rights."""
    found = list(needed(part))
    assert {right for _, right in found} == Account(part).rights("")
    for test in {test for test, _ in found}:
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / file).read_text(), test


def test_every_right_of_an_integration_is_needed_by_a_test() -> None:
    """needs.yaml names them apart, because the operator has them only with the value."""
    with_all = Account("operator", integrations=INTEGRATIONS).rights("")
    found = {right for _, right in needed("operator")} | {right for _, right in needed("integrations")}
    assert found == with_all
    rights = yaml.safe_load((ROLES / "integrations.yaml").read_text())
    assert set(rights) == {"any", *RULES} == {"any", *INTEGRATIONS}


async def test_other_leases_are_refused(review: RightsReview) -> None:
    """An account cannot take or block the lease of another process."""
    (scheduler, operator, _) = EVERYWHERE
    asked = {
        Right("coordination.k8s.io", "leases", verb, name)
        for verb in (*VERBS, "*")
        for name in ("kube-cpg-operator", "kube-scheduler", "")
    }
    create = {right for right in asked if right.verb == "create"}
    assert await review.allowed(scheduler, "kube-cpg", asked) == create
    assert await review.allowed(scheduler, "kube-system", asked) == set()
    own = {Right("coordination.k8s.io", "leases", verb, "kube-cpg-operator") for verb in ("get", "patch")}
    assert await review.allowed(operator, "kube-cpg", asked) == create | own


REFUSED = {
    "read a secret": ("GET", "/api/v1/namespaces/kube-system/secrets/any"),
    "list secrets": ("GET", "/api/v1/secrets"),
    "delete a node": ("DELETE", "/api/v1/nodes/any"),
    "change a node": ("PATCH", "/api/v1/nodes/any"),
    "proxy to a node": ("GET", "/api/v1/nodes/any/proxy/pods"),
    "create a pod": ("POST", "/api/v1/namespaces/default/pods"),
    "exec into a pod": ("POST", "/api/v1/namespaces/default/pods/any/exec?command=sh"),
    "take another's token": ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"),
    "take another's lease": ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
    "bind itself to a role": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    "change a group's status by force": ("PUT", "/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups/a"),
}
"""Requests that are refused to each account."""


@pytest.mark.parametrize("account", EVERYWHERE, ids=lambda one: one.part)
async def test_a_request_beyond_the_list_is_refused(review: RightsReview, account: Account) -> None:
    """A real request is answered with 403, as the review says."""
    async with review.as_account(account) as connection:
        send: dict[str, Callable[[str], Awaitable[bytes]]] = {
            "GET": connection.get,
            "DELETE": connection.delete,
            "POST": lambda path: connection.post(path, {"metadata": {"name": "a"}}),
            "PUT": lambda path: connection.put(path, {"metadata": {"name": "a"}}),
            "PATCH": lambda path: connection.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH),
        }
        for what, (method, path) in REFUSED.items():
            with pytest.raises(ApiError) as caught:
                await send[method](path)
            assert caught.value.status == HTTPStatus.FORBIDDEN, what
