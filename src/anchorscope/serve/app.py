"""The routes of the service, as a FastAPI app."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from anchorscope.errors import UserError
from anchorscope.serve.chat_route import chat_router
from anchorscope.serve.door import Door
from anchorscope.serve.errors import ServiceError, invalid
from anchorscope.serve.explain_route import explain_router
from anchorscope.serve.page.page import page_router
from anchorscope.serve.score_route import score_router
from anchorscope.serve.service import Service

VERSION = "1"
"""Of the routes; raised whenever one of them changes so that clients would notice."""
ABOUT = (
    "How probable it is that a language model's answers are true. Errors of every route have OpenAI's form. "
    "docs/serving.md has the whole contract."
)


def make_app(service: Service) -> FastAPI:
    """The app of a service; it starts with it and ends with it."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="anchorscope",
        description=ABOUT,
        version=VERSION,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    for router in (score_router(service), chat_router(service), explain_router(service), page_router()):
        app.include_router(router)
    app.add_middleware(Door, service=service)
    for kind, answer in _ERRORS.items():
        app.add_exception_handler(kind, answer)
    _add_state(app, service)
    return app


def openapi_text() -> str:
    """The description of the routes, as `docs/openapi.json` has it; they are the same for every service."""
    described = make_app(cast(Service, None)).openapi()  # routes look at their service only when they are asked
    return json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _add_state(app: FastAPI, service: Service) -> None:
    """Routes that say how the service is."""

    @app.get("/healthz", tags=["state"], summary="Whether the process lives", responses={503: {}})
    async def healthz() -> JSONResponse:
        is_well = service.thread.error is None
        return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)

    @app.get("/readyz", tags=["state"], summary="Whether requests are taken", responses={503: {}})
    async def readyz() -> JSONResponse:
        return JSONResponse({"status": service.state}, 200 if service.state == "ready" else 503)

    @app.get("/metrics", tags=["state"], summary="Numbers for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _told(error: ServiceError) -> JSONResponse:
    return JSONResponse(error.body(), error.status, error.headers)


async def _of_service(request: Request, error: Any) -> JSONResponse:
    return _told(error)


async def _of_user(request: Request, error: Any) -> JSONResponse:
    return _told(ServiceError(422, "invalid_request", " ".join(str(error).split())))


async def _of_form(request: Request, error: Any) -> JSONResponse:
    return _told(invalid(error.errors()))


async def _of_http(request: Request, error: Any) -> JSONResponse:
    code, message = {
        404: ("not_found", "There is nothing at this address; /openapi.json lists what is."),
        405: ("method_not_allowed", "This address takes another method; the header Allow tells which."),
        400: ("invalid_json", "The body is no JSON that can be read."),
    }.get(error.status_code, ("http_error", "The request cannot be answered."))
    return _told(ServiceError(error.status_code, code, message, headers=error.headers))


_ERRORS: dict[type[Exception], Callable[[Request, Any], Any]] = {
    ServiceError: _of_service,
    UserError: _of_user,
    RequestValidationError: _of_form,
    HTTPException: _of_http,
}
