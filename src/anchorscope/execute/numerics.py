"""Which machines give the same bits: the numerics class of a worker, and what it says of itself when it joins.

The same batch gives the same bits on the same device, in the same precision, with the same libraries and, on a CPU, the
same number of threads.
"""

import hashlib
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from anchorscope.models.language_model import LanguageModel

LIBRARIES = ("torch", "transformers", "numpy")
"""Whose versions are part of the numerics class."""
_CPU = "cpu: "  # how the name of a processor begins


@dataclass(frozen=True)
class NumericsClass:
    """What the bits of a batch depend on, besides the model and the batch."""

    device: str
    dtype: str
    threads: int
    """Of products on a CPU; 0 on a GPU."""
    versions: Mapping[str, str]
    machine: str
    """The kind of processor."""


def numerics_of(lm: LanguageModel) -> NumericsClass:
    on_cpu = all(lm.layer_device(layer).type == "cpu" for layer in range(lm.n_layers))
    return NumericsClass(
        device=_device_name(lm),
        dtype=str(lm.dtype).removeprefix("torch."),
        threads=torch.get_num_threads() if on_cpu else 0,
        versions={name: metadata.version(name) for name in LIBRARIES},
        machine=platform.machine(),
    )


@dataclass(frozen=True)
class WorkerFacts:
    host: str
    pid: int
    code: str
    """sha256 of the package."""
    description: Any
    """`executor.Description`, with the model's files."""


def reason_to_refuse(
    facts: WorkerFacts, first: WorkerFacts | None, files: Mapping[str, Any] | None
) -> str | None:
    """Why a worker may not join, in one line; None where it may.

    Its code, weights and numerics class must be those of the `first` worker. `files` are the model's on the machine
    that asks, where it has them.
    """
    worker = f"A worker on {facts.host} (process {facts.pid})"
    if facts.code != code_hash():
        return f"{worker} has another version of anchorscope; install the same one everywhere."
    own = facts.description
    expected = None if first is None else first.description
    wrong = _other_file(own.files, expected.files if expected else files or own.files)
    other = expected and differences(own.numerics, expected.numerics)
    if wrong is None and expected is not None:
        # Rounded weights have another fingerprint.
        is_rounded = own.numerics.dtype != expected.numerics.dtype
        is_same = own.identity.fingerprint == expected.identity.fingerprint
        wrong = None if is_same or is_rounded else "their fingerprint"
    if wrong is not None:
        return f"{worker} has other weights ({wrong} differs); give every machine the same files of the model."
    if other:
        return f"{worker} would give other numbers: {other}; use machines of one kind."
    return None


def _other_file(files: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """A file of one model that the other has not, or has with another content."""
    own = {(name, entry["sha256"]) for name, entry in files.items()}
    others = {(name, entry["sha256"]) for name, entry in expected.items()}
    return min((name for name, _ in own ^ others), default=None)


def differences(actual: NumericsClass, expected: NumericsClass) -> str:
    """How two numerics classes differ, in plain words; empty where they do not."""
    versions = [
        (name, actual.versions.get(name), expected.versions.get(name))
        for name in LIBRARIES
    ]
    pairs = [
        ("device", actual.device, expected.device),
        ("dtype", actual.dtype, expected.dtype),
        ("processor", actual.machine, expected.machine),
        ("threads", actual.threads, expected.threads),
        *versions,
    ]
    return ", ".join(
        f"{name} {value} instead of {wanted}"
        for name, value, wanted in pairs
        if value != wanted
    )


@cache
def code_hash() -> str:
    """sha256 over the files of this package: two installations of one version may differ while it is worked on."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(
            f"{path.relative_to(root).as_posix()} {path.stat().st_size}\n".encode()
        )
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _device_name(lm: LanguageModel) -> str:
    """The devices that a model's layers are on, in words: equal ones are counted."""
    places = dict.fromkeys(lm.layer_device(layer) for layer in range(lm.n_layers))
    names = Counter(
        torch.cuda.get_device_name(gpu) if gpu.type == "cuda" else _processor()
        for gpu in places
    )
    return ", ".join(
        name if number == 1 else f"{number} × {name}" for name, number in names.items()
    )


@cache
def _processor() -> str:
    """The name of the CPU; some systems tell only its kind."""
    try:
        lines = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
    except OSError:
        lines = []
    entries = {
        key.strip().lower(): value.strip()
        for key, _, value in (line.partition(":") for line in lines)
    }
    arm = (
        platform.machine(),
        *(
            entries.get(key, "")
            for key in ("cpu implementer", "cpu part", "cpu variant")
        ),
    )
    return _CPU + (entries.get("model name") or " ".join(filter(None, arm)))
