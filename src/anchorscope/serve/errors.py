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

_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
}  # as OpenAI's clients expect them
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_HTTP_ERRORS = {
    400: ("invalid_json", "The body is no JSON that can be read."),
    404: (
        "not_found",
        "There is nothing at this address; /openapi.json lists what there is.",
    ),
    405: (
        "method_not_allowed",
        "This address takes another method; the header Allow says which.",
    ),
}


class ServiceError(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = (
            {}
            if retry_after is None
            else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        )

    def record(self) -> dict[str, Any]:
        """What the envelope holds; also what stands in place of an item's score."""
        kind = _TYPES.get(
            self.status,
            "invalid_request_error" if self.status < 500 else "server_error",
        )
        return {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }

    def response(self) -> JSONResponse:
        return JSONResponse({"error": self.record()}, self.status, self.headers)


def draining() -> ServiceError:
    return ServiceError(
        503,
        "shutting_down",
        "The service is shutting down; ask another one.",
        retry_after=5,
    )


def internal_error() -> ServiceError:
    """A fault of ours; its kind is in the log."""
    return ServiceError(
        500, "internal_error", "Something went wrong in the service; it was logged."
    )


def invalid_request(message: str, param: str | None = None) -> ServiceError:
    return ServiceError(422, "invalid_request", message, param=param)


def _from_validation(error: RequestValidationError) -> ServiceError:
    """The first thing that pydantic reports."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ServiceError(400, *_HTTP_ERRORS[400])
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
    for part in location[1:]:  # the first says that it is the body
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_NAME.fullmatch(str(part)):
            text += f".{part}" if text else str(part)
    return text or None


def _from_http(error: HTTPException) -> ServiceError:
    code, message = _HTTP_ERRORS.get(
        error.status_code, ("http_error", "The request cannot be answered.")
    )
    answer = ServiceError(error.status_code, code, message)
    answer.headers = dict(error.headers or {})
    return answer


def as_service_error(error: Any) -> ServiceError | None:
    """An exception as a client may see it; None for a fault of ours."""
    if isinstance(error, UserError):
        return invalid_request(" ".join(str(error).split()))
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    if isinstance(error, HTTPException):
        return _from_http(error)
    return error if isinstance(error, ServiceError) else None


def error_handlers() -> dict[int | type[Exception], Callable[[Request, Any], Any]]:
    async def handle(request: Request, error: Any) -> JSONResponse:
        return (as_service_error(error) or internal_error()).response()

    return dict.fromkeys(
        (ServiceError, UserError, RequestValidationError, HTTPException), handle
    )
