"""A request's body, read within bounds: of bytes, of time, and of what JSON may be."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import from_json

from anchorscope.serve.errors import ServiceError
from anchorscope.serve.limits import Limits

Receive = Callable[[], Awaitable[Any]]
_DISCARDED = 16  # bodies' worth: whoever is told that it sent too much has to have stopped sending to hear it
_DISCARD_SECONDS = 2.0
JSON = b"application/json"


class ClientGone(Exception):
    """Nobody is there to answer."""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limits: Limits) -> bytes:
    """The whole body of a request, checked to be JSON that can be read safely."""
    told = headers.get(b"content-length", b"")
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if (told.isdigit() and int(told) > limits.body_bytes) or kind != JSON:
        await _discard(receive, limits)
        raise (
            _too_large(limits)
            if kind == JSON
            else ServiceError(
                415,
                "unsupported_media_type",
                "The body has to be JSON, with the header Content-Type: application/json.",
            )
        )
    try:
        async with asyncio.timeout(limits.read_seconds):
            body = await _read(receive, limits)
    except TimeoutError:
        raise ServiceError(
            408,
            "request_timeout",
            f"The body did not arrive within {limits.read_seconds:g} seconds; send it again.",
            headers={"Connection": "close"},
        ) from None
    if body is None:
        await _discard(receive, limits)
        raise _too_large(limits)
    try:
        from_json(body, allow_inf_nan=False)  # depth and numbers are bounded there
    except (ValueError, RecursionError):
        raise ServiceError(400, "invalid_json", "The body is no JSON, or is nested too deeply.") from None
    return body


async def _read(receive: Receive, limits: Limits) -> bytes | None:
    """The body; None where it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _discard(receive: Receive, limits: Limits) -> None:
    """Reads on for a moment, so that the client hears what is wrong instead of a broken connection."""
    left = _DISCARDED * limits.body_bytes
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


def _too_large(limits: Limits) -> ServiceError:
    return ServiceError(
        413,
        "body_too_large",
        f"The body has more than {limits.body_bytes:,} bytes; send it in parts.",
        headers={"Connection": "close"},
    )
