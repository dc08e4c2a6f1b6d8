"""The pages of the scheduler that leads: explanations and dumps.

The leader serves them on its own loopback alone, so a port-forward through the API server is the way to them.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse

from cpg_api.decoding import decode
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.release import ReplicaList, ReplicaPod, find_replicas, read_settings_of
from cpg_cli.failures import CommandError, ExitCode

DEBUG_PORT = 10272
"""The default of the setting ``debugPort``."""
LISTEN = ":10270"
"""The default of the setting ``listen``."""
PORT_FORWARD = {"group": "", "resource": "pods", "subresource": "portforward", "verb": "create"}
REVIEW_KIND = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
END_OF_PAGE = b"\n}\n"
"""The end of an explanation: of its indented JSON, only the outermost brace is at the start of a line."""
MAX_SECONDS_TO_WAIT = 60.0
"""The leader makes one answer at a time, and rests after each."""


class LeaderPages:
    """The pages of the scheduler that leads, as far as the user may port-forward to its pod."""

    def __init__(
        self, server: ApiServer, scheduler_name: str = SCHEDULER_NAME, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Ask the scheduler of this name; it is looked for at the first request."""
        self._server = server
        self._scheduler_name = scheduler_name
        self._sleep = sleep

    def get(self, path: str) -> bytes:
        """Return a page; raise a ``CommandError`` without a leader, without the rights, or for a response like 404."""
        pod, settings = self._found
        port = settings.get("debugPort", DEBUG_PORT)
        if not isinstance(port, int) or not port:
            raise _unreachable(f"{pod.key} serves no explanations: its debugPort is 0", "set scheduler.debugPort")
        waited = 0.0
        while True:
            response, body = self._ask(pod, port, path)
            if response.status == HTTPStatus.OK:
                return body
            if response.status != HTTPStatus.TOO_MANY_REQUESTS or waited >= MAX_SECONDS_TO_WAIT:
                raise ApiServerError(body.decode(errors="replace").strip(), status=response.status)
            seconds = float(response.headers.get("Retry-After") or 1)
            self._sleep(seconds)
            waited += seconds

    def unready_reason(self) -> str:
        """Return what the scheduler that leads says is not ready; empty if all is."""
        pod, settings = self._found
        port = int(str(settings.get("listen", LISTEN)).rpartition(":")[2])
        response, body = self._ask(pod, port, "/readyz")
        return "" if response.status == HTTPStatus.OK else body.decode(errors="replace").strip()

    @property
    def pod(self) -> ReplicaPod:
        """The pod that leads."""
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[ReplicaPod, Mapping[str, object]]:
        """The pod that leads, and its settings; raise if there is none, or it may not be reached."""
        process, settings = self._process()
        pod = process.leader
        if pod is None:
            raise _unreachable(f"no replica of {process.namespace}/{process.name} leads", "see `kubectl cpg doctor`")
        self._require_right(process.namespace)
        return pod, settings

    def _process(self) -> tuple[ReplicaList, dict[str, object]]:
        found = [(one, read_settings_of(self._server, one)) for one in find_replicas(self._server, "scheduler")]
        for process, settings in found:
            if settings.get("schedulerName", self._scheduler_name) == self._scheduler_name:
                return process, settings
        raise _unreachable(f"no pods of a scheduler {self._scheduler_name} found", "is the chart installed?")

    def _require_right(self, namespace: str) -> None:
        """Raise unless the user may port-forward, so that ``--as`` shows no more than that user may see."""
        question = {"spec": {"resourceAttributes": {**PORT_FORWARD, "namespace": namespace}}}
        answer = decode(self._server.post(REVIEWS, {**REVIEW_KIND, **question}))
        if not answer["status"].get("allowed"):
            message = f"you may not create pods/portforward in namespace {namespace}"
            raise CommandError(message, code=ExitCode.FORBIDDEN, hint="ask an administrator for this right")

    def _ask(self, pod: ReplicaPod, port: int, path: str) -> tuple[HTTPResponse, bytes]:
        with self._server.port_forward(pod.metadata.namespace, pod.metadata.name, port) as socket:
            connection = HTTPConnection("127.0.0.1", port)
            connection.sock = socket
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                return response, _read_page(response)
            except (HTTPException, OSError) as error:
                raise _unreachable(f"port {port} of pod {pod.key} does not answer: {error}", "try again") from error


def _read_page(response: HTTPResponse) -> bytes:
    """Return the body of a page; not every kubelet passes on that the pod has closed the connection."""
    body = b""
    with response:
        for piece in iter(response.read1, b""):
            body += piece
            if body.endswith(END_OF_PAGE):
                break
    return body


def _unreachable(message: str, hint: str) -> CommandError:
    return CommandError(message, code=ExitCode.SERVER, hint=hint)
