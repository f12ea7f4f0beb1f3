"""Which machines give the same bits: the numerics class of a worker, and what it says of itself when it joins.

The same batch gives the same bits on the same device, in the same precision, with the same libraries and, on a CPU, the
same number of threads. Names of devices and versions do not tell everything, so every worker also runs one small fixed
batch, the canary, and tells the hash of its states: a worker whose canary differs would give other numbers.
"""

import hashlib
import json
import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anchorscope.engine.capture import capture
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.errors import UserError
from anchorscope.execute.worker_job import WorkerJob
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.sources import model_files
from anchorscope.plan.passes import planner_for

LIBRARIES = ("torch", "transformers", "numpy")
"""Whose versions are part of the numerics class."""
_CANARY = (11, 23, 17)  # lengths of its sequences
_CPU = "cpu: "  # how the name of a processor begins
_SHARED = 4  # leading tokens that they have in common


@dataclass(frozen=True)
class NumericsClass:
    """What the bits of a batch hang on, besides the model and the batch."""

    device: str
    dtype: str
    threads: int
    """Of products on a CPU; 0 on a GPU."""
    versions: Mapping[str, str]
    machine: str
    """The kind of processor."""
    canary: str
    """sha256 of what the fixed batch gave."""

    @classmethod
    def of(cls, hello: Mapping[str, Any]) -> "NumericsClass":
        """That of a worker, from what it says of itself."""
        return cls(**{name: hello.get(name) for name in cls.__dataclass_fields__})  # type: ignore[arg-type]

    @property
    def on_accelerator(self) -> bool:
        """Whether any layer of the model is elsewhere than on a CPU."""
        return not self.device.startswith(_CPU)


def numerics_of(lm: LanguageModel, threads: int | None = None) -> NumericsClass:
    """The numerics class of a model where it is; `threads` are those of torch where they are not given."""
    on_cpu = all(lm.layer_device(layer).type == "cpu" for layer in range(lm.n_layers))
    return NumericsClass(
        device=_device_name(lm),
        dtype=str(lm.dtype).removeprefix("torch."),
        threads=(torch.get_num_threads() if threads is None else threads) if on_cpu else 0,
        versions=_versions(),
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
        for found in (states, products):
            digest.update(f"{variant} {batch} {tuple(found.shape)} {found.dtype}".encode())
            digest.update(found.contiguous().cpu().view(torch.uint8).numpy().tobytes())

    def receive_answers(variant: int, batch: list[int], found: Tensor, lengths: list[int]) -> None:
        digest.update(f"answers of {variant} {batch} {lengths}".encode())
        digest.update(found.contiguous().cpu().view(torch.uint8).numpy().tobytes())

    variants, batches = (CLEAN, Variant(cuts)), [range(len(sequences))]
    capture(lm, sequences, prefix, batches, receive, variants, answers_of=(0,), receive_answers=receive_answers)()
    return digest.hexdigest()


def _canary_sequences(vocabulary: int) -> tuple[list[TokenSequence], dict[int, Cut]]:
    """A few sequences of tokens that every model has, the same everywhere."""
    sequences = []
    for number, length in enumerate(_CANARY):
        own = range(_SHARED, length)
        ids = [*range(1, _SHARED + 1), *(1 + (position * 37 + number * 101) % 251 for position in own)]
        start = length - 4
        sequences.append(TokenSequence(tuple(one % vocabulary for one in ids), start, (start, length - 1)))
    cut = Cut(keys=(_SHARED, _SHARED + 1))
    return sequences, dict.fromkeys(range(len(sequences)), cut)


def hello(lm: LanguageModel, job: WorkerJob) -> dict[str, Any]:
    """What a worker says of itself when it joins, as plain JSON."""
    found = numerics_of(lm, job.threads or None)
    told = {name: getattr(found, name) for name in NumericsClass.__dataclass_fields__}
    files = model_files(job.model) or {}
    described = _description(lm)
    return {
        **told,
        "anchorscope": installed_version(),
        "code": code_hash(),
        "weights": {name: entry["sha256"] for name, entry in files.items()},
        "fingerprint": described["identity"]["fingerprint"],
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "description": described,
    }


def _description(lm: LanguageModel) -> dict[str, Any]:
    """What planning and the manifest have to know of a model, as plain JSON: the coordinator need not load it."""
    made = {"identity": asdict(lm.identity()), "planner": asdict(planner_for(lm))}
    plain: dict[str, Any] = json.loads(json.dumps(made))
    return plain


def refuse(found: Mapping[str, Any], expected: Mapping[str, Any], mixed: bool) -> str | None:
    """Why a worker may not join a run whose numbers came from another one, in one line; None where it may.

    Both are what workers say of themselves. Another version, other code or other weights never may; another numerics
    class only where the user allows mixed ones.
    """
    where = f"A worker on {found.get('host')!s:.60} (process {found.get('pid')!s:.20})"
    for name, what in (("anchorscope", "version of anchorscope"), ("code", "code of anchorscope")):
        if found.get(name) != expected.get(name):
            told = f" {found.get(name)!s:.40} instead of {expected.get(name)!s:.40}" if name == "anchorscope" else ""
            return f"{where} has another {what}{told}; install the same one everywhere."
    if wrong := _other_weights(found, expected):
        return f"{where} has other weights ({wrong}); give every machine the same files of the model."
    other = differences(NumericsClass.of(found), NumericsClass.of(expected))
    if other and not mixed:
        return f"{where} would give other numbers: {other}; use machines of one kind, or allow this with --mixed."
    return None


def _other_weights(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Which file differs, or that the weights do once they are loaded; empty where they are the same."""
    here, there = found.get("weights"), expected.get("weights")
    if not isinstance(here, Mapping) or not isinstance(there, Mapping):
        return "it does not say which"
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            state = "is missing" if name not in here else "is not expected" if name not in there else "differs"
            return f"{name!s:.80} {state}"
    same_place = found.get("dtype") == expected.get("dtype")  # rounded weights have another fingerprint
    return "their fingerprint differs" if same_place and found.get("fingerprint") != expected.get("fingerprint") else ""


def differences(found: NumericsClass, expected: NumericsClass) -> str:
    """How two numerics classes differ, in plain words; empty where they do not."""
    told = []
    for name, what in (("device", "device"), ("dtype", "dtype"), ("machine", "processor")):
        here, there = getattr(found, name), getattr(expected, name)
        if here != there:
            told.append(f"{what} {here!s:.80} instead of {there!s:.80}")
    if found.threads != expected.threads:
        told.append(f"{found.threads!s:.20} threads instead of {expected.threads!s:.20}")
    versions = [one if isinstance(one, Mapping) else {} for one in (found.versions, expected.versions)]
    for name in sorted({*versions[0], *versions[1]}):
        here, there = (one.get(name) for one in versions)
        if here != there:
            told.append(f"{name!s:.40} {here!s:.40} instead of {there!s:.40}")
    if found.canary != expected.canary and not told:
        told.append("the same small batch gives other bits")
    return ", ".join(told)


def refuse_other_class(
    found: NumericsClass, expected: NumericsClass | None, mixed: bool, tell: Callable[[str], None]
) -> None:
    """Refuses to go on with a run whose numbers were begun elsewhere, unless that is allowed; then it is told."""
    other = "" if expected is None else differences(found, expected)
    if other and not mixed:
        raise UserError(
            f"This run was begun with other numerics: {other}; its numbers would be of two kinds. Go on where it was "
            f"begun, start over with --fresh, or allow it with --mixed."
        )
    if other:
        tell(f"the run goes on with another numerics class (--mixed): {other}; last digits may differ")


@cache
def code_hash() -> str:
    """sha256 over the files of this package: two installations of one version may differ while it is worked on."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def installed_version() -> str:
    """Of this package; a copy of its folder that was not installed has none."""
    try:
        return metadata.version("anchorscope")
    except metadata.PackageNotFoundError:
        return "not installed"


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in LIBRARIES}


def _device_name(lm: LanguageModel) -> str:
    """The devices that a model's layers are on, in words: equal ones are counted."""
    places = dict.fromkeys(lm.layer_device(layer) for layer in range(lm.n_layers))
    names = [torch.cuda.get_device_name(one) if one.type == "cuda" else _processor() for one in places]
    return ", ".join(_counted(names))


def _counted(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]


@cache
def _processor() -> str:
    """The name of the CPU; some systems tell only its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" in told:
        return f"{_CPU}{told['model name']}"
    arm = [told[key] for key in ("cpu implementer", "cpu part", "cpu variant") if key in told]
    return f"{_CPU}{' '.join([platform.machine(), *arm])}"
