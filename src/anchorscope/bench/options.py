"""The options of a benchmark, shared by both commands; checked before anything is loaded."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError, unknown

WORK = ("knockout", "single-layer", "probes", "generation")
"""What is measured: clean and cut over all layers; a cut in every single layer; probe fitting; greedy answers."""
IMPLEMENTATIONS = (
    "anchorscope",
    "plain",
    "plain-batched",
    "transformer-lens",
    "nnsight",
    "scikit-learn",
)
"""This package; a plain loop; the same done well (for answers: transformers' `generate`); two libraries; a loop of
fits."""
IMPLEMENTATIONS_OF = {
    "knockout": (
        "anchorscope",
        "plain",
        "plain-batched",
        "transformer-lens",
        "nnsight",
    ),
    "single-layer": (
        "anchorscope",
        "plain",
        "plain-batched",
        "transformer-lens",
        "nnsight",
    ),
    "probes": ("anchorscope", "scikit-learn"),
    "generation": ("anchorscope", "plain-batched"),
}

_MOST = 1_000_000_000  # more than any machine has time for


def _choice(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Options:
    work: tuple[str, ...] = _choice(
        WORK, f"What to measure, with commas: {', '.join(WORK)}."
    )
    ways: tuple[str, ...] = _choice(
        IMPLEMENTATIONS, f"Who is to do it, with commas: {', '.join(IMPLEMENTATIONS)}."
    )
    model: str = _choice(
        "smollm2-135m",
        "Embedded model, hub id, folder, GGUF file, or shape:NAME (random weights).",
    )
    device: str = _choice("auto", "auto, cpu, cuda or cuda:N.")
    dtype: str = _choice(
        "auto",
        "auto (float32 on the CPU, bfloat16 on a GPU), float32, bfloat16 or float16.",
    )
    items: int = _choice(
        64, "Items of knockout, single-layer and generation; slow ways run fewer."
    )
    probe_items: int = _choice(400, "Items that probes learn from.")
    repeats: int = _choice(3, "Timed repeats; the ways take turns.")
    seconds: float = _choice(
        8.0,
        "About how long one repeat of a slow way may take; it then runs fewer items.",
    )
    shared: int | None = _choice(
        None,
        "Shared tokens of synthetic items (default 40); a shape always runs these.",
    )
    own: int | None = _choice(None, "Own tokens of synthetic items (default 24).")
    dataset: str = _choice(
        "atlas", "Questions of real items: atlas, popqa=FILE, a path and so on."
    )
    new_tokens: int = _choice(16, "Longest generated answer.")
    seed: int = _choice(0, "Seed of the draw.")

    def __post_init__(self) -> None:
        _refuse_unknown("work", self.work, WORK)
        _refuse_unknown("way", self.ways, IMPLEMENTATIONS)
        allowed = {way for work in self.work for way in IMPLEMENTATIONS_OF[work]}
        if not allowed & set(self.ways):
            raise UserError(
                f"None of the ways {', '.join(self.ways)} can do {', '.join(self.work)}; "
                f"allowed for it: {', '.join(way for way in IMPLEMENTATIONS if way in allowed)}."
            )
        least_of = {
            "items": 2,
            "probe_items": 60,
            "repeats": 1,
            "new_tokens": 1,
            "seed": 0,
        }
        for name, least in least_of.items():
            _refuse_size(name, getattr(self, name), least)
        for name in ("shared", "own"):
            if getattr(self, name) is not None:
                _refuse_size(name, getattr(self, name), 1)
        if not (math.isfinite(self.seconds) and 0 < self.seconds <= _MOST):
            raise UserError(
                f"--seconds {self.seconds} is not a span of time; allowed: above 0, up to {_MOST:,}."
            )

    @property
    def synthetic(self) -> bool:
        """Whether items are random tokens: requested by their lengths, or for a model that knows nothing."""
        return (
            self.model.startswith("shape:")
            or self.shared is not None
            or self.own is not None
        )

    def implementations_of(self, work: str) -> list[str]:
        """The chosen ways of one work, in the order in which they are shown."""
        return [way for way in IMPLEMENTATIONS_OF[work] if way in self.ways]


def about(name: str) -> str:
    """What an option is for, in words, and its default."""
    option = Options.__dataclass_fields__[name]
    default: Any = option.default
    if name in ("work", "ways"):
        return f"{option.metadata['about']} Default: all."
    if default is None:
        return str(option.metadata["about"])
    return f"{option.metadata['about']} Default: {default}."


def refuse_no_folder(out: Path | None) -> None:
    """Refuses an unusable output file before any work."""
    if out is not None and (
        out.is_dir() or not Path(os.path.realpath(out)).parent.is_dir()
    ):
        what = "is a folder" if out.is_dir() else "is in a folder that does not exist"
        raise UserError(f"--out {out} {what}; name a file in a folder that is there.")
    if out is not None and os.path.lexists(out):
        raise UserError(f"--out {out} is there already; choose another name.")


def _refuse_unknown(kind: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    if not names:
        raise UserError(f"No {kind} is named; allowed: {', '.join(allowed)}.")
    for name in names:
        if name not in allowed:
            raise unknown(kind, name, allowed)


def _refuse_size(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(
            f"--{name.replace('_', '-')} {value} is too small; allowed: {least} or more."
        )
    if value > _MOST:
        raise UserError(
            f"--{name.replace('_', '-')} is too large; allowed: {_MOST:,} or less."
        )
