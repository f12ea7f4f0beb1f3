"""The HTTP server under the app: one socket, patience with clients that has an end, and an end that is calm.

On SIGTERM or SIGINT nothing more is taken in (503), what is under way is finished within the time for draining, and the
process ends. A second signal ends it at once.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anchorscope.errors import UserError
from anchorscope.serve.app import make_app
from anchorscope.serve.errors import ServiceError, too_many_requests
from anchorscope.serve.service import Service

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KEEP_ALIVE = 15  # seconds that an idle connection is kept
_LAST_WORDS = 2  # seconds for connections to end after draining
_LOOK = 0.05  # seconds between two looks at what is waited for
_CONNECTIONS = 4  # per request that may be under way
_OTHER_FILES = 256  # that the process may have open beside connections
_REFUSED = 8  # connections that are told that they are too many, per one that is taken


def listen(host: str, port: int) -> socket.socket:
    """The socket, bound before anything else is done: a port that is taken is told at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves out TCP_NODELAY
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of the connections of a server that has ended
        try:
            made.bind(address)
            made.listen(256)
        except OSError:
            made.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"Cannot listen on {host}:{port} ({reason}); choose another --port, or --port 0 for a free one."
        ) from None
    return made


def address_of(bound: socket.socket) -> str:
    """What to open."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class ServiceServer(uvicorn.Server):
    """Serves one service until a signal comes, the model cannot be loaded, or somebody sets `should_exit`."""

    def __init__(self, service: Service, drain: float = 30.0, ready: Callable[[], None] = lambda: None) -> None:
        self.service, self.drain, self.ready = service, drain, ready
        self._ending: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            make_app(service),
            http=_patient(service),
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_LAST_WORDS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, and tells when the model is there."""
        await super().startup(sockets)
        self._loading = asyncio.create_task(self._loaded())

    async def _loaded(self) -> None:
        while not self.service.thread.is_set_up.is_set():  # a thread that waits would be waited for at the end
            await asyncio.sleep(_LOOK)
        if self.service.thread.error is not None:
            self.should_exit = True
        elif not self.should_exit:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals drain the service; who asked for signals before gets them again afterwards."""
        try:
            before = {one: signal.signal(one, self._signalled) for one in _SIGNALS}
        except ValueError:  # not the main thread: signals go elsewhere
            before = {}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _signalled(self, number: int, frame: Any) -> None:
        if self.service.is_draining:
            self.should_exit = self.force_exit = True
            return
        self.service.stop_admitting()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: begins to drain once that is asked for, and notices that the model's thread has ended."""
        if self.service.is_draining and self._ending is None:
            self._ending = asyncio.create_task(self._drained())
        if self.service.thread.error is not None:
            self.should_exit = True
        return await super().on_tick(counter)

    async def _drained(self) -> None:
        until = asyncio.get_running_loop().time() + self.drain
        while self.service.requests and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(_LOOK)
        self.service.thread.abandon()
        self.should_exit = True


def _patient(service: Service) -> type[H11Protocol]:
    """The HTTP protocol with an end to patience: a request's head has to arrive in time, and connections are few.

    One too many is told so (429) without a look at what it asks for, and may finish speaking: who is cut short does not
    read the answer. Where far too many are there, they are closed at once.
    """
    seconds, most = service.limits.read_seconds, _CONNECTIONS * service.limits.requests
    refusal, refused = _as_bytes(too_many_requests()), set[H11Protocol]()

    class Patient(H11Protocol):
        """One connection."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) - len(refused) <= most:
                self._watch()
            elif len(refused) < _REFUSED * most:
                self._refuse()
            else:
                transport.abort()

        def _refuse(self) -> None:
            refused.add(self)
            service.metrics.refused_connections.inc()
            self.transport.write(refusal)
            self.transport.write_eof()
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def data_received(self, data: bytes) -> None:
            if self in refused:
                return
            super().data_received(data)
            if self._is_idle():
                self._watch()
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(seconds, self._end)

        def _end(self) -> None:
            self._timer = None
            if self._is_idle() and not self.transport.is_closing():
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            refused.discard(self)
            super().connection_lost(exc)

    return Patient


def _as_bytes(error: ServiceError) -> bytes:
    """An error as a whole answer, after which the connection ends."""
    headers, body = error.answer()
    head = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items())
    return f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n{head}\r\n".encode() + body


def _allow_files(number: int) -> None:
    """Lets this process open so many files, as far as the system allows: every connection is one."""
    with suppress(ImportError, OSError, ValueError):  # not every system has such a limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < number:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


def serve(
    service: Service, bound: socket.socket, drain: float = 30.0, ready: Callable[[], None] = lambda: None
) -> bool:
    """Serves until the end; raises why the model could not be loaded. Whether the model's thread has ended, too."""
    server = ServiceServer(service, drain, ready)
    _allow_files((1 + _REFUSED) * _CONNECTIONS * service.limits.requests + _OTHER_FILES)
    server.run(sockets=[bound])
    error = service.thread.error
    if error is not None:
        raise error
    return not service.thread.is_alive()
