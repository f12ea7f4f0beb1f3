"""sha256 of files; each is read once for as long as it is the same file.

A file is known by its path, size, inode and both of its times. The second one (ctime) moves with every write and cannot
be set back, so that a file whose content was changed under an old date is read again; a copy has another inode, is
read, and has the same hash. What was hashed is remembered in memory and, on request, in a file, which is ignored where
it is damaged.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_JUST_WRITTEN = 2_000_000_000  # ns: clocks of file systems tick too slowly to tell two writes apart that are nearer
_MOST = 4096  # files remembered on disk; the oldest go first
_THREADS = 4  # hashing leaves the interpreter's lock alone
_HEX = frozenset("0123456789abcdef")
Stamp = list[int]
_MEMORY: dict[str, tuple[Stamp, str]] = {}


def sha256(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def known_sha256(paths: Sequence[Path], remembered: Path | None = None) -> list[str]:
    """Hashes of files, several at once; those that are the same as last time are not read again.

    `remembered` is the file in which hashes outlive the process. Where it cannot be written, nothing is lost but time.
    """
    stamps = [_stamp(path) for path in paths]
    on_disk = _read(remembered) if remembered is not None else {}
    found = {
        str(path): known[1]
        for path, stamp in zip(paths, stamps, strict=True)
        for known in (_MEMORY.get(str(path)), on_disk.get(str(path)))
        if known is not None and known[0] == stamp
    }
    unknown = [path for path in paths if str(path) not in found]
    if unknown:
        with ThreadPoolExecutor(_THREADS) as threads:
            found |= zip(map(str, unknown), threads.map(sha256, unknown), strict=True)
    now = time.time_ns()
    settled = {
        str(path): (stamp, found[str(path)])
        for path, stamp in zip(paths, stamps, strict=True)
        if now - max(stamp[2:4]) > _JUST_WRITTEN and _stamp(path) == stamp  # not written to in the meantime
    }
    _MEMORY.update(settled)
    if remembered is not None and any(on_disk.get(name) != one for name, one in settled.items()):
        _write(remembered, {**{name: one for name, one in on_disk.items() if name not in settled}, **settled})
    return [found[str(path)] for path in paths]


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _read(place: Path) -> dict[str, tuple[Stamp, str]]:
    """What is remembered; nothing, where the file is not exactly what was written."""
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
        files = told["files"]
        if told["seal"] != _seal(files):
            return {}
        whole = {
            name: (stamp, digest)
            for name, (stamp, digest) in files.items()
            if isinstance(stamp, list) and len(digest) == 64 and _HEX.issuperset(digest)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return whole


def _write(place: Path, files: dict[str, tuple[Stamp, str]]) -> None:
    """Written beside its place, brought to the disk and renamed: whole, or not at all."""
    kept = dict(list(files.items())[-_MOST:])
    text = json.dumps({"files": kept, "seal": _seal(kept)})
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        half_made = place.with_name(f".{place.name}.{os.getpid()}")  # of two that write at once, the last one wins
        try:
            with half_made.open("w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(half_made, place)
        finally:
            half_made.unlink(missing_ok=True)


def _seal(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
