"""An HTTPS server for admission webhooks.

It reloads its certificate when the files change, so a rotation needs no restart. A mismatched pair, as between the
writes of its two files, leaves the old one in use. The server does not listen before it has a first certificate.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from cpg_client.timing import REAL_TIME, Timing, cancel_and_wait

MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Bytes: two versions of an object of the largest size that etcd takes, and more."""
SECONDS_BETWEEN_CHECKS = 5.0
"""Seconds between two checks of the certificate files."""


class ServingCertificate:
    """The certificate and key of a server, from the files ``tls.crt`` and ``tls.key`` of a Secret."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._files = (folder / "tls.crt", folder / "tls.key")
        self._seen: object = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def refresh(self) -> bool:
        """Load changed files; return whether they had changed. Raise ``OSError`` where they cannot be used."""
        state = [(stat.st_mtime_ns, stat.st_ino) for stat in (file.stat() for file in self._files)]
        if state == self._seen:
            return False
        # Try them in a context of their own: a mismatched key would leave half of the pair in the context in use.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self._files)
        self.context.load_cert_chain(*self._files)
        self._seen = state
        return True


@asynccontextmanager
async def serve_webhook(
    address: tuple[str, int],
    certificate: ServingCertificate,
    answer: Callable[[bytes], Awaitable[bytes]],
    *,
    log: Callable[[str], None],
    timing: Timing = REAL_TIME,
) -> AsyncIterator[None]:
    """Answer every POST while the block runs; ``log`` is called with messages about the certificate.

    A ``ValueError`` from ``answer`` becomes status 400.
    """
    serving = asyncio.create_task(_serve(address, certificate, answer, log, timing))
    try:
        yield
    finally:
        await cancel_and_wait(serving)


async def _serve(
    address: tuple[str, int],
    certificate: ServingCertificate,
    answer: Callable[[bytes], Awaitable[bytes]],
    log: Callable[[str], None],
    timing: Timing,
) -> None:
    async def respond(request: web.Request) -> web.Response:
        try:
            return web.Response(body=await answer(await request.read()), content_type="application/json")
        except ValueError as error:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))

    application = web.Application(client_max_size=MAX_REQUEST_BYTES)
    application.router.add_post("/{tail:.*}", respond)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    is_listening, problem = False, ""
    try:
        while True:
            try:
                if certificate.refresh():
                    log("certificate loaded")
                if not is_listening:
                    await web.TCPSite(runner, *address, ssl_context=certificate.context).start()
                    is_listening = True
                problem = ""
            except OSError as error:  # SSLError is one
                if str(error) != problem:
                    problem = str(error)
                    log(f"the webhook's certificate or address cannot be used: {problem}")
            await timing.sleep(SECONDS_BETWEEN_CHECKS)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_BETWEEN_CHECKS):
                await runner.cleanup()
