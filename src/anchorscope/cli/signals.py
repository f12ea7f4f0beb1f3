"""Ctrl-C, SIGTERM and SIGHUP all end a command in the same calm way, however often they come.

The first one raises `Stopped`. While the command is ending, further ones are ignored, so that none breaks into the
clean-up; if that takes long, the next one ends the process at once, which a run folder survives. Only a command has
these handlers: a program that uses the package keeps its own.
"""

import os
import signal
import threading
import time
from types import FrameType

PATIENCE = 3.0
"""Seconds that a command has for its ending, before a further signal ends it at once."""
STOPPED = "stopped; the same command goes on where it stopped"
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_since: list[float] = []  # when the end began


class Stopped(KeyboardInterrupt):
    """The user, or the system, ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def exit_code(stop: KeyboardInterrupt) -> int:
    """What a shell expects of a command that a signal has ended."""
    return stop.exit_code if isinstance(stop, Stopped) else 128 + signal.SIGINT


def listen() -> None:
    """Handles signals from now on; what the caller has switched off (nohup, a background job) stays so."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _end)


def deafen() -> None:
    """Nothing is left to stop; Python takes handlers away before it has ended, and a late signal would count again."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    if not _since:
        _since.append(time.monotonic())
        raise Stopped(number)
    if time.monotonic() - _since[0] > PATIENCE:
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # bars hide the cursor
        os._exit(128 + number)
