"""Requests to an API server from blocking code: kubectl takes 100 ms for each, a kept connection 10 ms.

The requests go through ``cpg_client``, on an event loop in a thread of its own.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from cpg_api.decoding import decode
from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import ApiError
from cpg_lab.access import Access

Plain = dict[str, Any]
T = TypeVar("T")


class BlockingClient:
    """One connection to a cluster, used as a context manager; returns plain JSON objects, raises ``ApiError``."""

    def __init__(self, access: Access) -> None:
        """Prepare the connection; it opens on entry."""
        self._connection = Connection(
            Endpoint(server=access.url, ca=access.ca_file, credentials=Credentials(token=access.token))
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        """Start the event loop and open the connection."""
        self._thread.start()
        self._run(self._connection.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection and stop the event loop."""
        self._run(self._connection.__aexit__(kind, error, traceback))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def get(self, path: str) -> Plain:
        """Read an object, or a list of them."""
        return self._decoded(self._connection.get(path))

    def find(self, path: str) -> Plain | None:
        """Read an object; return None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> Plain:
        """Create an object in a collection."""
        return self._decoded(self._connection.post(path, body))

    def merge(self, path: str, body: Mapping[str, Any]) -> Plain:
        """Merge these fields into an object, or into its status if the path names that."""
        return self._decoded(self._connection.patch(path, body))

    def delete(self, path: str, *, grace: int | None = None, propagation: str | None = None) -> None:
        """Delete an object or a collection, with so many seconds of grace; None keeps the object's own.

        Some kinds keep their dependents, unless the propagation is ``Background`` or ``Foreground``.
        """
        options = {"gracePeriodSeconds": grace, "propagationPolicy": propagation}
        given = {name: value for name, value in options.items() if value is not None}
        self._run(self._connection.delete(path, given or None))

    def _decoded(self, work: Coroutine[Any, Any, bytes]) -> Plain:
        found: Plain = decode(self._run(work))
        return found

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
