"""What every request passes before its route: who asks, whether the service is ready, how large the body is.

The guard also ends requests at the deadline, turns faults into a response without a traceback, and counts and logs
every request.
"""

import asyncio
import hashlib
import ipaddress
import time
from contextlib import suppress
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anchorscope.errors import UserError
from anchorscope.files import read_regular
from anchorscope.serve.errors import (
    ServiceError,
    as_service_error,
    draining,
    internal_error,
)
from anchorscope.serve.service import LOADING, READY, Service

SHORTEST_KEY = 16
"""Characters of a key: shorter ones can be guessed."""
_CLIENT_GONE = 499  # the usual status in logs for clients that did not wait
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Keys:
    """The keys of a service, kept as hashes; without any, everyone may ask."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._hashes = {hashlib.sha256(key.encode()).digest() for key in keys}

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def allow(self, authorization: str) -> bool:
        """Whether a header `Authorization: Bearer KEY` has one of the keys; hashes tell a guesser nothing of a key."""
        scheme, _, key = authorization.strip().partition(" ")
        given = hashlib.sha256(key.strip().encode()).digest()
        return not self._hashes or (
            given in self._hashes and scheme.lower() == "bearer"
        )


def read_keys(path: Path) -> Keys:
    """The keys of a file; blank lines and those that begin with # are left out."""
    try:
        lines = read_regular(path, 2**20).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        )
        raise UserError(
            f"--keys-file {str(path)!r} cannot be read ({reason}); write one key a line."
        ) from None
    keys = [key for line in lines if (key := line.strip()) and not key.startswith("#")]
    if not keys or any(len(key) < SHORTEST_KEY or " " in key for key in keys):
        raise UserError(
            f"--keys-file {str(path)!r} has no key, or one with a blank or fewer than {SHORTEST_KEY} characters; make "
            f"one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return Keys(tuple(keys))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def refuse_no_keys(host: str, keys: Keys) -> None:
    if not is_loopback(host) and not keys:
        raise UserError(
            f"--host {host!r} lets other machines in, and there are no keys; add --keys-file FILE with one key a line, "
            f"or leave --host out to serve this machine alone."
        )


class Guard:
    """The outermost layer of the app, a plain ASGI middleware."""

    def __init__(
        self, app: ASGIApp, service: Service, keys: Keys, is_public: bool
    ) -> None:
        """Unless `is_public`, only requests that name this machine are answered."""
        self.app, self.service, self.keys, self.is_public = (
            app,
            service,
            keys,
            is_public,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status = time.monotonic(), 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message.get("headers", ()), *_HEADERS],
                }
            await send(message)

        try:
            await self._answer(scope, receive, send_noting_status)
        except Exception as error:
            refusal = as_service_error(error)
            if refusal is None:
                self.service.log.fault(error, "request")
            if not status:  # else the connection ends without its last piece
                await (refusal or internal_error()).response()(
                    scope, receive, send_noting_status
                )
        finally:
            self._count(scope, status or _CLIENT_GONE, time.monotonic() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, headers, path = self.service, Headers(scope=scope), scope["path"]
        if not self.is_public and not _names_this_machine(headers.get("host", "")):
            raise ServiceError(
                403,
                "host_not_allowed",
                "This service answers to names of its own machine only.",
            )
        is_api = path.startswith("/v1/")
        if (is_api or path == "/metrics") and not self.keys.allow(
            headers.get("authorization", "")
        ):
            message = "The key is missing or wrong; send the header Authorization: Bearer KEY."
            refusal = ServiceError(401, "invalid_api_key", message)
            refusal.headers["WWW-Authenticate"] = "Bearer"
            raise refusal
        if not is_api:  # nothing else takes a body or counts as a request under way
            return await self.app(scope, receive, send)
        if service.state != READY:
            message = "The model is being loaded; try again soon."
            is_loading = service.state == LOADING
            raise (
                ServiceError(503, "model_loading", message, retry_after=2)
                if is_loading
                else draining()
            )
        if service.requests >= service.limits.requests:
            message = "Too many requests are under way; try again later."
            raise ServiceError(429, "too_many_requests", message, retry_after=1)
        service.requests += 1
        deadline = service.limits.deadline
        try:
            if scope["method"] in ("POST", "PUT", "PATCH"):
                receive = _replay(await self._read_body(receive, headers), receive)
            async with asyncio.timeout(deadline):
                await self.app(scope, receive, send)
        except TimeoutError:
            message = f"The answer was not ready within {deadline:g} seconds; try again later, or with fewer items."
            raise ServiceError(504, "deadline_exceeded", message) from None
        finally:
            service.requests -= 1

    async def _read_body(self, receive: Receive, headers: Headers) -> bytes:
        """The body, within its limits of bytes and of time; uvicorn reads and drops what is left of a refused one."""
        limits = self.service.limits
        if (
            headers.get("content-type", "").partition(";")[0].strip().lower()
            != "application/json"
        ):
            text = "The body has to be JSON, with the header Content-Type: application/json."
            raise ServiceError(415, "unsupported_media_type", text)
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(limits.read_seconds):
                while more:
                    message = await receive()
                    body += message.get(
                        "body", b""
                    )  # a client that has gone sends no more
                    more = message.get("more_body", False)
                    if len(body) > limits.body_bytes:
                        text = f"The body has more than {limits.body_bytes:,} bytes; send it in parts."
                        raise ServiceError(413, "body_too_large", text)
        except TimeoutError:
            text = f"The body did not arrive within {limits.read_seconds:g} seconds; send it again."
            refusal = ServiceError(408, "request_timeout", text)
            refusal.headers["Connection"] = "close"
            raise refusal from None
        return bytes(body)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """One log line and the metrics, under the route's own name: an address may hold anything."""
        route = getattr(scope.get("route"), "path", None) or "other"
        self.service.metrics.requests.labels(route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        method = (
            scope["method"]
            if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS")
            else "other"
        )
        self.service.log.line(f"{method} {route} {status} {seconds * 1000:.1f} ms")


def _names_this_machine(host: str) -> bool:
    """Whether a request names this machine: a page of another site, whose name leads here, does not."""
    return is_loopback(
        host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives out a body that was read already, and then whatever comes."""
    read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return read.pop() if read else await receive()

    return receive_again
