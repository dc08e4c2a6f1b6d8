"""An HTTPS server that answers an API server's questions: webhooks.

Its certificate is read anew when the file changes, so that a rotation needs no restart; a pair that does not fit yet,
because one of the two files is written after the other, leaves the old one in use. Until there is a first one nobody is
answered, which whoever configures a webhook has to allow for anyway.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from cpg_client.timing import REAL_TIME, Timing, cancel_and_wait

MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Bytes: two states of an object of the largest size that etcd takes, and more."""
SECONDS_BETWEEN_CHECKS = 5.0
"""Seconds between two looks at the certificate."""


class ServingCertificate:
    """A certificate and its key, the files ``tls.crt`` and ``tls.key`` as in a Secret, in the context of a server."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._files = (folder / "tls.crt", folder / "tls.key")
        self._seen: object = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def refresh(self) -> bool:
        """Load what has changed; tell whether anything has. Raise ``OSError`` where it cannot be used."""
        state = [(stat.st_mtime_ns, stat.st_ino) for stat in (file.stat() for file in self._files)]
        if state == self._seen:
            return False
        # In a context of their own first: a key that does not fit would leave half of the pair in the one in use.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self._files)
        self.context.load_cert_chain(*self._files)
        self._seen = state
        return True


@asynccontextmanager
async def serve_webhook(
    address: tuple[str, int],
    certificate: ServingCertificate,
    answer: Callable[[bytes], bytes],
    *,
    log: Callable[[str], None],
    timing: Timing = REAL_TIME,
) -> AsyncIterator[None]:
    """Answer every POST while the block runs; ``told`` hears of what becomes of the certificate.

    A ``ValueError`` out of ``answer`` is the asker's mistake.
    """
    serving = asyncio.create_task(_serve(address, certificate, answer, log, timing))
    try:
        yield
    finally:
        await cancel_and_wait(serving)


async def _serve(
    address: tuple[str, int],
    certificate: ServingCertificate,
    answer: Callable[[bytes], bytes],
    log: Callable[[str], None],
    timing: Timing,
) -> None:
    async def respond(request: web.Request) -> web.Response:
        try:
            return web.Response(body=answer(await request.read()), content_type="application/json")
        except ValueError as error:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))

    application = web.Application(client_max_size=MAX_REQUEST_BYTES)
    application.router.add_post("/{tail:.*}", respond)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    listening, trouble = False, ""
    try:
        while True:
            try:
                if certificate.refresh():
                    log("certificate loaded")
                if not listening:
                    await web.TCPSite(runner, *address, ssl_context=certificate.context).start()
                    listening = True
                trouble = ""
            except OSError as error:  # SSLError is one
                if str(error) != trouble:
                    trouble = str(error)
                    log(f"the webhook's certificate or address cannot be used: {trouble}")
            await timing.sleep(SECONDS_BETWEEN_CHECKS)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_BETWEEN_CHECKS):
                await runner.cleanup()
