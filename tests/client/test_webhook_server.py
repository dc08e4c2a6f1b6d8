"""The webhook server: TLS, with a certificate that changes while it runs."""

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import aiohttp
import pytest

from cpg_client.timing import Timing
from cpg_client.webhook_server import ServingCertificate, serve_webhook
from cpg_lab.certificates import issue
from cpg_lab.ports import LOOPBACK, free_port


def write_certificate(folder: Path) -> Path:
    """Write a new certificate into a folder; return the authority's."""
    made = issue(folder, now=dt.datetime.now(dt.UTC), service_ip="10.0.0.1")  # noqa: TID251  # TLS looks at the clock
    made.server.rename(folder / "tls.crt")
    made.server_key.rename(folder / "tls.key")
    return made.ca


async def ask(url: str, authority: Path, body: bytes) -> tuple[int, bytes]:
    """Return the response to a request."""
    context = ssl.create_default_context(cafile=authority)
    async with aiohttp.ClientSession() as session, session.post(url, data=body, ssl=context) as answer:
        return answer.status, await answer.read()


async def reversed_or_refused(body: bytes) -> bytes:
    """Return the request reversed; raise for an empty one."""
    if not body:
        raise ValueError("empty")
    return body[::-1]


async def test_a_changed_certificate_is_loaded(tmp_path: Path) -> None:
    """Without a restart. Half of a pair, or malformed data, keeps the old one."""
    looked = asyncio.Condition()

    async def sleep(_: float) -> None:
        async with looked:
            looked.notify_all()
            await looked.wait()

    async def look() -> None:
        async with looked:
            looked.notify_all()
            await looked.wait()

    said: list[str] = []
    address = (LOOPBACK, free_port())
    url = f"https://{LOOPBACK}:{address[1]}/admit"
    timing = Timing(sleep=sleep)
    async with serve_webhook(
        address, ServingCertificate(tmp_path), reversed_or_refused, log=said.append, timing=timing
    ):
        await asyncio.sleep(0.05)
        assert "cannot be used" in said.pop()
        first = write_certificate(tmp_path).rename(tmp_path / "first")
        await look()
        assert said == ["certificate loaded"]
        assert await ask(url, first, b"abc") == (200, b"cba")
        assert (await ask(url, first, b""))[0] == 400
        (tmp_path / "tls.key").write_text("rubbish")
        await look()
        await look()
        assert len(said) == 2
        assert await ask(url, first, b"abc") == (200, b"cba")
        second = write_certificate(tmp_path)
        await look()
        assert said[2:] == ["certificate loaded"]
        assert await ask(url, second, b"abc") == (200, b"cba")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(url, first, b"abc")
    with pytest.raises(aiohttp.ClientConnectorError):
        await ask(url, second, b"abc")
