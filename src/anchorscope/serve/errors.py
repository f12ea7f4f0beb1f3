"""Errors of the service, all in OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}`.

A message says what is wrong and what to do, and never repeats a request's own text or names.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from anchorscope.errors import UserError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}  # as OpenAI's clients expect them
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class ServiceError(Exception):
    """A response that is an error."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}

    def record(self) -> dict[str, Any]:
        """What the envelope holds; also what stands in place of an item's score."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def body(self) -> dict[str, Any]:
        """The envelope."""
        return {"error": self.record()}

    def response(self) -> JSONResponse:
        """The whole response."""
        return JSONResponse(self.body(), self.status, self.headers)


def loading() -> ServiceError:
    """The model is not loaded yet."""
    return ServiceError(503, "model_loading", "The model is being loaded; try again soon.", retry_after=2)


def draining() -> ServiceError:
    """The service is ending."""
    return ServiceError(503, "shutting_down", "The service is shutting down; ask another one.", retry_after=5)


def queue_full(seconds: float) -> ServiceError:
    """The queue has no room, or a request's turn did not come in time."""
    return ServiceError(429, "queue_full", "Too much is waiting already; try again later.", retry_after=seconds)


def past_deadline(seconds: float) -> ServiceError:
    """The response would come too late."""
    return ServiceError(
        504,
        "deadline_exceeded",
        f"The answer was not ready within {seconds:g} seconds; try again later, or with fewer items.",
    )


def internal_error() -> ServiceError:
    """A fault of ours; its kind is in the log."""
    return ServiceError(500, "internal_error", "Something went wrong in the service; it was logged.")


def unknown_model() -> ServiceError:
    """A request names another model than the one that is served."""
    return ServiceError(
        404, "model_not_found", "This model is not served here; GET /v1/models names the one that is.", param="model"
    )


def invalid_request(message: str, param: str | None = None) -> ServiceError:
    """A field is wrong."""
    return ServiceError(422, "invalid_request", message, param=param)


def _of_validation(error: Any) -> ServiceError:
    """The first thing that pydantic reports."""
    first = error.errors()[0]
    param = field_name(first["loc"])
    reason = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"{param or 'a field'} is not supported here"
    else:
        message = f"{param}: {reason}" if param else reason
    return invalid_request(f"{message}; /openapi.json has what is allowed.", param)


def field_name(location: Sequence[Any]) -> str | None:
    """A place in the body, such as `items[2].question`; names that could be a request's own text are left out."""
    text = ""
    for part in location[1:] if location[:1] in (("body",), ("query",), ("path",)) else location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_NAME.fullmatch(str(part)):
            text += f".{part}" if text else str(part)
    return text or None


def _of_http(error: Any) -> ServiceError:
    code, message = {
        404: ("not_found", "There is nothing at this address; /openapi.json lists what there is."),
        405: ("method_not_allowed", "This address takes another method; the header Allow says which."),
        400: ("invalid_json", "The body is no JSON that can be read."),
    }.get(error.status_code, ("http_error", "The request cannot be answered."))
    answer = ServiceError(error.status_code, code, message)
    answer.headers = dict(error.headers or {})
    return answer


_HANDLERS: dict[type[Exception], Callable[[Any], ServiceError]] = {
    ServiceError: lambda error: error,
    UserError: lambda error: invalid_request(" ".join(str(error).split())),
    RequestValidationError: _of_validation,
    HTTPException: _of_http,
}


def error_handlers() -> dict[int | type[Exception], Callable[[Request, Any], Any]]:
    """How FastAPI answers exceptions."""

    def handler(convert: Callable[[Any], ServiceError]) -> Callable[[Request, Any], Any]:
        async def handle(request: Request, error: Any) -> JSONResponse:
            return convert(error).response()

        return handle

    return {kind: handler(convert) for kind, convert in _HANDLERS.items()}
