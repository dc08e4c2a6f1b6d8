"""Execute a program that dies with its parent. Run as a script; the lab only uses its path.

A child that outlives a killed parent would keep its port and its memory for ever. Linux can signal a child when its
parent dies; the child has to request that between fork and exec. Python's hook for it (`preexec_fn`) is unsafe with
threads, so this script runs in between: it requests the signal, checks that the parent has not died meanwhile, and
executes the program. So also kill -9 of the lab frees its children and folders.

Usage: launcher.py PARENT PROGRAM ARGUMENT...
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Request the signal, then execute the program."""
    parent, program, *_ = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        code = ctypes.get_errno()
        sys.exit(f"cannot tie {program} to its parent: {os.strerror(code)}")
    if os.getppid() != int(parent):
        sys.exit(f"{program}: the parent died before the program began")
    try:
        os.execv(program, arguments[1:])  # noqa: S606  # the very purpose
    except OSError as problem:
        sys.exit(f"cannot run {program}: {problem.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
