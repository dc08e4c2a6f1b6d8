"""Tokens and client certificates from exec credential plugins.

The program runs for the first request, when its credential is about to expire, and after a 401; never twice at once. It
has no terminal to prompt a user. Its standard error is shown.
"""

import asyncio
import base64
import datetime as dt
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from cpg_api.decoding import decode
from cpg_client.endpoint import ClientCertificate, Endpoint, ExecPlugin
from cpg_client.errors import EndpointError
from cpg_client.timing import Timing

_MAX_RUN_SECONDS = 60.0
_EXPIRY_MARGIN_SECONDS = 10.0
"""Seconds before its expiry at which a credential is replaced, so that it is still valid when it arrives."""


class _CredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _CredentialStatus = _CredentialStatus()


class PluginCredentials:
    """The credential of a plugin, which runs the program when there is no valid one.

    ``certificate`` is the client certificate that the program returned beside a token, or instead of one.
    """

    def __init__(self, plugin: ExecPlugin, info: str, timing: Timing) -> None:
        self._plugin = plugin
        self._info = info
        self._timing = timing
        self.certificate: ClientCertificate | None = None
        self._token = ""
        self._expires = float("inf")
        self._runs = 0
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    def of(cls, endpoint: Endpoint, timing: Timing) -> Self | None:
        """Return the plugin of an endpoint, or None where the endpoint has a token or no plugin at all."""
        credentials = endpoint.credentials
        if credentials.plugin is None or credentials.token or credentials.token_file:
            return None
        return cls(credentials.plugin, _exec_info(credentials.plugin, endpoint), timing)

    async def current(self) -> str:
        """Return the token, empty for a certificate alone; raise ``EndpointError`` without either."""
        async with self._one_at_a_time:
            if not self._runs or self._timing.wall() >= self._expires - _EXPIRY_MARGIN_SECONDS:
                await self._run()
            return self._token

    async def renew(self) -> bool:
        """Run the program after a 401, unless it has run meanwhile; return whether the credential has changed."""
        before, runs = (self._token, self.certificate), self._runs
        async with self._one_at_a_time:
            if self._runs == runs:
                await self._run()
            return (self._token, self.certificate) != before

    async def _run(self) -> None:
        try:
            output = await self._timing.within(_MAX_RUN_SECONDS, self._output())
            answer = decode(output, _ExecCredential)
        except TimeoutError as error:
            raise self._problem("did not end", error) from error
        except msgspec.DecodeError as error:
            raise self._problem("its output is no ExecCredential", error) from error
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise self._problem(f"it wrote a {answer.api_version} {answer.kind}")
        status = answer.status
        certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
        if bool(certificate) != bool(key):
            raise self._problem("a certificate and its key must come together")
        if not status.token and not certificate:
            raise self._problem("it gave neither a token nor a certificate")
        expires = status.expiration_timestamp
        self._token = status.token
        self.certificate = ClientCertificate(certificate, key) if certificate else None
        self._expires = expires.timestamp() if expires else float("inf")
        self._runs += 1

    async def _output(self) -> bytes:
        plugin = self._plugin
        environment = {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": self._info}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
            raise self._problem(f"it cannot be run{hint}", error) from error
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self._problem(f"it failed with exit code {process.returncode}")
        return output

    def _problem(self, what: str, error: Exception | None = None) -> EndpointError:
        why = f": {error}" if error else ""
        return EndpointError(f"credential plugin {self._plugin.command}: {what}{why}")


def _exec_info(plugin: ExecPlugin, endpoint: Endpoint) -> str:
    """Return the JSON that the program gets through its environment."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        cluster: dict[str, Any] = {"server": endpoint.server, "insecure-skip-tls-verify": not endpoint.verify}
        if endpoint.ca is not None:
            data = endpoint.ca.read_bytes() if isinstance(endpoint.ca, Path) else endpoint.ca
            cluster["certificate-authority-data"] = base64.b64encode(data).decode()
        if endpoint.tls_server_name:
            cluster["tls-server-name"] = endpoint.tls_server_name
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()
