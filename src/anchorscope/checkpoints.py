"""How the result of each step is written to the run folder and read back: the same numbers, to the last bit."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from pydantic import ConfigDict, TypeAdapter
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.evidence.effects import Effect
from anchorscope.evidence.experiments.found import Found, ItemValues, Statistic
from anchorscope.evidence.measuring import Measurements, Missing
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
    if effect.run is not None:
        tensors["run"] = torch.as_tensor(effect.run)
    save_file(tensors, path, metadata={"intervention": effect.intervention, "variant": effect.variant})


def _read_effect(path: Path) -> Effect:
    """The same, read back."""
    tensors = load_file(path)
    with safe_open(path, "pt") as handle:
        notes = handle.metadata()
    return Effect(
        notes["intervention"], notes["variant"], tensors["items"].numpy(), tensors["n_cut"].numpy(),
        tensors["logits"].numpy(), tensors.get("states"), tensors["run"].numpy() if "run" in tensors else None,
    )  # fmt: skip


def _write_measurements(measured: Measurements, folder: Path) -> None:
    """The effects of all interventions, numbered in their order, and what could not be measured."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, effect in enumerate(measured.effects):
        _write_effect(effect, folder / f"{place:03d}-{effect.intervention}.safetensors")
    (folder / "missing.json").write_text(json.dumps([one._asdict() for one in measured.missing]), encoding="utf-8")


def _read_measurements(folder: Path) -> Measurements:
    """The same, read back."""
    missing = json.loads((folder / "missing.json").read_text(encoding="utf-8"))
    effects = [_read_effect(path) for path in sorted(folder.glob("*.safetensors"))]
    return Measurements(effects, [Missing(**one) for one in missing])


def _write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    save_file({name: torch.as_tensor(array).contiguous() for name, array in arrays.items()}, path)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in load_file(path).items()}


_STATISTICS = TypeAdapter(list[Statistic], config=ConfigDict(ser_json_inf_nan="constants"))


def _write_found(found: Found, path: Path) -> None:
    """What an experiment found; numbers that are not defined stay so."""
    values = [
        {"quantity": one.quantity, "variant": one.variant, "items": one.items.tolist(), "values": one.values.tolist()}
        for one in found.values
    ]
    statistics = _STATISTICS.dump_json(list(found.statistics)).decode()
    path.write_text(json.dumps([json.loads(statistics), values, found.missing]), encoding="utf-8")


def _read_found(path: Path) -> Found:
    """The same, read back."""
    statistics, values, missing = json.loads(path.read_text(encoding="utf-8"))
    return Found(
        tuple(_STATISTICS.validate_python(statistics)),
        tuple(
            ItemValues(quantity=one["quantity"], variant=one["variant"], items=np.array(one["items"], np.int64),
                       values=np.array(one["values"], float))
            for one in values
        ),
        tuple(missing),
    )  # fmt: skip


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
ARRAYS = Format(_write_arrays, _read_arrays)
"""NumPy arrays by name."""
MEASUREMENTS = Format(_write_measurements, _read_measurements)
"""The effects of all interventions, as a folder."""
FOUND = Format(_write_found, _read_found)
"""What an experiment found."""
FRAMES = Format(_write_frames, _read_frames)
"""Several tables, as a folder."""
