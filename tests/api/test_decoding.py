"""Decoding of JSON from other processes: one kind of error for every failure."""

import msgspec
import pytest

from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta


class Bare(msgspec.Struct, frozen=True):
    """The metadata of any object."""

    metadata: ObjectMeta = ObjectMeta()


DEEP = b'{"x":' * 5000 + b"1" + b"}" * 5000
NAMED = b'{"metadata":{"name":"a","managedFields":[%s]}}' % DEEP


@pytest.mark.parametrize("data", [NAMED, NAMED.decode(), msgspec.Raw(NAMED)])
def test_deep_nesting_is_cut_before_decoding(data: bytes | str | msgspec.Raw) -> None:
    """Bytes, strings and raw parts are decoded without their deepest levels, with a type or without."""
    with pytest.raises(RecursionError):
        msgspec.json.decode(data, type=Bare)
    assert decode(data, Bare).metadata.name == "a"
    assert decode(data)["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"metadata": 1}',
        b'{"metadata": {"name": "\xff"}}',
        b'{"x":%s, "metadata": 1}' % DEEP,
        b'{"x":%s, "metadata": {"name": "\xff"}}' % DEEP,
        b"[" * 5000,
    ],
)
def test_every_failure_is_a_decode_error(data: bytes) -> None:
    """Malformed JSON, a wrong type and bad UTF-8 raise the same error, also beside deep nesting."""
    with pytest.raises(msgspec.DecodeError):
        decode(data, Bare)


def test_a_text_that_cannot_be_encoded_is_malformed() -> None:
    """JSON that Python has read may have a lone surrogate."""
    with pytest.raises(msgspec.DecodeError):
        decode('{"metadata": "\ud800"}', Bare)
