"""Log as JSON lines, including the logs of libraries."""

import logging
import re
import sys

import structlog

from cpg_client.errors import ClientError

SECONDS_BETWEEN_REPEATS = 60.0
"""Seconds for which the same message of a library is logged once."""


class RepeatFilter(logging.Filter):
    """Drop messages that a library repeats at each retry; numbers such as ``#3`` do not make a message new."""

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        message = re.sub(r"#[0-9]+", "", record.getMessage())
        since = record.created - SECONDS_BETWEEN_REPEATS
        self._last_logged = {known: at for known, at in self._last_logged.items() if at > since}
        is_new = message not in self._last_logged
        self._last_logged.setdefault(message, record.created)
        return is_new


def configure_logging(level: str) -> None:
    """Log from this level on, one JSON object per line, from all loggers."""
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
    """Report why a process ends: the message of an expected error, or the whole traceback of a bug.

    Return the exit code. Of nested exception groups the innermost exception is reported.
    """
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ClientError | OSError):
        sys.stderr.write(f"{program}: {cause}\n")
    else:
        structlog.get_logger().critical("process failed", error=repr(cause), exc_info=error)
    return 1
