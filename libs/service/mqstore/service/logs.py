"""Logging: structlog and the standard library's loggers through one formatter, to stderr.

JSON lines for machines, console for people; each line carries the request's id while one is served.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

request_id: ContextVar[str] = ContextVar("request_id", default="")


def configure(service: str, level: str, log_format: str) -> None:
    """Set up logging for this process; call once, before anything logs."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_context(service),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "uvicorn.access", "asyncio", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    # Its warnings are about clients that send no HTTP; clients choose how often.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


class LimitedWarnings:
    """Warnings whose number others decide: of one kind a line a minute, with the number of those
    that were left out. Used on one event loop."""

    def __init__(
        self,
        logger: structlog.stdlib.BoundLogger,
        interval_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When a kind is logged again, and how many were left out since."""

    def log(self, event: str, *, of: str = "", **figures: object) -> None:
        """Log a warning, or leave it out. Its kind is ``event``, and ``of`` where that is one of a
        few."""
        now = self._clock()
        again_at, left_out = self._kinds.get((event, of), (now, 0))
        if now < again_at:
            self._kinds[event, of] = again_at, left_out + 1
            return
        self._kinds[event, of] = now + self._interval_s, 0
        more = {"left_out": left_out} if left_out else {}
        self._logger.warning(event, **{k: v for k, v in figures.items() if v is not None}, **more)


def _add_context(service: str) -> Processor:
    def add(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        current = request_id.get()
        if current:
            event.setdefault("request_id", current)
        return event

    return add
