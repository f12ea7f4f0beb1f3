"""How the result of each step is written into a folder of its own and read back: the same numbers, to the last bit."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import torch
from pydantic import ConfigDict, TypeAdapter
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.artefacts.step import Format
from anchorscope.evidence.effects import CleanStates, Effect, Measurements
from anchorscope.experiments.experiment import Found, ItemValues, Statistic
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import FinalProbe, ProbeSet

_TENSORS, _RECORDS = "tensors.safetensors", "records.json"
_NOTES = "anchorscope"


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, folder: Path) -> None:
        (folder / _RECORDS).write_bytes(adapter.dump_json(value))

    return Format(write, lambda folder: adapter.validate_json((folder / _RECORDS).read_bytes()))


def _save(tensors: Mapping[str, Tensor], path: Path, notes: Mapping[str, str]) -> None:
    """Tensors with notes, which are one entry: safetensors writes several in any order, other bytes each time."""
    save_file(dict(tensors), path, metadata={_NOTES: json.dumps(notes)})


def _notes(path: Path) -> dict[str, str]:
    """The notes, those of earlier versions too, which had an entry each."""
    with safe_open(path, "pt") as handle:
        found = handle.metadata()
    return json.loads(found[_NOTES]) if _NOTES in found else found


P = TypeVar("P", ProbeSet, FinalProbe)


def _write_probes(probes: Mapping[str, ProbeSet] | Mapping[str, FinalProbe], folder: Path) -> None:
    """Probes by name, with everything that a resumed run needs."""
    tensors: dict[str, Tensor] = {}
    for name, fitted in probes.items():
        tensors[f"{name}/weight"], tensors[f"{name}/bias"] = fitted.weight.contiguous(), fitted.bias.contiguous()
        tensors[f"{name}/strength"] = torch.as_tensor(fitted.strength)
        tensors[f"{name}/inner_auc"] = torch.as_tensor(fitted.inner_auc)
    notes = {name: json.dumps([fitted.unconverged, fitted.notes]) for name, fitted in probes.items()}
    _save(tensors, folder / _TENSORS, notes)


def _read_probes(kind: type[P], folder: Path) -> dict[str, P]:
    """The same, read back."""
    tensors, probes = load_file(folder / _TENSORS), {}
    for name, note in _notes(folder / _TENSORS).items():
        unconverged, notes = json.loads(note)
        weight, bias = tensors[f"{name}/weight"], tensors[f"{name}/bias"]
        strength, inner_auc = tensors[f"{name}/strength"].numpy(), tensors[f"{name}/inner_auc"].numpy()
        probes[name] = kind(weight, bias, strength, inner_auc, tuple(unconverged), tuple(notes))
    return probes


_OPTIONAL = ("run", "n_candidates", "attention_ratio")  # what not every intervention has


def _write_effect(effect: Effect, path: Path) -> None:
    """One intervention's log-odds."""
    tensors = {name: torch.as_tensor(getattr(effect, name)) for name in ("items", "n_cut", "logits")}
    tensors |= {name: torch.as_tensor(known) for name in _OPTIONAL if (known := getattr(effect, name)) is not None}
    _save(tensors, path, {"intervention": effect.intervention, "variant": effect.variant})


def _read_effect(path: Path) -> Effect:
    """The same, read back."""
    tensors = load_file(path)
    notes = _notes(path)
    return Effect(
        notes["intervention"],
        notes["variant"],
        tensors["items"].numpy(),
        tensors["n_cut"].numpy(),
        tensors["logits"].numpy(),
        **{name: tensors[name].numpy() for name in _OPTIONAL if name in tensors},
    )


def _write_measurements(measured: Measurements, folder: Path) -> None:
    """The effects of all interventions, numbered in their order, and what could not be measured."""
    for place, effect in enumerate(measured.effects):
        _write_effect(effect, folder / f"{place:03d}-{effect.intervention}.safetensors")
    (folder / "missing.json").write_text(json.dumps([one._asdict() for one in measured.missing]), encoding="utf-8")


def _read_measurements(folder: Path) -> Measurements:
    """The same, read back."""
    missing = json.loads((folder / "missing.json").read_text(encoding="utf-8"))
    effects = [_read_effect(path) for path in sorted(folder.glob("*.safetensors"))]
    return Measurements(effects, [Missing(**one) for one in missing])


def _write_tensors(tensors: Mapping[str, Tensor], folder: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / _TENSORS)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / _TENSORS)


def _write_arrays(arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    _write_tensors({name: torch.as_tensor(array) for name, array in arrays.items()}, folder)


def _read_arrays(folder: Path) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in _read_tensors(folder).items()}


_STATISTICS = TypeAdapter(list[Statistic], config=ConfigDict(ser_json_inf_nan="constants"))


def _write_found(found: Found, folder: Path) -> None:
    """What an experiment found; numbers that are not defined stay so."""
    values = [
        {"quantity": one.quantity, "variant": one.variant, "items": one.items.tolist(), "values": one.values.tolist()}
        for one in found.values
    ]
    statistics = _STATISTICS.dump_json(list(found.statistics)).decode()
    (folder / _RECORDS).write_text(json.dumps([json.loads(statistics), values, found.missing]), encoding="utf-8")


def _read_found(folder: Path) -> Found:
    """The same, read back."""
    statistics, values, missing = json.loads((folder / _RECORDS).read_text(encoding="utf-8"))
    return Found(
        tuple(_STATISTICS.validate_python(statistics)),
        tuple(
            ItemValues(
                quantity=one["quantity"],
                variant=one["variant"],
                items=np.array(one["items"], np.int64),
                values=np.array(one["values"], float),
            )
            for one in values
        ),
        tuple(missing),
    )


def _write_frames(frames: Mapping[str, pl.DataFrame], folder: Path) -> None:
    """Several tables as one step's result."""
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")


def _read_frames(folder: Path) -> dict[str, pl.DataFrame]:
    """The same, read back."""
    return {path.stem: pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}


def _write_clean(clean: CleanStates, folder: Path) -> None:
    """Clean states, and the log-probabilities that the same pass gave."""
    _write_tensors({"states": clean.states}, folder)
    (folder / _RECORDS).write_text(json.dumps(clean.log_probs), encoding="utf-8")


def _read_clean(folder: Path) -> CleanStates:
    """The same, read back."""
    log_probs = json.loads((folder / _RECORDS).read_text(encoding="utf-8"))
    return CleanStates(_read_tensors(folder)["states"], [tuple(one) for one in log_probs])


CLEAN_STATES = Format(_write_clean, _read_clean)
"""The clean pass."""
ARRAY = Format(
    lambda array, folder: _write_arrays({"array": array}, folder), lambda folder: _read_arrays(folder)["array"]
)
"""One NumPy array."""
TENSORS = Format(_write_tensors, _read_tensors)
"""Tensors by name."""
PROBE_SETS = Format(_write_probes, partial(_read_probes, ProbeSet))
"""Probe sets by name."""
FINAL_PROBES = Format(_write_probes, partial(_read_probes, FinalProbe))
"""Probes that learned from all items."""
ARRAYS = Format(_write_arrays, _read_arrays)
"""NumPy arrays by name."""
MEASUREMENTS = Format(_write_measurements, _read_measurements)
"""The effects of an experiment's interventions."""
FOUND = Format(_write_found, _read_found)
"""What an experiment found."""
FRAMES = Format(_write_frames, _read_frames)
"""Several tables."""
