"""Read the answers of an API server."""

from typing import TypeVar

import msgspec

from cpg_api.decoding import decode
from cpg_client.errors import UnreadableAnswerError

T = TypeVar("T")


def read_answer(body: bytes, kind: type[T], *, request: str, expected: str) -> T:
    """Decode an answer; raise ``UnreadableAnswerError`` where it is not what the request asks for."""
    try:
        return decode(body, kind)
    except msgspec.DecodeError as error:
        raise UnreadableAnswerError(f"{request}: the answer is not {expected}: {error}") from error
