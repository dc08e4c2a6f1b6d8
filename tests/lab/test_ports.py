"""Free ports are free, unique in this process, and outside the range of outgoing connections."""

import socket
from pathlib import Path

import pytest

from cpg_lab import ports
from cpg_lab.errors import LabError


def test_a_free_port_can_be_bound() -> None:
    """It is below the range of outgoing connections."""
    port = ports.free_port()
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 1024 < port < lowest_outgoing
    with socket.create_server((ports.LOOPBACK, port)):
        assert not ports.is_free(port)


def test_no_port_is_offered_twice() -> None:
    """Even if none of them is in use yet."""
    offered = [ports.free_port() for _ in range(50)]
    assert len(set(offered)) == 50


def test_a_port_in_use_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two ports the free one is returned."""
    first = ports.free_port()
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_highest_port", lambda: first + 2)
    monkeypatch.setattr(ports, "_offered", set[int]())
    with socket.create_server((ports.LOOPBACK, first)):
        assert ports.free_port() == first + 1


def test_no_port_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the range."""
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(LabError, match=r"no free port on 127\.0\.0\.1 between 20000 and"):
        ports.free_port()


@pytest.mark.parametrize(("text", "expected"), [("32768\t60999", 32768), ("1024 65535", 60000), ("junk", 32768)])
def test_the_range_follows_the_kernel(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ports end where the range of outgoing ones begins; if that leaves too few or cannot be read, at 60,000."""
    (tmp_path / "range").write_text(text)
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    assert ports._highest_port() == expected
