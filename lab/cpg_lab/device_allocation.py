"""Allocations of devices by Kubernetes' own allocator, in our program dracheck, without a scheduler."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from cpg_api.core.devices import AllocationResult
from cpg_api.decoding import decode
from cpg_lab.errors import LabError


class DeviceAnswer(Struct, frozen=True):
    """The allocations of a case, or why there are none; ``late`` if the search was broken off."""

    results: tuple[AllocationResult, ...] | None = None
    error: str = ""
    late: bool = False


class Dracheck:
    """Kubernetes' allocator of devices; see lab/go/dracheck."""

    def __init__(self, program: Path) -> None:
        """Use the program at this path."""
        self._program = program

    def solve(self, cases: Iterable[Mapping[str, object]]) -> list[DeviceAnswer]:
        """Return the answer to each case."""
        encoded = b"\n".join(msgspec.json.encode(one) for one in cases)
        done = subprocess.run([self._program], input=encoded, capture_output=True, check=False)
        if done.returncode:
            raise LabError(done.stderr.decode().strip())
        return [decode(line, DeviceAnswer) for line in done.stdout.splitlines()]
