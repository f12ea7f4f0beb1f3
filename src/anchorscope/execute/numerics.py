"""Which machines give the same bits: the numerics class of a worker, and what it says of itself when it joins.

The same batch gives the same bits on the same device, in the same precision, with the same libraries and, on a CPU, the
same number of threads. Names of devices and versions do not tell everything, so every worker also runs one small fixed
batch, the canary, and tells the hash of its states: a worker whose canary differs would give other numbers.
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
from torch import Tensor

from anchorscope.engine.capture import capture
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel

LIBRARIES = ("torch", "transformers", "numpy")
"""Whose versions are part of the numerics class."""
_CANARY = (11, 23, 17)  # lengths of its sequences
_CPU = "cpu: "  # how the name of a processor begins
_SHARED = 4  # leading tokens that they have in common


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
    canary: str
    """sha256 of what the fixed batch gave."""

    @property
    def on_accelerator(self) -> bool:
        """Whether any layer of the model is elsewhere than on a CPU."""
        return not self.device.startswith(_CPU)


def numerics_of(lm: LanguageModel) -> NumericsClass:
    on_cpu = all(lm.layer_device(layer).type == "cpu" for layer in range(lm.n_layers))
    return NumericsClass(
        device=_device_name(lm),
        dtype=str(lm.dtype).removeprefix("torch."),
        threads=torch.get_num_threads() if on_cpu else 0,
        versions={name: metadata.version(name) for name in LIBRARIES},
        machine=platform.machine(),
        canary=canary(lm),
    )


def canary(lm: LanguageModel) -> str:
    """sha256 of states and products of one fixed batch: clean and cut, every site and layer, and the head."""
    sequences, cuts = _canary_sequences(int(lm.embedding.weight.shape[0]))  # type: ignore[index,union-attr,arg-type]
    digest = hashlib.sha256()
    prefix = compute_prefix(lm, sequences[0].ids[:_SHARED])
    weight = torch.linspace(-1, 1, lm.d_model)

    def receive(variant: int, batch: list[int], states: Tensor) -> None:
        products = states.float() @ weight.to(states.device)  # as log-odds are made
        for numbers in (states, products):
            digest.update(
                f"{variant} {batch} {tuple(numbers.shape)} {numbers.dtype}".encode()
            )
            digest.update(
                numbers.contiguous().cpu().view(torch.uint8).numpy().tobytes()
            )

    def receive_answers(
        variant: int, batch: list[int], statistics: Tensor, lengths: list[int]
    ) -> None:
        digest.update(f"answers of {variant} {batch} {lengths}".encode())
        digest.update(statistics.contiguous().cpu().view(torch.uint8).numpy().tobytes())

    variants, batches = (CLEAN, Variant(cuts)), [range(len(sequences))]
    capture(
        lm,
        sequences,
        prefix,
        batches,
        receive,
        variants,
        answers_of=(0,),
        receive_answers=receive_answers,
    )()
    return digest.hexdigest()


def _canary_sequences(vocabulary: int) -> tuple[list[TokenSequence], dict[int, Cut]]:
    """A few sequences of tokens that every model has, the same everywhere."""
    sequences = []
    for number, length in enumerate(_CANARY):
        own = range(_SHARED, length)
        ids = [
            *range(1, _SHARED + 1),
            *(1 + (position * 37 + number * 101) % 251 for position in own),
        ]
        start = length - 4
        sequences.append(
            TokenSequence(
                tuple(token % vocabulary for token in ids), start, (start, length - 1)
            )
        )
    cut = Cut(keys=(_SHARED, _SHARED + 1))
    return sequences, dict.fromkeys(range(len(sequences)), cut)


@dataclass(frozen=True)
class WorkerFacts:
    worker: str
    """Its id, new for every process."""
    host: str
    pid: int
    code: str
    """sha256 of the package."""
    description: Any
    """`executor.Description`, with the model's files."""


def reason_to_refuse(
    facts: WorkerFacts, first: WorkerFacts | None, files: Mapping[str, Any] | None
) -> str | None:
    """Why a worker may not join, in one line; None where it may: its code, weights and numerics class must be those of
    the `first` worker. `files` are the model's on the machine that asks, where it has them.
    """
    where, model = f"A worker on {facts.host} (process {facts.pid})", facts.description
    if facts.code != code_hash():
        return f"{where} has another version of anchorscope; install the same one everywhere."
    expected = first.description.files if first is not None else files or model.files
    hashes = [
        {name: entry["sha256"] for name, entry in listed.items()}
        for listed in (model.files, expected)
    ]
    wrong = sorted({name for name, _ in hashes[0].items() ^ hashes[1].items()})
    if (
        first is not None
        and not wrong
        and model.identity.fingerprint != first.description.identity.fingerprint
    ):
        same_dtype = model.numerics.dtype == first.description.numerics.dtype
        wrong = (
            ["their fingerprint"] if same_dtype else []
        )  # rounded weights have another one
    if wrong:
        return f"{where} has other weights ({wrong[0]} differs); give every machine the same files of the model."
    other = (
        ""
        if first is None
        else differences(facts.description.numerics, first.description.numerics)
    )
    return (
        f"{where} would give other numbers: {other}; use machines of one kind."
        if other
        else None
    )


def differences(actual: NumericsClass, expected: NumericsClass) -> str:
    """How two numerics classes differ, in plain words; empty where they do not."""
    pairs = [
        ("device", actual.device, expected.device),
        ("dtype", actual.dtype, expected.dtype),
        ("processor", actual.machine, expected.machine),
        ("threads", actual.threads, expected.threads),
        *(
            (name, actual.versions.get(name), expected.versions.get(name))
            for name in LIBRARIES
        ),
    ]
    lines = [
        f"{name} {value} instead of {wanted}"
        for name, value, wanted in pairs
        if value != wanted
    ]
    if actual.canary != expected.canary and not lines:
        return "the same small batch gives other bits"
    return ", ".join(lines)


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
