"""Why a command ends without an answer, and its exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands, for scripts and CI."""

    FINE = 0
    NEGATIVE = 1
    """It would not fit, or the time is up."""
    USAGE = 2
    FORBIDDEN = 3
    SERVER = 4


class CommandError(Exception):
    """An error for the user: what is wrong, and what to do next."""

    def __init__(self, message: str, *, code: ExitCode, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def usage_error(message: str, hint: str = "") -> CommandError:
    """Return an error about what the user entered."""
    return CommandError(message, code=ExitCode.USAGE, hint=hint)
