"""The folder that a command writes into: refused in one line where it cannot be made, gone again where it all fails."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from anchorscope.artefacts.durable import make_folder
from anchorscope.errors import UserError


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Makes a folder and those above it; where what follows fails, those that were not there and are empty go again."""
    missing: list[Path] = []
    try:
        with writable(path):
            missing = [one for one in (path, *path.parents) if not one.is_dir()]
            make_folder(path)
        yield
    except BaseException:
        for one in missing:
            with contextlib.suppress(OSError):  # it holds something, or was never made
                one.rmdir()
        raise


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Tells in one line why a folder cannot be looked into, made or written."""
    try:
        yield
    except OSError as error:
        told = f"Folder {str(path)!r} cannot be written ({error.strerror or error}); choose another with --out."
        raise UserError(told) from None
