"""Become another program that dies with its parent. Run as a script, never imported by the lab.

A child that outlives a killed parent would keep its port and its memory for ever. Linux can send a signal
to a child when its parent dies; the child has to ask for it between fork and exec. Doing that in Python's
own fork (`preexec_fn`) is unsafe with threads, hence this script in between: it asks, looks whether the
parent died in the meantime, and becomes the program. Children, and folders, are then freed even by kill -9.

Usage: launching.py PARENT PROGRAM ARGUMENT...
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask for the signal, then become the program."""
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
