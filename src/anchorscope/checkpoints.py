"""How the result of each step is written to the run folder and read back: the same numbers, to the last bit."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.evidence.effects import Effect
from anchorscope.probes.crossfit import ProbeSet


class Format(NamedTuple):
    """A way to write a step's result, and to read it."""

    write: Callable[[Any, Path], None]
    read: Callable[[Path], Any]


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, path: Path) -> None:
        path.write_bytes(adapter.dump_json(value))

    return Format(write, lambda path: adapter.validate_json(path.read_bytes()))


def _write_probe_sets(sets: Mapping[str, ProbeSet], path: Path) -> None:
    """Probe sets by name, with everything that a resumed run needs."""
    tensors: dict[str, Tensor] = {}
    for name, fitted in sets.items():
        tensors[f"{name}/weight"], tensors[f"{name}/bias"] = fitted.weight.contiguous(), fitted.bias.contiguous()
        tensors[f"{name}/strength"] = torch.as_tensor(fitted.strength)
        tensors[f"{name}/inner_auc"] = torch.as_tensor(fitted.inner_auc)
    notes = {name: json.dumps(fitted.unconverged) for name, fitted in sets.items()}
    save_file(tensors, path, metadata=notes)


def _read_probe_sets(path: Path) -> dict[str, ProbeSet]:
    """The same, read back."""
    tensors = load_file(path)
    with safe_open(path, "pt") as handle:
        notes = handle.metadata()
    return {
        name: ProbeSet(
            tensors[f"{name}/weight"], tensors[f"{name}/bias"], tensors[f"{name}/strength"].numpy(),
            tensors[f"{name}/inner_auc"].numpy(), tuple(json.loads(note)),
        )
        for name, note in notes.items()
    }  # fmt: skip


def _write_effect(effect: Effect, path: Path) -> None:
    """One intervention's log-odds, and its states where they are kept."""
    tensors = {name: torch.as_tensor(getattr(effect, name)) for name in ("items", "n_cut", "logits")}
    if effect.states is not None:
        tensors["states"] = effect.states.contiguous()
    save_file(tensors, path, metadata={"intervention": effect.intervention, "variant": effect.variant})


def _read_effect(path: Path) -> Effect:
    """The same, read back."""
    tensors = load_file(path)
    with safe_open(path, "pt") as handle:
        notes = handle.metadata()
    return Effect(
        notes["intervention"], notes["variant"], tensors["items"].numpy(), tensors["n_cut"].numpy(),
        tensors["logits"].numpy(), tensors.get("states"),
    )  # fmt: skip


def _write_effects(effects: Sequence[Effect], folder: Path) -> None:
    """The effects that were measured together, numbered in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, effect in enumerate(effects):
        _write_effect(effect, folder / f"{place:03d}-{effect.intervention}.safetensors")


def _read_effects(folder: Path) -> list[Effect]:
    """The same, read back."""
    return [_read_effect(path) for path in sorted(folder.glob("*.safetensors"))]


def _write_frames(frames: Mapping[str, pl.DataFrame], folder: Path) -> None:
    """Several tables as one step's result."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")


def _read_frames(folder: Path) -> dict[str, pl.DataFrame]:
    """The same, read back."""
    return {path.stem: pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}


def _write_tensor(tensor: Tensor, path: Path) -> None:
    save_file({"tensor": tensor.contiguous()}, path)


TENSOR = Format(_write_tensor, lambda path: load_file(path)["tensor"])
"""One tensor."""
ARRAY = Format(
    lambda array, path: _write_tensor(torch.as_tensor(array), path), lambda path: load_file(path)["tensor"].numpy()
)
"""One NumPy array."""
PROBE_SETS = Format(_write_probe_sets, _read_probe_sets)
"""Probe sets by name."""
EFFECTS = Format(_write_effects, _read_effects)
"""The effects of several interventions, as a folder."""
FRAMES = Format(_write_frames, _read_frames)
"""Several tables, as a folder."""
