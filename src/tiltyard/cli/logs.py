"""Logging for commands: structlog events on standard error, above the level that the user set."""

import logging
import sys

import structlog

from tiltyard.config import LogLevel


def set_up_logs(level: LogLevel) -> None:
    """Sets up structlog for this process; without it, a library's default stays as it is."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
    )
