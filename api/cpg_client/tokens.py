"""The bearer token of an endpoint, read again while its file is rotated.

Service account tokens are valid for about an hour and are replaced well before they expire. So one read per minute is
early enough and needs no file watch. A read per request would add a system call to thousands of binds per second. Only
after a 401 the file is read at once: a cluster with new signing keys refuses the old token immediately.
"""

from collections.abc import Callable
from pathlib import Path

from cpg_client.endpoint import Credentials
from cpg_client.errors import EndpointError

_SECONDS_BETWEEN_READS = 60.0


class TokenSource:
    """The current token; ``clock`` counts seconds from any origin."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._file = credentials.token_file
        self._token = credentials.token
        self._clock = clock
        self._next_read = float("-inf")

    def current(self) -> str | None:
        """Return the token, or None for an endpoint without one.

        An unreadable or empty file, as in the middle of a rotation, leaves the last good token in use. It may still be
        valid; if not, the server refuses it.
        """
        if self._file is not None and self._clock() >= self._next_read:
            self._token = self._read(self._file) or self._token
            self._next_read = self._clock() + _SECONDS_BETWEEN_READS
        return self._token

    def renew(self) -> bool:
        """Read the token again after a 401; return whether it has changed."""
        before, self._next_read = self._token, float("-inf")
        return self.current() != before

    def _read(self, file: Path) -> str | None:
        try:
            return file.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            if self._token is None:
                raise EndpointError(f"{file}: the token cannot be read: {error}") from error
            return None
