"""The token while its file changes."""

from pathlib import Path

import pytest

from cpg_client.endpoint import Credentials
from cpg_client.errors import EndpointError
from cpg_client.tokens import TokenSource


class ManualClock:
    """A clock that tests set."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_an_anonymous_endpoint_has_no_token() -> None:
    """It sends none."""
    assert TokenSource(Credentials(), ManualClock()).current() is None


def test_a_given_token_never_changes() -> None:
    """It is part of the kubeconfig."""
    assert TokenSource(Credentials(token="given"), ManualClock()).current() == "given"  # noqa: S106


def test_a_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    """A rotated token is used after a minute, and not before."""
    file, clock = tmp_path / "token", ManualClock()
    file.write_text("first\n")
    source = TokenSource(Credentials(token="given", token_file=file), clock)  # noqa: S106
    assert source.current() == "first"
    file.write_text("second\n")
    clock.now += 59
    assert source.current() == "first"
    clock.now += 1
    assert source.current() == "second"


@pytest.mark.parametrize("broken", [b"", b"\xff"])
def test_an_unreadable_file_keeps_the_last_token(tmp_path: Path, broken: bytes) -> None:
    """As in the middle of a rotation."""
    file, clock = tmp_path / "token", ManualClock()
    file.write_text("first")
    source = TokenSource(Credentials(token_file=file), clock)
    assert source.current() == "first"
    file.write_bytes(broken)
    clock.now += 60
    assert source.current() == "first"


def test_a_missing_file_without_a_token_is_an_error(tmp_path: Path) -> None:
    """It names the file."""
    source = TokenSource(Credentials(token_file=tmp_path / "token"), ManualClock())
    with pytest.raises(EndpointError, match=r"token: the token cannot be read: .*No such file"):
        source.current()
