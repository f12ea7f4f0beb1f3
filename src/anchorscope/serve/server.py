"""The HTTP server: the routes as a FastAPI app, uvicorn on one socket with its own limits, and a calm end.

On SIGTERM or SIGINT new requests are refused (503), those under way get some time to finish, and the process ends. A
second signal ends it at once.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST

from anchorscope.json_text import to_json
from anchorscope.serve.errors import error_handlers
from anchorscope.serve.guard import Guard, Keys
from anchorscope.serve.processes import SHARED_PORT
from anchorscope.serve.routes import chat_router, score_router
from anchorscope.serve.service import READY, Service

_ABOUT = (
    "How probable it is that a language model's answers are true. Errors of every route have OpenAI's form. "
    "docs/serving.md has the whole contract."
)
_PAGE = Path(__file__).parent / "page"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the browser may do on the page: load files from here, and ask here."""
_KEEP_ALIVE = 15  # seconds that an idle connection is kept
_LAST_SECONDS = 2  # for connections to close after draining
_CONNECTIONS = 3  # per request that may be under way: those beyond them get 429, and beyond all connections 503


def make_app(service: Service, keys: Keys, is_public: bool = False) -> FastAPI:
    """The app of a service; the model thread starts and ends with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start()
        yield
        service.close()

    app = FastAPI(
        title="anchorscope",
        description=_ABOUT,
        version="1",  # raised whenever a route changes so that clients would notice
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        exception_handlers=error_handlers(),
    )
    app.include_router(score_router(service))
    app.include_router(chat_router(service))

    @app.get(
        "/healthz",
        tags=["state"],
        summary="Whether the process lives",
        responses={503: {}},
    )
    async def healthz() -> JSONResponse:
        is_well = service.thread.error is None
        return JSONResponse(
            {"status": "ok" if is_well else "failed"}, 200 if is_well else 503
        )

    @app.get(
        "/readyz",
        tags=["state"],
        summary="Whether requests are taken",
        responses={503: {}},
    )
    async def readyz() -> JSONResponse:
        return JSONResponse(
            {"status": service.state}, 200 if service.state == READY else 503
        )

    @app.get(
        "/metrics",
        tags=["state"],
        summary="Numbers for Prometheus",
        response_class=Response,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    # The page to try the service. It holds no data: its scripts ask the routes, and show what comes back as text.
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-cache",
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        return FileResponse(_PAGE / "page.html", headers=headers)

    report = [("anchorscope.report", "scripts"), ("anchorscope.report", "templates")]
    app.mount("/page", _PageFiles(directory=_PAGE, packages=report))  # type: ignore[arg-type]
    app.add_middleware(Guard, service=service, keys=keys, is_public=is_public)
    return app


def openapi_text() -> str:
    """The description of the routes, as `docs/openapi.json` has it; they are the same for every service."""
    # routes use their service only when they are asked
    schema = make_app(cast(Service, None), Keys()).openapi()
    return to_json(schema, indent=1, sort_keys=True, ascii=False) + "\n"


class _PageFiles(StaticFiles):
    """Style sheets and scripts: those of the page, and those of the report that it shares."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        return (
            super().lookup_path(path) if path.endswith((".css", ".js")) else ("", None)
        )


class ServiceServer(uvicorn.Server):
    """Serves one service until a signal comes, the model cannot be loaded, or somebody sets `should_exit`."""

    def __init__(
        self,
        service: Service,
        keys: Keys | None = None,
        is_public: bool = False,
        drain: float = 30.0,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`drain` are the seconds for requests under way at the end; `on_ready` is called once the model is loaded."""
        self.service, self.keys, self.drain, self.on_ready = (
            service,
            keys or Keys(),
            drain,
            on_ready,
        )
        self._was_ready, self._drain_until = False, float("inf")
        self._idle_since: dict[tuple[Any, Any], float] = {}
        config = uvicorn.Config(
            make_app(service, self.keys, is_public),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS * service.limits.requests,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins to drain, the second one ends a lone process at once: others may get each twice."""
        if self.service.is_draining and not SHARED_PORT:
            self.should_exit = self.force_exit = True
        self.service.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        now = time.monotonic()
        self._close_idle(now)
        self.service.metrics.queue.set(self.service.queue.tokens)
        self.service.metrics.ready.set(self.service.state == READY)
        if self.service.state == READY and not self._was_ready:
            self._was_ready = True
            self.on_ready()
        if self.service.is_draining:
            self._drain_until = min(self._drain_until, now + self.drain)
            if not self.service.requests or now >= self._drain_until:
                self.service.thread.abandon()
                self.should_exit = True
        if self.service.thread.error is not None:
            self.should_exit = True
        return await super().on_tick(counter)

    def _close_idle(self, now: float) -> None:
        """Closes connections without a complete request for too long: uvicorn does so only between two requests."""
        connections: set[Any] = set(self.server_state.connections)
        idle = [
            (each, each.cycle)
            for each in connections
            if each.cycle is None or each.cycle.response_complete
        ]
        self._idle_since = {key: self._idle_since.get(key, now) for key in idle}
        read_seconds = self.service.limits.read_seconds
        for (connection, cycle), since in self._idle_since.items():
            if now - since > (
                read_seconds if cycle is None else max(read_seconds, _KEEP_ALIVE)
            ):
                connection.transport.close()


def run_server(server: ServiceServer, bound: socket.socket) -> bool:
    """Serves until the end; raises why the model could not be loaded. Whether the model thread has ended, too."""
    asyncio.run(server.serve(sockets=[bound]))
    error = server.service.thread.error
    if error is not None:
        raise error
    return not server.service.thread.is_alive()
