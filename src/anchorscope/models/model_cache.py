"""Models that are made on this machine and kept: folders with float32 safetensors, converted once from a GGUF file.

The embedded model is loaded often and on small machines. Its folder loads faster than the GGUF file and gives the same
numbers bit for bit. A folder is made under another name and renamed when it is whole; its manifest, which lists every
file with size and sha256, is written last. What is stopped leaves nothing that a later one would trust. One process at
a time makes a folder; the others wait and use what it made.

When a folder is used, sizes and hashes of all its files are compared with the manifest. A file is hashed once, and
again when it was written to (`files.known_sha256`).
"""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.files import known_sha256
from anchorscope.models.limits import CONFIG_BYTES
from anchorscope.models.plain_files import Unfit, read_object
from anchorscope.progress import Progress

MANIFEST = "anchorscope.json"
MEGABYTE = 1 << 20
_NEEDED = ("torch", "transformers", "accelerate", "gguf", "filelock")
_ELSEWHERE = "set ANCHORSCOPE_CACHE to another folder."


def cache_dir() -> Path:
    """The folder for what can be fetched again: `ANCHORSCOPE_CACHE`, else the user's cache directory of this system."""
    if chosen := os.environ.get("ANCHORSCOPE_CACHE"):
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise UserError(f"ANCHORSCOPE_CACHE is {chosen!r}, and no such user is known here; {_ELSEWHERE}") from error
    try:
        import platformdirs
    except ModuleNotFoundError:  # a GPU box may have nothing but torch and transformers
        return Path.home() / ".cache" / "anchorscope"
    return Path(platformdirs.user_cache_dir("anchorscope", appauthor=False))


def prepare_shelf(shelf: Path, what: str, need: int) -> None:
    """Makes the folder that models are kept in, after a look at everything that would otherwise fail minutes later.

    `what` begins the message, as in "Installing 'NAME'"; `need` is the number of bytes.
    """
    if missing := [package for package in _NEEDED if find_spec(package) is None]:
        raise UserError(f"{what} needs packages that are missing; pip install {' '.join(missing)}")
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(shelf).free
    except OSError as error:
        raise UserError(f"Cannot use the model cache {str(shelf)!r} ({error.strerror}); {_ELSEWHERE}") from error
    if not os.access(shelf, os.W_OK):
        raise UserError(f"Cannot write into the model cache {str(shelf)!r}; {_ELSEWHERE}")
    if free < need:
        raise UserError(
            f"{what} needs {need // MEGABYTE} MB, found {free // MEGABYTE} MB free in "
            f"{str(shelf)!r}; make room, or {_ELSEWHERE}"
        )


def make_once(target: Path, find: Callable[[], Path | None], build: Callable[[Path], None]) -> Path:
    """The folder `target`, made by `build` unless `find` finds it whole.

    `build` is given a work folder and leaves in it a folder `model` with its manifest.
    """
    from filelock import FileLock  # torch brings it

    shelf, name = target.parent, target.name
    try:
        with FileLock(shelf / f".{name}.lock"):
            if found := find():
                return found
            for stale in shelf.glob(f".{name}.making-*"):  # under the lock nobody else works here: its maker was killed
                shutil.rmtree(stale, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=f".{name}.making-", dir=shelf))
            try:
                build(work)
                _publish(work, target, find)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        if error.errno is None:  # no fault of a disk: libraries raise it for whatever they cannot read
            raise
        raise UserError(
            f"Cannot write into the model cache {str(shelf)!r} ({error.strerror}); nothing half made was kept. Make "
            f"room, or {_ELSEWHERE}"
        ) from error
    return target


def _publish(work: Path, target: Path, find: Callable[[], Path | None]) -> None:
    """Give the finished folder its name; where another process was faster (a file system without locks), use theirs."""
    if find():
        return
    for file in (work / "model").iterdir():
        _to_disk(file)
    _to_disk(work / "model")
    if os.path.lexists(target):
        # Our own files go away with the work folder; a folder with anything else in it only gets another name.
        os.rename(target, work / "damaged" if _is_ours(target) else _free_name(target))
    try:
        os.rename(work / "model", target)
    except OSError:
        if find() is None:
            raise
    _to_disk(target.parent)


def _is_ours(folder: Path) -> bool:
    """Whether a folder was made here and holds nothing that was not."""
    record = None if folder.is_symlink() else read_manifest(folder)
    return record is not None and all(one.name in (*record["files"], MANIFEST) for one in folder.iterdir())


def _free_name(folder: Path) -> Path:
    names = (folder.with_name(f"{folder.name}.old-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _to_disk(path: Path) -> None:
    """Waits until a file or folder is on the disk: a power cut must not leave a whole name with half a content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # a file system that cannot
        pass
    finally:
        os.close(handle)


def write_manifest(folder: Path, record: Mapping[str, Any]) -> None:
    """The last file of a folder: without it, or where its list does not fit, the folder does not count."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "gguf")}
    found = sorted(file for file in folder.iterdir() if file.name != MANIFEST)
    files = {
        file.name: {"size": file.stat().st_size, "sha256": digest}
        for file, digest in zip(found, file_hashes(found), strict=True)
    }
    text = json.dumps({**record, "versions": versions, "files": files}, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What a folder's manifest says; None where there is none that can be read."""
    try:
        record = read_object(folder / MANIFEST, CONFIG_BYTES)
    except Unfit:
        return None
    files = record.get("files")
    usable = isinstance(files, dict) and all(Path(name).name == name and name not in ("", "..") for name in files)
    return record if usable else None


def damage(folder: Path, record: Mapping[str, Any]) -> str | None:
    """Which file is not as the manifest says, in words; None where all are."""
    listed = {
        name: told if isinstance(told, dict) else {"size": told}  # as earlier versions wrote it
        for name, told in record["files"].items()
    }
    for name, known in listed.items():
        try:
            found = (folder / name).stat()
        except OSError:
            return f"{name} is missing"
        if not stat.S_ISREG(found.st_mode):
            return f"{name} is no regular file"
        if found.st_size != known.get("size"):
            return f"{name} has {found.st_size} bytes instead of {known.get('size')}"
    hashed = [name for name, known in listed.items() if "sha256" in known]
    for name, digest in zip(hashed, file_hashes([folder / name for name in hashed]), strict=True):
        if digest != listed[name]["sha256"]:
            return f"{name} has other bytes than were written"
    return None


def file_hashes(files: Sequence[Path]) -> list[str]:
    """sha256 of files of models; those that were not written to since are known, also to later processes."""
    return known_sha256([file.resolve() for file in files], cache_dir() / "sha256.json")


def convert_gguf(gguf: Path, folder: Path, title: str, progress: Progress) -> None:
    """Write the GGUF's model and tokenizer as a float32 safetensors folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from anchorscope.models.gguf_files import fast_gguf, forget_quantisation
    from anchorscope.models.process_settings import quiet_transformers, without_hub

    place, file = str(gguf.parent), gguf.name
    with quiet_transformers(), without_hub(), fast_gguf(title, progress):
        model = AutoModelForCausalLM.from_pretrained(place, gguf_file=file, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=file)
        forget_quantisation(model)  # or transformers refuses to save it
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for saved in folder.iterdir():  # safetensors writes files that only their owner can read; a cache may be shared
        shutil.copymode(folder / "config.json", saved)
