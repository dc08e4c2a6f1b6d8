"""Tokens and certificates from exec credential plugins."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import ApiError, EndpointError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.timing import Timing

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, Pki, VirtualTime

V1 = "client.authentication.k8s.io/v1"
COUNTING = """
import os, pathlib, sys
runs = pathlib.Path(sys.argv[1])
number = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * number)
(runs.parent / "info").write_text(os.environ["KUBERNETES_EXEC_INFO"] + os.environ.get("MORE", ""))
print(os.environ["ANSWER"].replace("NUMBER", str(number)))
"""

Endpoints = Callable[..., Endpoint]


def answer(token: str = "token-NUMBER", **status: str) -> dict[str, Any]:  # noqa: S107  # not a secret
    """Build the output of a plugin; NUMBER becomes the number of its run."""
    return {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": token, **status}}


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoints:
    """Make endpoints with a small program as plugin."""

    def make(written: object, code: str = COUNTING, *, cluster_info: bool = False) -> Endpoint:
        text = written if isinstance(written, str) else msgspec.json.encode(written).decode()
        plugin = ExecPlugin(
            api_version=V1,
            command=sys.executable,
            arguments=("-c", code, str(tmp_path / "runs")),
            environment=(("ANSWER", text), ("MORE", "!")),
            cluster_info=cluster_info,
        )
        return Endpoint(server="https://api.test", credentials=Credentials(plugin=plugin))

    return make


def tokens(endpoint: Endpoint, timing: Timing | None = None) -> PluginCredentials:
    """Return the credentials of the endpoint's plugin."""
    found = PluginCredentials.of(endpoint, timing or Timing())
    assert found is not None
    return found


async def test_a_token_is_kept(endpoint: Endpoints, tmp_path: Path) -> None:
    """The program runs once for all requests, including concurrent ones, and gets KUBERNETES_EXEC_INFO."""
    source = tokens(endpoint(answer()))
    assert list(await asyncio.gather(source.current(), source.current())) == ["token-1", "token-1"]
    told = {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert (tmp_path / "info").read_text() == msgspec.json.encode(told).decode() + "!"


@pytest.mark.parametrize("ca", ["bytes", "file", None])
async def test_the_cluster_is_passed_on_request(endpoint: Endpoints, tmp_path: Path, ca: str | None) -> None:
    """In the format of kubectl, including the certificate authority."""
    (tmp_path / "ca").write_bytes(b"CA")
    trust = {"bytes": b"CA", "file": tmp_path / "ca", None: None}[ca]
    name = "other.test" if ca else None
    await tokens(replace(endpoint(answer(), cluster_info=True), ca=trust, tls_server_name=name)).current()
    told = msgspec.json.decode((tmp_path / "info").read_bytes()[:-1])["spec"]["cluster"]
    more = {"certificate-authority-data": "Q0E=", "tls-server-name": "other.test"} if ca else {}
    assert told == {"server": "https://api.test", "insecure-skip-tls-verify": False} | more


async def test_an_expiring_token_is_replaced(endpoint: Endpoints) -> None:
    """Some seconds before its expiry."""
    now = [1_800_000_000.0]
    source = tokens(endpoint(answer(expirationTimestamp="2027-01-15T08:01:00Z")), Timing(wall=lambda: now[0]))
    assert await source.current() == "token-1"
    now[0] += 49
    assert await source.current() == "token-1"
    now[0] += 1
    assert await source.current() == "token-2"


async def test_a_refused_token_is_replaced_once(endpoint: Endpoints) -> None:
    """For any number of refused requests. If the program returns the same token, renewing reports no change."""
    source = tokens(endpoint(answer()))
    await source.current()
    assert list(await asyncio.gather(source.renew(), source.renew())) == [True, True]
    assert await source.current() == "token-2"
    stubborn = tokens(endpoint(answer("same")))
    await stubborn.current()
    assert not await stubborn.renew()


async def test_a_token_or_token_file_wins_over_a_plugin(endpoint: Endpoints) -> None:
    """The program does not run."""
    with_token = replace(endpoint(answer()).credentials, token="given")  # noqa: S106
    assert PluginCredentials.of(Endpoint(server="https://api.test", credentials=with_token), Timing()) is None
    assert PluginCredentials.of(Endpoint(server="https://api.test"), Timing()) is None


@pytest.mark.parametrize(
    ("written", "code", "problem"),
    [
        ("<html>", COUNTING, "its output is no ExecCredential: "),
        (answer() | {"kind": "Pod"}, COUNTING, f"it wrote a {V1} Pod"),
        (answer() | {"apiVersion": "v1"}, COUNTING, "it wrote a v1 ExecCredential"),
        (answer(""), COUNTING, "it gave neither a token nor a certificate"),
        (answer(clientCertificateData="c"), COUNTING, "a certificate and its key must come together"),
        (answer(clientKeyData="k"), COUNTING, "a certificate and its key must come together"),
        ("", "raise SystemExit(3)", "it failed with exit code 3"),
    ],
)
async def test_bad_output_is_an_error(endpoint: Endpoints, written: object, code: str, problem: str) -> None:
    """It names the program and the problem."""
    with pytest.raises(EndpointError, match=f"credential plugin {sys.executable}: {problem}"):
        await tokens(endpoint(written, code)).current()


@pytest.mark.parametrize(("hint", "said"), [("", "it cannot be run: "), ("get it!", "it cannot be run; get it!: ")])
async def test_a_missing_program_is_an_error(hint: str, said: str) -> None:
    """With the install hint of the kubeconfig, if there is one."""
    plugin = ExecPlugin(api_version=V1, command="/nowhere/login", install_hint=hint)
    with pytest.raises(EndpointError, match=f"credential plugin /nowhere/login: {said}"):
        await tokens(Endpoint(server="https://api.test", credentials=Credentials(plugin=plugin))).current()


async def test_a_program_that_hangs_is_killed(endpoint: Endpoints, virtual: "VirtualTime", tmp_path: Path) -> None:
    """After a minute."""
    code = "import sys, pathlib, time; pathlib.Path(sys.argv[1]).write_text('x'); time.sleep(60)"
    task = asyncio.create_task(tokens(endpoint("", code), virtual.timing).current())
    async with asyncio.timeout(20):
        while not (tmp_path / "runs").exists():  # noqa: ASYNC110  # another process's doing
            await asyncio.sleep(0.01)
    await virtual.advance(60)
    async with asyncio.timeout(5):
        with pytest.raises(EndpointError, match="did not end: no answer within 60 s"):
            await task


async def test_requests_have_the_token(tls_server: "FakeServer", tls_endpoint: Endpoint, endpoint: Endpoints) -> None:
    """After a 401 the request is repeated with the next one."""
    tls_server.answers("GET", "/x", status=401)
    tls_server.answers("GET", "/x", b"hello")
    tls_server.answers("GET", "/x", status=401)
    mine = replace(tls_endpoint, credentials=endpoint(answer()).credentials)
    async with Connection(mine) as connection:
        assert await connection.get("/x") == b"hello"
        with pytest.raises(ApiError, match="401"):
            await anext(connection.stream("/x", silence=5))
    assert [seen.headers["Authorization"][-1] for seen in tls_server.seen] == ["1", "2", "2"]


async def test_a_request_tries_one_other_token_only(
    tls_server: "FakeServer", tls_endpoint: Endpoint, endpoint: Endpoints
) -> None:
    """A program could return new ones without end."""
    tls_server.answers("GET", "/x", status=401)
    async with (
        asyncio.timeout(20),
        Connection(replace(tls_endpoint, credentials=endpoint(answer()).credentials)) as one,
    ):
        with pytest.raises(ApiError, match="401"):
            await one.get("/x")
    assert [seen.headers["Authorization"][-1] for seen in tls_server.seen] == ["1", "2"]


IN_TURN = """
import pathlib, sys
runs = pathlib.Path(sys.argv[1])
number = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * number)
print((runs.parent / f"answer-{number}").read_text())
"""


async def test_a_certificate_is_used_until_it_expires_or_is_refused(
    tls_server: "FakeServer", tls_endpoint: Endpoint, endpoint: Endpoints, tmp_path: Path, pki: "Pki"
) -> None:
    """It may come without a token. The next one is used on new connections while old ones are open."""
    now = [1_800_000_000.0]
    ends = {"expirationTimestamp": "2027-01-15T08:01:00Z"}
    for number, (pair, more) in enumerate([(pki.client, ends), (pki.server, {}), (pki.client, {})], 1):
        given = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
        tmp_path.joinpath(f"answer-{number}").write_bytes(msgspec.json.encode(answer("", **given, **more)))
    for status in (200, 200, 200, 401, 200):
        tls_server.answers("GET", "/x", status=status)
    mine = replace(tls_endpoint, credentials=endpoint("", IN_TURN).credentials)
    async with Connection(mine, timing=Timing(wall=lambda: now[0])) as connection:
        await connection.get("/x")
        await connection.get("/x")
        now[0] += 60
        await connection.get("/x")
        await connection.get("/x")
    assert [seen.peer for seen in tls_server.seen] == ["alice", "alice", "api.test", "api.test", "alice"]
    assert not any("Authorization" in seen.headers for seen in tls_server.seen)
