"""The bearer token of an endpoint, kept current while its file is rotated.

Tokens of service accounts live about an hour and are replaced well before they end, so reading the
file once a minute is always early enough, and needs no file watching. Reading on every request would
put a system call on the path of thousands of binds per second. Only a refused token is looked up again
at once: a cluster that changed its signing keys refuses the old one from one moment to the next.
"""

from collections.abc import Callable
from pathlib import Path

from cpg_client.endpoint import Credentials
from cpg_client.errors import EndpointError

_SECONDS_BETWEEN_READS = 60.0


class TokenSource:
    """Answers which token to send now; ``clock`` counts seconds from any origin."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._file = credentials.token_file
        self._token = credentials.token
        self._clock = clock
        self._next_read = float("-inf")

    def current(self) -> str | None:
        """Return the token, None for an endpoint without one.

        A file that cannot be read, or is empty in the middle of a rotation, leaves the last good token
        in use: it may still be valid, and if not, the server says so better than we could.
        """
        if self._file is not None and self._clock() >= self._next_read:
            self._token = self._read(self._file) or self._token
            self._next_read = self._clock() + _SECONDS_BETWEEN_READS
        return self._token

    def renew(self) -> bool:
        """Look the token up again, because it was refused; tell whether there is another one now."""
        before, self._next_read = self._token, float("-inf")
        return self.current() != before

    def _read(self, file: Path) -> str | None:
        try:
            return file.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            if self._token is None:
                raise EndpointError(f"{file}: the token cannot be read: {error}") from error
            return None
