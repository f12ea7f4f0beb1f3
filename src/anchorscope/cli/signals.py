"""Ctrl-C, SIGTERM and SIGHUP end a command in the same way, however often they arrive.

The first one raises `Stopped`. Further ones are ignored during the clean-up; if that takes long, the next one ends the
process at once, which a run folder survives. Only a command has these handlers.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType

PATIENCE = 3.0
"""Seconds of clean-up before a further signal ends the command at once."""
STOPPED = "stopped; the same command goes on where it stopped"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN = 0.05  # seconds until a signal that came to nothing is sent again
_since: list[float] = []  # when the end began


class Stopped(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number  # as a shell expects it


def listen() -> None:
    """Handles signals from now on, except those the caller ignores (nohup, a background job)."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _end)
        sys.unraisablehook = _send_again


def deafen() -> None:
    """Ignores signals at the end: Python removes its handlers before it has ended."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_IGN)


def _send_again(lost: "sys.UnraisableHookArgs") -> None:
    """A signal may come while an object is being removed, where Python drops whatever is raised: it comes again."""
    if isinstance(lost.exc_value, Stopped):
        _since.clear()
        this_process = os.getpid(), lost.exc_value.number
        threading.Timer(_AGAIN, os.kill, this_process).start()
    else:
        sys.__unraisablehook__(lost)


def _end(number: int, frame: FrameType | None) -> None:
    if not _since:
        _since.append(time.monotonic())
        raise Stopped(number)
    if time.monotonic() - _since[0] > PATIENCE:
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # bars hide the cursor
        os._exit(128 + number)
