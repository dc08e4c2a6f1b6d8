"""All logs of a shell as JSON lines, also those of the libraries in it."""

import logging
import re
import sys

import structlog

from cpg_client.errors import ClientError

SECONDS_BETWEEN_REPEATS = 60.0
"""Seconds for which a library does not say the same thing again."""


class RepeatFilter(logging.Filter):
    """Lets a library say once a minute what it tries again every few seconds; the number of an attempt is no news."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is let through."""
        words = re.sub(r"#[0-9]+", "", record.getMessage())
        self._said = {said: at for said, at in self._said.items() if record.created - at < SECONDS_BETWEEN_REPEATS}
        is_new = words not in self._said
        self._said.setdefault(words, record.created)
        return is_new


def configure_logging(level: str) -> None:
    """Log from this level on, one JSON object per line, whoever it comes from."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


def report_fatal(program: str, error: Exception) -> int:
    """Say what a process died of: in a word where it is not our mistake, with all that is known where it is.

    Return the exit code. What comes out of a group of tasks is an error in an error; told is the innermost.
    """
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ClientError | OSError):
        sys.stderr.write(f"{program}: {cause}\n")
    else:
        structlog.get_logger().critical("died", error=repr(cause), exc_info=error)
    return 1
