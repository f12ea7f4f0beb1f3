"""Messages between the coordinator and a worker process over a socket: a JSON header and bytes, each with its length.

Nothing is unpickled: the header is JSON, the rest are bytes that `wire` reads.
"""

import json
import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_LENGTH = struct.Struct("!Q")
_LONGEST_HEADER = 2**26
_AT_ONCE = 2**20  # bytes read at a time


class Closed(ConnectionError):
    """The other side is gone."""


class Frames:
    """One end of a connection; several threads may send, one may receive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, header: Mapping[str, Any], parts: Mapping[str, bytes] | None = None) -> None:
        """One message: a header and named bytes; Closed where nobody is there."""
        parts = parts or {}
        sizes = {name: len(data) for name, data in parts.items()}
        text = json.dumps({"header": dict(header), "parts": sizes}).encode()
        try:
            with self._sending:
                self._connection.sendall(_LENGTH.pack(len(text)) + text)
                for data in parts.values():
                    self._connection.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The next message; Closed where the other side went away, or sent what is no message."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _LONGEST_HEADER:
            raise Closed(f"a header of {length:,} bytes; allowed: {_LONGEST_HEADER:,}")
        try:
            told = json.loads(self._exactly(length))
            header, sizes = dict(told["header"]), {str(name): int(size) for name, size in told["parts"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Closed(f"a header that cannot be read ({error})") from error
        return header, {name: self._exactly(size) for name, size in sizes.items()}

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
