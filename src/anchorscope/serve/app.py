"""The routes of the service as a FastAPI app: scores, chats, explanations, the page, and the service's own state."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from anchorscope.serve.chat import chat_router
from anchorscope.serve.errors import error_handlers
from anchorscope.serve.guard import Guard, Keys
from anchorscope.serve.score import score_router
from anchorscope.serve.service import READY, Service

VERSION = "1"
"""Of the routes; raised whenever one of them changes so that clients would notice."""
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
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        exception_handlers=error_handlers(),
    )
    app.include_router(score_router(service))
    app.include_router(chat_router(service))
    _add_state(app, service)
    _add_page(app)
    app.add_middleware(Guard, service=service, keys=keys, is_public=is_public)
    return app


def openapi_text() -> str:
    """The description of the routes, as `docs/openapi.json` has it; they are the same for every service."""
    schema = make_app(cast(Service, None), Keys()).openapi()  # routes use their service only when they are asked
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _add_state(app: FastAPI, service: Service) -> None:
    """Routes for operators."""

    @app.get("/healthz", tags=["state"], summary="Whether the process lives", responses={503: {}})
    async def healthz() -> JSONResponse:
        is_well = service.thread.error is None
        return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)

    @app.get("/readyz", tags=["state"], summary="Whether requests are taken", responses={503: {}})
    async def readyz() -> JSONResponse:
        return JSONResponse({"status": service.state}, 200 if service.state == READY else 503)

    @app.get("/metrics", tags=["state"], summary="Numbers for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_page(app: FastAPI) -> None:
    """The page to try the service. It holds no data: its scripts ask the routes, and show what comes back as text."""

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


class _PageFiles(StaticFiles):
    """Style sheets and scripts: those of the page, and those of the report that it shares."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        return super().lookup_path(path) if path.endswith((".css", ".js")) else ("", None)
