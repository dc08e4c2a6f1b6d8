"""Which token is sent while its file changes."""

from pathlib import Path

import pytest

from cpg_client.endpoint import Credentials
from cpg_client.errors import EndpointError
from cpg_client.tokens import TokenSource


class Clock:
    """A clock that stands still until it is set."""

    now = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def test_without_a_token_there_is_none() -> None:
    """An anonymous endpoint sends no token."""
    assert TokenSource(Credentials(), Clock()).current() is None


def test_a_given_token_stays() -> None:
    """A token from the kubeconfig itself never changes."""
    assert TokenSource(Credentials(token="given"), Clock()).current() == "given"  # noqa: S106


def test_a_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    """A rotated token is picked up once a minute has passed, and not before."""
    file, clock = tmp_path / "token", Clock()
    file.write_text("first\n")
    source = TokenSource(Credentials(token="given", token_file=file), clock)  # noqa: S106
    assert source.current() == "first"
    file.write_text("second\n")
    clock.now += 59
    assert source.current() == "first"
    clock.now += 1
    assert source.current() == "second"


@pytest.mark.parametrize("broken", [b"", b"\xff"])
def test_a_broken_file_leaves_the_last_token(tmp_path: Path, broken: bytes) -> None:
    """Half a rotation does not interrupt anything."""
    file, clock = tmp_path / "token", Clock()
    file.write_text("first")
    source = TokenSource(Credentials(token_file=file), clock)
    assert source.current() == "first"
    file.write_bytes(broken)
    clock.now += 60
    assert source.current() == "first"


def test_a_missing_file_is_an_error_when_there_is_no_token(tmp_path: Path) -> None:
    """With nothing to send, the file that should have held it is named."""
    source = TokenSource(Credentials(token_file=tmp_path / "token"), Clock())
    with pytest.raises(EndpointError, match=r"token: the token cannot be read: .*No such file"):
        source.current()
