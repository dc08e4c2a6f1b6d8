"""Free ports on loopback.

The programs bind their ports themselves, so another process may take a port between the choice and the bind. Two rules
make that rare: ports are chosen below the kernel's range for outgoing connections, and one process never chooses a port
twice. A caller handles the rest: a program that lost its port is started again on another.
"""

import random
import socket
from pathlib import Path

from cpg_lab.errors import LabError

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_offered: set[int] = set()

LOST_PORT = "address already in use"
"""The message of a Go program when another process has its port."""


def free_port() -> int:
    """Return a port of loopback on which no process listens, and which was not returned before."""
    candidates = [port for port in range(_LOWEST, _highest_port()) if port not in _offered]
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        if is_free(port):
            _offered.add(port)
            return port
    raise LabError(f"no free port on {LOOPBACK} between {_LOWEST} and {_highest_port()}")


def is_free(port: int) -> bool:
    """Return whether the port can be bound right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _highest_port() -> int:
    try:
        lowest_ephemeral = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32_768
    return lowest_ephemeral if lowest_ephemeral > _LOWEST + 1000 else 60_000
