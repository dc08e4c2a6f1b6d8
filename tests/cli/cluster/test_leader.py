"""Which scheduler is asked, and what happens if it may not be."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.leader import LeaderPages
from cpg_cli.cluster.release import NAMESPACE
from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.options import ClusterOptions

PODS, LEASE = "/api/v1/pods", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kube-cpg-scheduler"
SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-cpg-scheduler"
OWN_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PAGE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    """Return a pod of the release."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"serviceAccountName": "kube-cpg-scheduler", "nodeName": "node-1"},
        "status": {"phase": phase},
    }


class RecordedServer(ApiServer):
    """Answers from a table; a status stands for a refusal. Forwards to a socket with answers that were prepared."""

    def __init__(self, answers: Mapping[str, object], *pages: bytes, allowed: bool = True) -> None:
        """Answer these paths; a path that is missing does not exist."""
        super().__init__(ClusterOptions(namespace="default"))
        self.answers = answers
        self.forwards: list[tuple[str, int]] = []
        self._allowed = allowed
        self._pages = list(pages)

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """Return the answer of a path."""
        del params
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiServerError(path, status=answer)
        return json.dumps(answer).encode()

    def post(self, path: str, body: object, params: Mapping[str, str | int] | None = None) -> bytes:
        """Return whether the user may port-forward."""
        del path, body, params
        return json.dumps({"status": {"allowed": self._allowed}}).encode()

    @contextmanager
    def port_forward(self, namespace: str, pod: str, port: int) -> Iterator[Any]:
        """Yield a socket on which the next page can be read."""
        self.forwards.append((f"{namespace}/{pod}", port))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(self._pages.pop(0))
            yield ours


def answers(*names: str, holder: str = "one-7-abc", settings: str = "debugPort: 1234") -> dict[str, object]:
    """Return the answers for a release with pods of these names."""
    return {
        PODS: {"items": [pod(name) for name in names]},
        LEASE: {"spec": {"holderIdentity": holder}},
        SETTINGS: {"data": {"settings.yaml": settings}},
    }


def test_the_pod_that_holds_the_lease_is_asked() -> None:
    """At the port of its settings."""
    server = RecordedServer(answers("one", "two", holder="two-7-abc"), PAGE)
    assert LeaderPages(server).get("/debug/explain/") == b"{}"
    assert server.forwards == [(f"{NAMESPACE}/two", 1234)]


def test_a_user_that_may_not_list_all_pods_is_served_from_the_usual_namespace() -> None:
    """Without the right to settings the default port is asked."""
    found = answers("one")
    server = RecordedServer({**found, PODS: 403, OWN_PODS: found[PODS], SETTINGS: 403}, PAGE)
    pages = LeaderPages(server)
    assert (pages.get("/debug/explain/"), pages.pod.metadata.name) == (b"{}", "one")
    assert server.forwards == [(f"{NAMESPACE}/one", 10272)]


def test_a_busy_scheduler_is_asked_again_after_its_pause() -> None:
    """For a minute at most."""
    pauses: list[float] = []
    server = RecordedServer(answers("one"), BUSY, BUSY, PAGE)
    assert LeaderPages(server, sleep=pauses.append).get("/debug/explain/") == b"{}"
    assert pauses == [7.0, 7.0]
    stuck = RecordedServer(answers("one"), *[BUSY] * 20)
    with pytest.raises(ApiServerError) as error:
        LeaderPages(stuck, sleep=pauses.append).get("/debug/explain/")
    assert error.value.status == 429


def test_the_readiness_is_asked_at_the_port_of_probes() -> None:
    """An answer that is no success is the reason."""
    unready = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\npods\n"
    server = RecordedServer(answers("one", settings="listen: ':4321'"), unready, PAGE)
    pages = LeaderPages(server)
    assert (pages.unready_reason(), pages.unready_reason()) == ("pods", "")
    assert server.forwards == [(f"{NAMESPACE}/one", 4321)] * 2


@pytest.mark.parametrize(
    ("found", "allowed", "problem", "code"),
    [
        ({PODS: {"items": []}}, True, "no pods of a scheduler cpg-scheduler found", ExitCode.SERVER),
        ({PODS: {"items": [pod("one", phase="Failed")]}}, True, "no pods of a scheduler", ExitCode.SERVER),
        (answers("one", settings="schedulerName: mine"), True, "no pods of a scheduler", ExitCode.SERVER),
        (answers("one", holder="gone-7-abc"), True, "no replica of kube-cpg/kube-cpg-scheduler leads", ExitCode.SERVER),
        (answers("one", settings="debugPort: 0"), True, "its debugPort is 0", ExitCode.SERVER),
        (answers("one"), False, "you may not create pods/portforward in namespace kube-cpg", ExitCode.FORBIDDEN),
        ({PODS: 403, OWN_PODS: 403}, True, OWN_PODS, ExitCode.FORBIDDEN),
    ],
)
def test_without_a_leader_or_a_right_the_error_says_which(
    *, found: dict[str, object], allowed: bool, problem: str, code: ExitCode
) -> None:
    """So that a command can go on with what the user may see."""
    with pytest.raises(CommandError, match=problem) as error:
        LeaderPages(RecordedServer(found, PAGE, allowed=allowed)).get("/debug/explain/")
    assert error.value.code is code


def test_a_page_that_does_not_exist_and_a_broken_one_are_errors() -> None:
    """The text of the scheduler is the message."""
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nnot found\n"
    server = RecordedServer(answers("one"), missing, b"nonsense\r\n\r\n")
    with pytest.raises(ApiServerError, match=r"^not found$") as error:
        LeaderPages(server).get("/debug/explain/crd/a/b")
    assert error.value.status == 404
    with pytest.raises(CommandError, match="does not answer"):
        LeaderPages(server).get("/debug/explain/")
