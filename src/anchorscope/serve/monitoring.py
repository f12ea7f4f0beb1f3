"""What operators see: a log with one line per request, without its text, and metrics for Prometheus."""

import logging
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from anchorscope.errors import UserError
from anchorscope.serve.processes import SHARED_PORT

_LONGEST_LINE = 2000


class _Lines(logging.Formatter):
    """One line with the time before it; control characters become visible, so that no text can fake a line."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()[:_LONGEST_LINE]
        shown = "".join(
            sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text
        )
        return f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%SZ')} {shown}"


class ServiceLog:
    """Lines to a file, to standard error, or nowhere. A full disk stops the log, never the service."""

    def __init__(
        self, path: Path | None = None, *, quiet: bool = False, with_text: bool = False
    ) -> None:
        """`with_text` allows what users wrote in it."""
        self.path, self.with_text = path, with_text
        self._handler: logging.Handler = (
            logging.NullHandler() if quiet else logging.StreamHandler()
        )
        try:
            if path is not None:
                path.touch(0o600)
                self._handler = logging.FileHandler(
                    path, encoding="utf-8", errors="backslashreplace"
                )
        except OSError as error:
            raise UserError(
                f"--log-file {str(path)!r} cannot be written ({error.strerror}); choose a folder where files can be "
                f"made."
            ) from None
        self._handler.setFormatter(_Lines())
        self._handler.handleError = lambda record: None  # type: ignore[method-assign]

    def line(self, text: str) -> None:
        self._handler.handle(
            logging.LogRecord("anchorscope", logging.INFO, "", 0, text, None, None)
        )

    def user_text(self, who: str, text: str) -> None:
        """What a user wrote, where that may be logged."""
        if self.with_text:
            self.line(f"{who}: {text}")

    def fault(self, error: BaseException, where: str) -> None:
        """A fault of ours: its kind and the lines of code it came through; its message may repeat a request's text."""
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        code = " < ".join(
            f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)
        )
        message = f" ({error})" if self.with_text else ""
        self.line(
            f"fault {where} {type(error).__name__} at {code or 'unknown place'}{message}"
        )

    def close(self) -> None:
        """No more lines: a file handler would open its file again for a late one."""
        handler, self._handler = self._handler, logging.NullHandler()
        with suppress(OSError):
            handler.close()


class Metrics:
    """Numbers in a registry of their own; labels are names of routes, detectors and verdicts, never text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "anchorscope", "registry": self.registry}
        seconds = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
        sizes = [2**n for n in range(9)]
        self.requests = Counter(
            "requests", "Requests by route and status.", ("route", "status"), **own
        )
        self.seconds = Histogram(
            "request_seconds",
            "From first byte to last.",
            ("route",),
            buckets=seconds,
            **own,
        )
        self.queue = Gauge(
            "queue_tokens",
            "Tokens that wait or are under way.",
            multiprocess_mode="livesum",
            **own,
        )
        self.batch_items = Histogram(
            "batch_items", "Items that were run together.", buckets=sizes, **own
        )
        self.items = Counter(
            "items", "Items that were scored.", ("detector", "verdict"), **own
        )
        self.failed_items = Counter(
            "failed_items", "Items that could not be scored.", **own
        )
        self.generated_tokens = Counter(
            "generated_tokens", "Tokens that the model wrote.", **own
        )
        self.memory_ran_out = Counter(
            "memory_ran_out", "Batches that did not fit and were halved.", **own
        )
        about_ready = "1 where the model is loaded and requests are taken."
        self.ready = Gauge("ready", about_ready, multiprocess_mode="livemin", **own)

    def text(self) -> bytes:
        """All numbers in Prometheus's form; those of all processes together where several share the port."""
        registry = self.registry
        if SHARED_PORT:
            MultiProcessCollector(registry := CollectorRegistry())
        return generate_latest(registry)
