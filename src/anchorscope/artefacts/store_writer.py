"""Keeps results in a store by a thread of its own: passes, and what follows them, go on while the disk is written.

Only so many bytes wait at a time: where the disk is slower than the workers, the coordinator waits for it. An error, as
of a full disk, is raised by the next write, or at the end; what was kept before it stays.
"""

import threading
from collections import deque
from types import TracebackType
from typing import Generic, TypeVar

from anchorscope.execute.content_hash import Body
from anchorscope.execute.store import Store

MOST_WAITING = 2**30
"""Bytes of one step's results that wait for the disk; one that is larger waits alone."""

S = TypeVar("S", bound=Store)


class StoreWriter(Generic[S]):
    """Writes into a store, in the order in which it is told to; everything is written when its block is left."""

    def __init__(self, store: S, most_waiting: int = MOST_WAITING) -> None:
        self.store, self._most = store, most_waiting
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, Body, str | None]] = deque()  # the first of them is being written
        self._size, self._is_closed = 0, False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None  # from the first write on: most stores see none

    def read(self, name: str) -> Body | None:
        """A shard's packed part; None where it is missing. One that waits is read when it is on the disk: whoever has
        its body may have changed it since."""
        with self._changed:
            self._changed.wait_for(lambda: all(one != name for one, _, _ in self._waiting))
        return self.store.read(name)

    def write(self, name: str, body: Body, sha256: str | None = None) -> None:
        """Keeps a result with its hash, soon; the error of an earlier one is raised here."""
        with self._changed:
            if self._is_closed:
                raise ValueError("results of shards come after their step has ended")
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="store", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.wait_for(lambda: self._error or not self._size or self._size + len(body) <= self._most)
            if self._error is not None:
                raise self._error
            self._waiting.append((name, body, sha256))
            self._size += len(body)
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while self._is_anything_left():
                self._write_first()
        except BaseException as error:  # told to whoever writes or waits
            with self._changed:
                self._error = error
                self._waiting.clear()
                self._changed.notify_all()

    def _is_anything_left(self) -> bool:
        """Waits until there is something to write; False where nothing will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            return bool(self._waiting)

    def _write_first(self) -> None:  # of its own: a body is large, and no name holds it afterwards
        name, body, sha256 = self._waiting[0]
        self.store.write(name, body, sha256)
        with self._changed:
            self._waiting.popleft()
            self._size -= len(body)
            self._changed.notify_all()

    def __enter__(self) -> "StoreWriter[S]":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Waits until all is written, also where something has failed: what is done is kept."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if kind is None and self._error is not None:
            raise self._error
