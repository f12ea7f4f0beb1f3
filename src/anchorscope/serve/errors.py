"""Errors of the service, all in OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}`.

A message says what is wrong and what to do, and never repeats what a request said: not its text, not its names.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

INVALID, KEY, LIMIT, SERVER = "invalid_request_error", "authentication_error", "rate_limit_error", "server_error"
"""Types, as OpenAI's clients know them."""
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class ServiceError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def body(self) -> dict[str, Any]:
        """The envelope."""
        return {"error": self.record()}

    def answer(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of the answer."""
        body = json.dumps(self.body()).encode()
        return {"content-type": "application/json", "content-length": str(len(body)), **self.headers}, body

    def record(self) -> dict[str, Any]:
        """What is in the envelope, or stands in the place of an item's score."""
        return {"message": self.message, "type": _kind(self.status), "param": self.param, "code": self.code}


def _kind(status: int) -> str:
    return {401: KEY, 429: LIMIT}.get(status, INVALID if status < 500 else SERVER)


def loading() -> ServiceError:
    """The model is not there yet."""
    return ServiceError(503, "model_loading", "The model is being loaded; try again soon.", retry_after=2)


def draining() -> ServiceError:
    """The service ends."""
    return ServiceError(503, "shutting_down", "The service is shutting down; ask another one.", retry_after=5)


def too_many_requests() -> ServiceError:
    """More requests or connections than are taken."""
    return ServiceError(429, "too_many_requests", "Too many requests are under way; try again later.", retry_after=1)


def queue_full(seconds: float) -> ServiceError:
    """As much waits as may."""
    return ServiceError(429, "queue_full", "Too much is waiting already; try again later.", retry_after=seconds)


def too_large(tokens: int, most: int) -> ServiceError:
    """More than ever waits at a time."""
    return ServiceError(
        413, "request_too_large", f"The request has {tokens:,} tokens, and the queue holds {most:,}; send it in parts."
    )


def past_deadline(seconds: float) -> ServiceError:
    """The answer would come too late."""
    return ServiceError(
        504,
        "deadline_exceeded",
        f"The answer was not ready within {seconds:g} seconds; try again later, or with fewer items.",
    )


def failed() -> ServiceError:
    """A mistake of ours; what it was is in the log."""
    return ServiceError(500, "internal_error", "Something went wrong in the service; it was logged.")


def item_failed(place: int, why: str = "the model gave no score for it") -> ServiceError:
    """One item that could not be scored."""
    return ServiceError(422, "item_failed", f"This item could not be scored: {why}.", param=f"items[{place}]")


def unknown_model() -> ServiceError:
    """Another model is asked for than the one that is served."""
    return ServiceError(
        404, "model_not_found", "This model is not served here; GET /v1/models tells which is.", param="model"
    )


def unknown_detector() -> ServiceError:
    """A detector is asked for that is not there."""
    return ServiceError(
        404, "detector_not_found", "This detector is not served here; GET /v1/detectors lists them.", param="detector"
    )


def invalid(errors: Sequence[Any]) -> ServiceError:
    """What pydantic found wrong, the first of it."""
    first = errors[0] if errors else {"loc": (), "msg": "the body is not what it should be", "type": ""}
    param = named(first["loc"])
    if first["type"] == "extra_forbidden":
        told = f"{param} is not supported here" if param else "a field is not supported here"
    else:
        told = str(first["msg"]).removeprefix("Value error, ")
        told = f"{param}: {told}" if param else told
    return ServiceError(422, "invalid_request", f"{told}; /openapi.json has what is allowed.", param=param)


def named(place: Sequence[Any]) -> str | None:
    """A place in the body, `items[2].question`; a name that is none of ours, or could be anything, is left out."""
    text = ""
    for part in place[1:] if place[:1] in (("body",), ("query",), ("path",)) else place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_NAME.fullmatch(str(part)):
            text += f".{part}" if text else str(part)
    return text or None
