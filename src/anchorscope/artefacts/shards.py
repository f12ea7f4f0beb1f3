"""Results of shards while their step is under way, so that a run that is stopped goes on within it.

They lie in `work/DATASET/STEP-KEY.shards/`, a file each with the packed part and its sha256. A step that is stored
needs them no more. They are not in the index: each is checked when it is read, and one that is damaged is made again.
A thread of its own writes them: passes go on while the disk is written.
"""

import contextlib
import json
import os
import re
import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from anchorscope.errors import naming
from anchorscope.execute.content_hash import Body, content_hash
from anchorscope.files import PARTIAL, make_folder, remove_files

WORK = "work"
"""The folder of a run's steps."""
SHARDS = ".shards"
"""Ending of the folder of a step's shards."""
MOST_WAITING = 2**30
"""Bytes of one step's results that wait for the disk; one that is larger waits alone."""
_ENDING = ".safetensors"
_FILE = re.compile(rf"([0-9a-f]{{32}}){re.escape(_ENDING)}(?:{re.escape(PARTIAL)})?")
_FOLDER = re.compile(rf"(.+)-[0-9a-f]{{12}}{re.escape(SHARDS)}", re.DOTALL)
_BODY, _SHA256 = "body", "sha256"


class ShardStore:
    """The shards of one step, by their ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes | None:
        """A shard's result; None where it is missing or damaged, and then its file is gone."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        place = self._place(name)
        try:
            if not place.is_file():
                return None
            found = load(place.read_bytes())
            body = found[_BODY].tobytes()
            if bytes.fromhex(content_hash([body])) == found[_SHA256].tobytes():
                return body
        except (OSError, SafetensorError, KeyError, ValueError):
            pass
        with contextlib.suppress(OSError):
            place.unlink()
        return None

    def write(self, name: str, body: Body, sha256: str | None = None) -> None:
        """Keeps a result; what a power cut leaves of it is found out when it is read.

        `sha256` is its `content_hash`, where somebody has computed it already.
        """
        place = self._place(name)
        digest = bytes.fromhex(content_hash([body]) if sha256 is None else sha256)
        with naming(place):
            make_folder(self.folder)
            half_made = place.with_name(f"{place.name}{PARTIAL}")
            with half_made.open("wb") as file:
                file.writelines((_header(len(body), len(digest)), body, digest))  # the body is large: no copy is made
            os.replace(half_made, place)

    def ids(self) -> list[str]:
        """Those that are there; whether they are whole is seen when they are read."""
        found = (_FILE.fullmatch(place.name) for place in _members(self.folder))
        return sorted(one.group(1) for one in found if one and one.group().endswith(_ENDING))

    def drop(self) -> None:
        """Removes them; a file of any other name stays."""
        names = [place.name for place in _members(self.folder) if _FILE.fullmatch(place.name)]
        remove_files(self.folder.parent, [f"{self.folder.name}/{name}" for name in names])
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _place(self, name: str) -> Path:
        place = self.folder / f"{name}{_ENDING}"
        assert _FILE.fullmatch(place.name), f"{name!r} is no id of a shard"
        return place


class StoreWriter:
    """Writes into a store by a thread, in the order of the calls; everything is written when its block is left.

    Only so many bytes wait at a time: where the disk is slower than the workers, the coordinator waits for it. An
    error, as of a full disk, is raised by the next write, or at the end; what was kept before it stays.
    """

    def __init__(self, store: ShardStore, most_waiting: int = MOST_WAITING) -> None:
        self.store, self._most, self._is_closed = store, most_waiting, False
        self._thread = ThreadPoolExecutor(1, "store")  # started by the first write: most stores see none
        self._waiting: deque[tuple[str, int, Future[None]]] = deque()  # the first of them is being written
        self._error: BaseException | None = None

    def read(self, name: str) -> Body | None:
        """A shard's packed part; None where it is missing.

        One that waits is read when it is on the disk: its body may have been changed since.
        """
        for waiting, _, written in list(self._waiting):
            if waiting == name:
                written.result()
        return self.store.read(name)

    def write(self, name: str, body: Body, sha256: str | None = None) -> None:
        """Keeps a result with its hash, soon; the error of an earlier one is raised here."""
        if self._is_closed:
            raise ValueError("results of shards come after their step has ended")
        while self._waiting and (self._waiting[0][2].done() or self._size() + len(body) > self._most):
            self._waiting[0][2].result()
            self._waiting.popleft()
        if self._error is not None:
            raise self._error
        self._waiting.append((name, len(body), self._thread.submit(self._write, name, body, sha256)))

    def _size(self) -> int:
        return sum(size for _, size, _ in self._waiting)

    def _write(self, name: str, body: Body, sha256: str | None) -> None:
        if self._error is None:
            try:
                self.store.write(name, body, sha256)
            except BaseException as error:  # raised by the next write, or at the end
                self._error = error

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Waits until all is written, also where something has failed: what is done is kept."""
        self._is_closed = True
        self._thread.shutdown()
        if kind is None and self._error is not None:
            raise self._error


def _header(body: int, digest: int) -> bytes:
    """How a safetensors file of both begins."""
    ends = {_BODY: (0, body), _SHA256: (body, body + digest)}
    told = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in ends.items()
    }
    text = json.dumps(told).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def is_shard(name: str) -> bool:
    """Whether a file, by its path relative to the run folder, is one that a store wrote."""
    folder, _, file = name.rpartition("/")
    return bool(_FILE.fullmatch(file) and _FOLDER.fullmatch(folder) and folder.startswith(f"{WORK}/"))


def stores_below(work: Path) -> Iterator[ShardStore]:
    """All stores of a run that are there; none that a link leads to."""
    home = work.parent.resolve()
    for folder in (*work.glob(f"*{SHARDS}"), *work.glob(f"*/*{SHARDS}")):
        if _FOLDER.fullmatch(folder.name) and folder.is_dir() and folder.resolve().is_relative_to(home):
            yield ShardStore(folder)


def drop_shards(work: Path, step: str | None = None) -> None:
    """Removes the shards of a step, whatever it was made from; of all steps without a name."""
    for store in list(stores_below(work)):
        found = _FOLDER.fullmatch(store.folder.relative_to(work).as_posix())
        if step is None or (found is not None and found.group(1) == step):
            store.drop()


def _members(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
