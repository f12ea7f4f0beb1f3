"""Messages between the coordinator and a worker process over a socket: a JSON header and bytes, each with its length.

Nothing is unpickled: the header is JSON, the rest are bytes that `wire` reads. Large results do not go through the
socket: the worker tells where they lie, the coordinator reads them there (`worker_memory`) and answers that it has.
"""

import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from anchorscope.execute.content_hash import Body
from anchorscope.execute.worker_memory import CAN_READ, Place, places_of, read_places

_LENGTH = struct.Struct("!Q")
_LONGEST_HEADER = 2**26
_AT_ONCE = 2**20  # bytes read at a time
OFFERED_FROM = 2**20
"""Bytes from which on a part stays where it is, to be read there."""
_TAKEN, _NOT_NOW, _FORBIDDEN = "taken", "not now", "forbidden"  # answers to an offer


class Closed(ConnectionError):
    """The other side is gone."""


class Frames:
    """One end of a connection; several threads may send, one may receive."""

    def __init__(
        self, connection: socket.socket, offers: bool = False, process: Callable[[], int | None] = lambda: None
    ) -> None:
        """With `offers`, large parts stay where they are until the other side has read them; somebody has to receive
        here meanwhile. `process` is the number of the process on the other side, whose memory may be read."""
        self._connection, self._offers, self._process = connection, offers and CAN_READ, process
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._offered: dict[int, Future[str]] = {}
        self._is_ended = False

    def send(self, header: Mapping[str, Any], parts: Mapping[str, bytes | Sequence[Body]] | None = None) -> None:
        """One message: a header and named parts, bytes or pieces that make them up; Closed where nobody is there."""
        whole: dict[str, list[Body]] = {
            name: [one] if isinstance(one, bytes) else list(one) for name, one in (parts or {}).items()
        }
        sizes = {name: sum(map(len, pieces)) for name, pieces in whole.items()}
        large = [name for name in whole if sizes[name] >= OFFERED_FROM]
        if large and self._offers:
            answer = self._offer(header, sizes, whole, large)
            if answer == _TAKEN:
                return
            self._offers = answer != _FORBIDDEN
        self._message({"header": dict(header), "parts": sizes}, whole)

    def _offer(
        self, header: Mapping[str, Any], sizes: Mapping[str, int], whole: Mapping[str, list[Body]], large: list[str]
    ) -> str:
        """Tells where the large parts lie, and waits until they were read, or are known not to be."""
        number, answer = next(self._numbers), Future[str]()
        self._offered[number] = answer
        if self._is_ended:  # nobody hears an answer
            raise Closed("the connection was closed")
        places = {name: places_of(whole[name]) for name in large}
        told = {"header": dict(header), "parts": sizes, "offer": number, "places": places}
        self._message(told, {name: [] if name in places else whole[name] for name in whole})
        return answer.result()

    def _message(self, told: Mapping[str, Any], whole: Mapping[str, list[Body]]) -> None:
        text = json.dumps(told).encode()
        try:
            with self._sending:
                self._connection.sendall(_LENGTH.pack(len(text)) + text)
                for pieces in whole.values():
                    for data in pieces:
                        self._connection.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> tuple[dict[str, Any], dict[str, Body]]:
        """The next message; Closed where the other side went away, or sent what is no message."""
        try:
            while True:
                found = self._next()
                if found is not None:
                    return found
        except BaseException as error:
            self._is_ended = True
            for answer in list(self._offered.values()):
                if not answer.done():
                    answer.set_exception(Closed(str(error)))
            raise

    def _next(self) -> tuple[dict[str, Any], dict[str, Body]] | None:
        """A message, or None for an answer to an offer, or for an offer that could not be taken: it comes again."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _LONGEST_HEADER:
            raise Closed(f"a header of {length:,} bytes; allowed: {_LONGEST_HEADER:,}")
        try:
            told = json.loads(self._exactly(length))
            if "answer" in told:
                self._offered.pop(told["answer"]).set_result(str(told["told"]))
                return None
            header, sizes = dict(told["header"]), {str(name): int(size) for name, size in told["parts"].items()}
            places = {str(name): [(int(a), int(b)) for a, b in found] for name, found in told.get("places", {}).items()}
            offer = int(told["offer"]) if places else None
            for name, found in places.items():
                if any(min(place) <= 0 for place in found) or sum(size for _, size in found) != sizes[name]:
                    raise ValueError(f"places that are not those of {sizes[name]:,} bytes")
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise Closed(f"a header that cannot be read ({error})") from error
        parts: dict[str, Body] = {name: self._exactly(sizes[name]) for name in sizes if name not in places}
        if offer is not None:
            taken, answer = self._taken(places)
            with suppress(Closed):  # what was read is whole; that nobody is there comes next
                self._message({"answer": offer, "told": answer}, {})
            if answer != _TAKEN:
                return None
            parts |= taken
        return header, {name: parts[name] for name in sizes}

    def _taken(self, places: Mapping[str, Sequence[Place]]) -> tuple[dict[str, Body], str]:
        """The parts that lie at these places of the other process, and whether they could be read."""
        process = self._process()
        try:
            if process is not None:
                return {name: read_places(process, found) for name, found in places.items()}, _TAKEN
        except OSError:
            return {}, _FORBIDDEN
        except MemoryError:
            pass
        return {}, _NOT_NOW

    def _exactly(self, size: int) -> bytes:
        """So many bytes; memory is taken as they come, not as they are announced."""
        data = bytearray()
        while len(data) < size:
            try:
                found = self._connection.recv(min(_AT_ONCE, size - len(data)))
            except OSError as error:
                raise Closed(str(error)) from error
            if not found:
                raise Closed("the connection was closed")
            data += found
        return bytes(data)

    def close(self) -> None:
        """Ends the connection, also for a thread that waits for a message."""
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
