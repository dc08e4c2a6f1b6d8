"""Requests to an API server, with the configuration and authentication of the official client.

It knows exec plugins, OIDC, proxies and client certificates. Of its models nothing is used: responses stay bytes, and
``cpg_api`` decodes them.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from yaml import YAMLError

from cpg_api.decoding import decode
from cpg_cli.failures import CommandError, ExitCode, usage_error
from cpg_cli.options import ClusterOptions
from cpg_client.resources import Resource

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

PAGE = 1000
"""Objects per page of a list."""


class ApiServerError(CommandError):
    """The API server refused a request, or could not be reached; ``status`` is 0 then."""

    def __init__(self, message: str, *, status: int = 0, hint: str = "") -> None:
        is_refused = status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}
        super().__init__(message, code=ExitCode.FORBIDDEN if is_refused else ExitCode.SERVER, hint=hint)
        self.status = status


class PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Where the next page begins, and how many objects are left."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class UndecodedPage(msgspec.Struct, frozen=True, rename="camel"):
    """One page of a list; its items are not decoded yet."""

    metadata: PageMeta = PageMeta()
    items: tuple[msgspec.Raw, ...] = ()


class ApiServer:
    """One API server, as one user."""

    def __init__(self, options: ClusterOptions) -> None:
        """Connect at the first request."""
        self._options = options

    @cached_property
    def namespace(self) -> str:
        """The namespace of the options, of the context, or ``default``."""
        if self._options.namespace:
            return self._options.namespace
        with self._configuration_errors() as config:
            contexts, active = config.list_kube_config_contexts(self._options.kubeconfig)
            chosen = active
            if self._options.context:
                chosen = next((one for one in contexts if one["name"] == self._options.context), active)
        return str(chosen["context"].get("namespace") or "default")

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """Return the body of a response."""
        response = self._send("GET", path, params)
        return bytes(response.data)

    def post(self, path: str, body: object, params: Mapping[str, str | int] | None = None) -> bytes:
        """Create an object, or ask a question that is an object, and return the answer."""
        return bytes(self._send("POST", path, params, body=body).data)

    def pages(self, resource: Resource, namespace: str | None = None, **selectors: str) -> Iterator[UndecodedPage]:
        """Yield the pages of a list; while one is used, the API server makes the next."""
        path = resource.path(namespace)
        params: dict[str, str | int] = {"limit": PAGE, **selectors}

        def fetch(token: str) -> UndecodedPage:
            return decode(self.get(path, {**params, "continue": token} if token else params), UndecodedPage)

        with ThreadPoolExecutor(1) as pool:
            page = fetch("")
            while token := page.metadata.continue_:
                following = pool.submit(fetch, token)
                yield page
                page = following.result()
        yield page

    def watch(
        self, resource: Resource, namespace: str | None = None, *, since: str, seconds: int, **selectors: str
    ) -> Iterator[bytes]:
        """Yield the lines of a watch, for some seconds."""
        params: dict[str, str | int] = {"watch": 1, "resourceVersion": since, "timeoutSeconds": seconds, **selectors}
        response = self._send("GET", resource.path(namespace), params, stream_seconds=seconds)
        rest = b""
        with self._connection_errors(), response:
            for chunk in response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                yield from filter(None, lines)

    @contextmanager
    def port_forward(self, namespace: str, pod: str, port: int) -> Iterator[Any]:
        """Yield a socket to a port on the loopback of a pod.

        The official client sends no impersonation with it, so ask first what the user may do.
        """
        from kubernetes.client import ApiException, CoreV1Api  # noqa: PLC0415 - takes longer than many a command
        from kubernetes.stream import portforward  # noqa: PLC0415 - see above

        core = CoreV1Api(self._client)
        import_module("websocket").setdefaulttimeout(self._options.request_timeout)
        try:
            forward = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
        except ApiException as error:
            # The official client has the response to a refused handshake in the context alone.
            status, body = (getattr(error.__context__, name, None) for name in ("status_code", "resp_body"))
            if not status:
                raise ApiServerError(f"cannot port-forward to pod {namespace}/{pod}: {error.reason}") from error
            raise _refused(status, body or b"", f"port-forward to pod {namespace}/{pod}") from error
        try:
            socket = forward.socket(port)
            socket.settimeout(self._options.request_timeout)
            yield socket
        finally:
            forward.close()

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None = None,
        *,
        body: object = None,
        stream_seconds: int | None = None,
    ) -> Any:  # noqa: ANN401 - a response of urllib3, which only the official client may name
        client = self._client
        headers = self._headers(client)
        if body is not None:
            headers.add("Content-Type", "application/json")
        url = f"{client.configuration.host}{path}" + (f"?{urlencode(params)}" if params else "")
        with self._connection_errors():
            response = client.rest_client.pool_manager.request(
                method,
                url,
                headers=headers,
                body=None if body is None else msgspec.json.encode(body),
                timeout=self._options.request_timeout + (stream_seconds or 0),
                preload_content=stream_seconds is None,
                retries=False,
            )
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _refused(response.status, response.data if stream_seconds is None else response.read(), path)
        return response

    @cached_property
    def _client(self) -> "ApiClient":
        with self._configuration_errors() as config:
            found: ApiClient = config.new_client_from_config(self._options.kubeconfig, self._options.context)
            return found

    def _headers(self, client: "ApiClient") -> Any:  # noqa: ANN401 - urllib3's headers, which may repeat
        from urllib3 import HTTPHeaderDict  # noqa: PLC0415 - takes longer than many a command

        authorization: dict[str, str] = {}
        client.update_params_for_auth(authorization, [], ["BearerToken"], "", "", None)
        headers = HTTPHeaderDict({"Accept": "application/json", "User-Agent": "kubectl-cpg", **authorization})
        if self._options.user:
            headers.add("Impersonate-User", self._options.user)
        for group in self._options.groups:
            headers.add("Impersonate-Group", group)
        return headers

    @contextmanager
    def _configuration_errors(self) -> Iterator[Any]:
        """Yield the official client's configuration, which is not typed and takes a while to import."""
        config = import_module("kubernetes.config")
        try:
            yield config
        except (config.ConfigException, OSError) as error:
            raise _unusable(str(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError, YAMLError) as error:
            raise _unusable("the file does not have the form of a kubeconfig") from error

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - see above

        try:
            yield
        except HTTPError as error:
            host = self._client.configuration.host
            raise ApiServerError(f"{host} cannot be reached: {error}", hint="see `kubectl cluster-info`") from error


def _unusable(problem: str) -> CommandError:
    return usage_error(f"kubeconfig: {problem}", "see `kubectl config view`, or choose --kubeconfig")


def _refused(status: int, body: bytes, path: str) -> ApiServerError:
    """Return the error for a response that is no success."""
    try:
        message = decode(body, dict[str, Any]).get("message") or ""
    except msgspec.MsgspecError:
        message = ""
    hint = ""
    if status == HTTPStatus.FORBIDDEN:
        hint = "ask an administrator for this right, or choose --namespace"
    if status == HTTPStatus.UNAUTHORIZED:
        hint = "log in again, or choose --context"
    return ApiServerError(message or f"{path}: HTTP {status}", status=status, hint=hint)
