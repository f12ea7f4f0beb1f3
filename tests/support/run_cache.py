"""Folders that many tests read, such as whole runs: made once per version of the code, kept in `.pytest_cache`.

    def make(folder: Path) -> None:             # the folder exists and is empty
        write_questions(folder / "facts.jsonl")
        run_recipe(recipe, folder / "run")

    run = cached_run("small", make) / "run"

The result is read only by convention: a test that changes it copies it first. Names are unique over all tests. Whatever
`make` depends on beside the package, the installed libraries, `tests/support` and its own source file has to be part of
the name.
"""

import hashlib
import inspect
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

CACHE = Path(__file__).parents[2] / ".pytest_cache" / "anchorscope"
_UNUSED_SECONDS = 3600
"""Folders of other versions of the code go when unused for so long: a test session that still reads them has ended."""


def cached_run(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills: made now, or found as an earlier test, process or session left it.

    It is filled where it stays, because runs record absolute paths of models and question files; a mark beside it says
    that it is complete. An incomplete one, left by a crash, is made again. Of several processes one makes the folder
    and the others wait. What `make` raises is raised here, and nothing is kept.
    """
    home = CACHE / _code_hash()
    source = Path(
        inspect.getfile(getattr(make, "func", make))
    )  # of a functools.partial its function's
    folder = home / f"{name}-{_file_hash(source)[:8]}"
    mark = folder.with_name(f"{folder.name}.complete")
    home.mkdir(parents=True, exist_ok=True)
    os.utime(home)
    _remove_unused(home)
    with FileLock(f"{folder}.lock"):
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                make(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            mark.touch()
    return folder


@cache
def _code_hash() -> str:
    """Of all that the numbers of a run depend on: the package, these helpers, installed libraries, Python, threads."""
    digest = hashlib.sha256()
    package = find_spec("anchorscope")
    assert package is not None
    assert package.origin is not None
    for root in (Path(package.origin).parent, Path(__file__).parent):
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(
                    f"{path.relative_to(root).as_posix()} {_file_hash(path)}\n".encode()
                )
    libraries = sorted(f"{one.name} {one.version}" for one in metadata.distributions())
    threads = f"{os.environ.get('OMP_NUM_THREADS')} of {os.cpu_count()}"
    digest.update(
        "\n".join([*libraries, sys.version, platform.platform(), threads]).encode()
    )
    return digest.hexdigest()[:16]


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remove_unused(current: Path) -> None:
    """Removes what other versions of the code left, once no session can be reading it."""
    for other in CACHE.iterdir():
        with suppress(FileNotFoundError):  # another process removes it too
            if (
                other != current
                and time.time() - other.stat().st_mtime > _UNUSED_SECONDS
            ):
                shutil.rmtree(other, ignore_errors=True)
