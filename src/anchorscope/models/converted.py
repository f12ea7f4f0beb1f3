"""The user's own GGUF files, each converted once into the cache; what is there, and how it goes away again.

A conversion is known by the sha256 of the GGUF file and by the converter's epoch: a copy of the file, or one that was
only touched, is known, and one that was changed is another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError, unknown
from anchorscope.models.model_cache import (
    MANIFEST,
    MEGABYTE,
    cache_dir,
    convert_gguf,
    damage,
    file_hashes,
    make_once,
    prepare_shelf,
    read_manifest,
    write_manifest,
)
from anchorscope.progress import Progress, Silent

EPOCH = 1
"""Raised whenever the same GGUF file would be converted into other numbers."""
ALL = "all"
"""Stands for every conversion where one is to be cleared."""
_KIND = "converted GGUF"
_SPARE = 64 * MEGABYTE  # tokenizer, configuration, the file system's own needs
_FLOAT = 4  # bytes


Refuse = Callable[[dict[str, Any]], None]
"""Given what transformers says of weights that are missing or have no place; raises where they must not be used."""


@dataclass(frozen=True)
class Converted:
    """One conversion in the cache."""

    name: str
    """The GGUF file's name without its ending."""
    source: str
    """Where the GGUF file was."""
    folder: Path
    size: int
    """Bytes of all files that the manifest lists."""


def shelf() -> Path:
    """Where conversions are kept."""
    return cache_dir() / "converted"


def list_converted() -> list[Converted]:
    """All conversions, by name; folders that have no manifest of ours are not looked at."""
    found = []
    for folder in _folders():
        record = None if folder.name.startswith(".") else read_manifest(folder)
        if record is not None and record.get("kind") == _KIND:
            try:
                size = sum(int(one["size"]) for one in record["files"].values())
                found.append(Converted(str(record["name"]), str(record["source"]["path"]), folder, size))
            except (KeyError, TypeError, ValueError):  # not as we write it
                continue
    return sorted(found, key=lambda one: (one.name, str(one.folder)))


def _folders() -> list[Path]:
    """What lies on the shelf."""
    try:
        return list(shelf().iterdir()) if shelf().is_dir() else []
    except OSError as error:
        raise UserError(f"Cannot read the model cache {str(shelf())!r} ({error.strerror}).") from error


def clear(name: str) -> list[Converted]:
    """Removes one conversion, or `ALL`: the files that its manifest lists, and no other; what was removed."""
    from filelock import FileLock

    known = [one for one in list_converted() if not one.folder.is_symlink()]  # what a link leads to is somebody's own
    chosen = [one for one in known if name in (ALL, one.name, one.source)]
    if not chosen and name != ALL:
        raise unknown("converted model", name, {one.name: one for one in known} | {ALL: None})
    for one in chosen:
        try:
            with FileLock(shelf() / f".{one.folder.name}.lock"):
                record = read_manifest(one.folder)
                for file in (*(record["files"] if record else ()), MANIFEST):  # the manifest last: it stays known
                    (one.folder / file).unlink(missing_ok=True)
                if not any(one.folder.iterdir()):
                    one.folder.rmdir()
        except OSError as error:
            raise UserError(f"Cannot remove {str(one.folder)!r} ({error.strerror or error}).") from error
    return chosen


def converted_path(gguf: Path) -> Path | None:
    """The folder of a GGUF file's conversion if it is here and whole."""
    folder, wrong = _look_up(gguf)
    return folder if wrong is None else None


def convert(gguf: Path, progress: Progress | None = None, refuse: Refuse | None = None) -> Path:
    """Converts a GGUF file unless that was done before; its folder.

    The size is told before anything is written, and a damaged conversion is told and made again.
    """
    listener = progress or Silent()
    folder, wrong = _look_up(gguf)
    if folder is not None and wrong is None:
        return folder
    (digest,) = file_hashes([gguf])
    target = _target(digest)
    need = _float32_bytes(gguf)
    prepare_shelf(shelf(), f"Converting {gguf.name!r}", need + _SPARE)
    how = f"again, as the cached copy is damaged ({wrong})" if wrong else "once"
    listener.start(f"convert {gguf.name} {how}: {need // MEGABYTE} MB into {shelf()}", 1)

    def build(work: Path) -> None:
        gaps = convert_gguf(gguf, work / "model")
        if refuse is not None:
            refuse(gaps)
        record = {"kind": _KIND, "name": gguf.stem, "gguf_sha256": digest, "epoch": EPOCH, "source": _stamp(gguf)}
        write_manifest(work / "model", record)

    made = make_once(target, lambda: target if _whole(target) else None, build)
    listener.advance(1)
    listener.finish()
    return made


def _look_up(gguf: Path) -> tuple[Path | None, str | None]:
    """The conversion of a file, and what is wrong with it, if anything is."""
    if not _folders():
        return None, None  # nothing to look up: a large file need not be hashed for it
    (digest,) = file_hashes([gguf])
    folder = _target(digest)
    if not folder.is_dir():
        return None, None
    record = read_manifest(folder)
    return folder, "its manifest cannot be read" if record is None else damage(folder, record)


def _target(digest: str) -> Path:
    """Where the conversion of a file with this sha256 is kept."""
    return shelf() / f"{digest[:40]}-{EPOCH}"


def _whole(folder: Path) -> bool:
    record = read_manifest(folder)
    return record is not None and damage(folder, record) is None


def _stamp(gguf: Path) -> dict[str, Any]:
    found = gguf.stat()
    return {"path": str(gguf.resolve()), "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _float32_bytes(gguf: Path) -> int:
    """How large the weights are once they are dequantised, from the shapes that the file's configuration gives."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    with torch.device("meta"):  # shapes only, no memory
        return _FLOAT * int(AutoModelForCausalLM.from_config(config).num_parameters())
