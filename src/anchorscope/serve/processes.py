"""The port of a service, and several processes that answer on it: the kernel deals connections out to them.

The parent holds the port without listening and loads no model. For each process it runs its own command again, with the
port in the environment, and reads the line that says it is ready.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from types import FrameType
from typing import IO, Any, cast

from anchorscope.errors import Incomplete, UserError

_PORT = "ANCHORSCOPE_SHARED_PORT"
SHARED_PORT = int(os.environ.get(_PORT, 0))
"""The port that this process shares with others of its service; 0 for a process alone."""
_LAST_SECONDS = 2.0
"""For the others' requests where a process has died: nobody should wait long at a port that is half closed."""
_TICK = 0.1  # seconds between two looks at the processes


def listen(host: str, port: int, only_reserve: bool = False) -> socket.socket:
    """The socket, bound before anything else is done: a port that is taken is reported at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only so
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # of the connections of a server that has ended
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if only_reserve or SHARED_PORT:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind(address)
            if not only_reserve:
                bound.listen()
        except OSError:
            bound.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"Cannot listen on {host}:{port} ({reason}); choose another --port, or --port 0 for a free one."
        ) from None
    return bound


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
        host, f"[{host}]" if ":" in host else host
    )
    return f"http://{shown}:{port}"


def end_with_parent() -> None:
    """Waits until the parent, at the other end of standard input, has gone; then ends this process like SIGTERM."""
    os.read(0, 1)
    shutil.rmtree(
        os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True
    )  # the parent could not do it
    os.kill(os.getpid(), signal.SIGTERM)


def reserve(host: str, port: int) -> socket.socket:
    """A port that nobody else uses, held for several processes without listening."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UserError(
            "Processes cannot share a port on this system; leave --processes out."
        )
    with listen(host, port) as free:
        port = free.getsockname()[1]
    return listen(host, port, only_reserve=True)


def serve_together(
    reserved: socket.socket, processes: int, on_ready: Callable[[dict[str, Any]], None]
) -> int:
    """Serves until a signal comes or a process ends; the exit code. `on_ready` gets what a process says of itself."""
    environ = {**os.environ, _PORT: str(reserved.getsockname()[1])}
    children: list[Popen[str]] = []
    signals: list[int] = []  # that came

    def end(number: int) -> None:
        for child in children:
            child.send_signal(signal.SIGKILL if len(signals) > 1 else number)

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        end(number)

    def start() -> IO[str]:
        command = [
            sys.executable,
            *sys.orig_argv[1:],
        ]  # in its own session: Ctrl-C reaches the parent only
        child = Popen(
            command,
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            env=environ,
            start_new_session=True,
        )
        children.append(child)
        if signals:
            end(signals[0])
        return cast(IO[str], child.stdout)

    def ended() -> list[int]:
        codes = [child.poll() for child in children]
        return [code for code in codes if code is not None]

    def ready_line(output: IO[str]) -> str:
        """What a process says when it is ready; empty if any of them ends before."""
        while not select.select([output], [], [], _TICK)[0]:
            if ended():
                return ""
        return output.readline()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    with TemporaryDirectory(prefix="anchorscope-metrics-") as environ[
        "PROMETHEUS_MULTIPROC_DIR"
    ]:
        # The first one alone, so that a model that cannot be loaded is reported once.
        lines = [ready_line(start())]
        if lines[0] and not signals:
            lines += map(ready_line, [start() for _ in range(1, processes)])
        is_ready = len(lines) == processes and all(lines)
        if is_ready:
            on_ready(json.loads(lines[0]))
        while not ended():
            time.sleep(_TICK)
        was_asked = bool(signals)
        first = ended()[0]
        end(signal.SIGTERM)
        if not was_asked:
            until = time.monotonic() + _LAST_SECONDS
            for child in children:
                with suppress(TimeoutExpired):
                    child.wait(max(0.0, until - time.monotonic()))
                child.kill()
        codes = [child.wait() for child in children]
    if was_asked:
        return max(0, *codes)
    if first > 0 and not is_ready:
        return first  # it has said why
    how = f"signal {-first}" if first < 0 else f"exit code {first}"
    raise Incomplete(
        f"A process of the service ended ({how}), and the others with it; start the service again."
    )
