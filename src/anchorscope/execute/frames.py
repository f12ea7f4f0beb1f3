"""Messages between the coordinator and a worker process over a socket: a JSON header and bytes, each with its length.

Nothing is unpickled: the header is JSON, the rest are bytes that `wire` reads. Large results are not copied through the
socket: their memory is lent (`lent_memory`).
"""

import json
import os
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from anchorscope.execute.content_hash import Body
from anchorscope.execute.lent_memory import CAN_LEND, read_sealed, write_sealed

_LENGTH = struct.Struct("!Q")
_LONGEST_HEADER = 2**26
_AT_ONCE = 2**20  # bytes read at a time
_MOST_LENT = 4  # pieces of memory in one message
LENT_FROM = 2**20
"""Bytes from which on the memory of a part in pieces is lent."""


class Closed(ConnectionError):
    """The other side is gone."""


class Frames:
    """One end of a connection; several threads may send, one may receive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, header: Mapping[str, Any], parts: Mapping[str, bytes | Sequence[Body]] | None = None) -> None:
        """One message: a header and named parts, bytes or pieces that make them up; Closed where nobody is there."""
        whole = {name: [one] if isinstance(one, bytes) else list(one) for name, one in (parts or {}).items()}
        sizes = {name: sum(map(len, pieces)) for name, pieces in whole.items()}
        lent: dict[str, int] = {}
        with ExitStack() as until_sent:
            for name in [name for name in whole if len(whole[name]) > 1 and sizes[name] >= LENT_FROM and CAN_LEND]:
                with suppress(OSError):  # a system that forbids it, or has no room for it: through the socket, then
                    lent[name] = write_sealed(whole[name])
                    until_sent.callback(os.close, lent[name])
                    del whole[name]
            fds = list(lent.values())
            text = json.dumps({"header": dict(header), "parts": sizes, "lent": list(lent)}).encode()
            try:
                with self._sending:
                    length = _LENGTH.pack(len(text))
                    sent = socket.send_fds(self._connection, [length], fds) if fds else 0
                    self._connection.sendall(length[sent:] + text)
                    for pieces in whole.values():
                        for data in pieces:
                            self._connection.sendall(data)
            except OSError as error:
                raise Closed(str(error)) from error

    def receive(self) -> tuple[dict[str, Any], dict[str, Body]]:
        """The next message; Closed where the other side went away, or sent what is no message."""
        with ExitStack() as until_read:
            start, fds = self._begin()
            for fd in fds:
                until_read.callback(os.close, fd)
            (length,) = _LENGTH.unpack(start + self._exactly(_LENGTH.size - len(start)))
            if length > _LONGEST_HEADER:
                raise Closed(f"a header of {length:,} bytes; allowed: {_LONGEST_HEADER:,}")
            try:
                told = json.loads(self._exactly(length))
                header, sizes = dict(told["header"]), {str(name): int(size) for name, size in told["parts"].items()}
                lent = dict(zip(map(str, told["lent"]), fds, strict=True))
                taken = {name: read_sealed(fd, sizes[name]) for name, fd in lent.items()}
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise Closed(f"a header that cannot be read ({error})") from error
            return header, {name: taken[name] if name in taken else self._exactly(sizes[name]) for name in sizes}

    def _begin(self) -> tuple[bytes, list[int]]:
        """The first bytes of a message, and the memory that is lent with it."""
        try:
            start, fds, _, _ = socket.recv_fds(self._connection, _LENGTH.size, _MOST_LENT)
        except OSError as error:
            raise Closed(str(error)) from error
        if not start:
            raise Closed("the connection was closed")
        return start, fds

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
