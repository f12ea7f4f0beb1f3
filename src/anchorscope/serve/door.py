"""What every request passes: who asks, whether the service is ready, how large the body is, and what is logged.

It also notices that a client has gone, and ends what was being done for it; and it turns whatever goes wrong inside
into an answer without a traceback.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from anchorscope.serve import errors
from anchorscope.serve.body import ClientGone, Receive, read_body
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.keys import is_loopback
from anchorscope.serve.service import Service

Send = Callable[[Any], Awaitable[None]]
Scope = Any
_API = "/v1/"
_WITH_BODY = ("POST", "PUT", "PATCH")
_GONE = 499  # what logs say of clients that did not wait
_GRACE = 10.0  # seconds beyond the deadline in which an answer has to be read
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class Door:
    """The outermost layer of the app."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began = time.monotonic()
        answer = _Answer(send)
        try:
            await self._answered(scope, receive, answer)
        except ClientGone:
            answer.status = _GONE
        except ServiceError as error:
            await answer.refuse(error)
        except Exception as error:
            self.service.log.fault(error, "request")
            await answer.refuse(errors.failed())
        finally:
            self._count(scope, answer.status, time.monotonic() - began)

    async def _answered(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        service, path = self.service, scope["path"]
        headers = dict(scope["headers"])
        if not service.setting.is_public and not _names_this_machine(headers.get(b"host", b"")):
            raise ServiceError(403, "host_not_allowed", "This service answers to names of its own machine only.")
        is_api = path.startswith(_API)
        if (is_api or path == "/metrics") and not service.setting.keys.allow(headers.get(b"authorization")):
            raise ServiceError(
                401,
                "invalid_api_key",
                "The key is missing or not known; send the header Authorization: Bearer KEY.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if not is_api:  # nothing else takes a body, and whoever has no key takes nobody's place
            return await self._watched(scope, receive, answer, b"")
        service.refuse_unready()
        if service.requests >= service.limits.requests:
            raise errors.too_many_requests()
        service.requests += 1
        try:
            body = await read_body(receive, headers, service.limits) if scope["method"] in _WITH_BODY else b""
            await self._watched(scope, receive, answer, body)
        finally:
            service.requests -= 1

    async def _watched(self, scope: Scope, receive: Receive, answer: "_Answer", body: bytes) -> None:
        """Runs the app, for as long as the client is there."""
        gone = asyncio.create_task(_disconnected(receive))
        inside = asyncio.create_task(self._inside(scope, _replay(body, gone), answer))
        most = self.service.limits.deadline + _GRACE
        try:
            await asyncio.wait({gone, inside}, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if inside.done():
                return inside.result()
            if not gone.done():  # the deadline passed long ago, and the answer is still being sent
                raise errors.past_deadline(self.service.limits.deadline)
            if not answer.is_complete:
                raise ClientGone
        finally:
            for task in (gone, inside):
                task.cancel()
            with suppress(BaseException):
                await asyncio.gather(gone, inside, return_exceptions=True)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """A line and a number, by the route's own name: an address may hold anything."""
        route = getattr(scope.get("route"), "path", None) or "other"
        self.service.metrics.requests.labels(route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.service.log.line(f"{method} {route} {status} {seconds * 1000:.1f} ms")


class _Answer:
    """Sends the answer on, and knows how far it is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.is_complete = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, error: ServiceError) -> None:
        """The error, if nothing has been sent yet; else the connection ends without its last piece."""
        if self.status:
            return
        named, body = error.answer()
        headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _names_this_machine(host: bytes) -> bool:
    """Whether a request names this machine: a page of another site, whose name leads here, does not."""
    name = host.decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, gone: "asyncio.Task[None]") -> Receive:
    """The body once more, then nothing until the client goes."""
    given = False

    async def receive() -> Any:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.wait({gone})
        return {"type": "http.disconnect"}

    return receive
