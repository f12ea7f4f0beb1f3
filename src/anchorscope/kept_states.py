"""States that a run keeps on request (`--keep`): one file per dataset and run of the items.

`states/DATASET/clean.safetensors` holds a tensor [item, d_model] per `SITE/POSITION/LAYER`, in the model's precision;
the others (`knockout`, `question-only`, `boost-answer-1` …) only at the headline site and position. Files are
memory-mapped, so one layer is read without the others; the header names the items in order.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from anchorscope.artefacts.forms import Count, Form
from anchorscope.artefacts.run_folder import RunFolder
from anchorscope.artefacts.schema import features_file as features_file
from anchorscope.artefacts.schema import states_file as states_file
from anchorscope.artefacts.sealed_folder import wrong_with
from anchorscope.errors import UserError
from anchorscope.json_text import from_json, to_json

CLEAN, BEFORE_ANSWER = "clean", "question-only"


@dataclass(frozen=True)
class KeptStates:
    """States of one dataset under one intervention, at some sites and positions."""

    dataset: str
    intervention: str
    states: Float[Tensor, "position site layer item d_model"]
    positions: tuple[str, ...]
    item_ids: tuple[str, ...]
    key: str
    """Of the step that made them."""
    sites: tuple[str, ...]


def write_states(kept: KeptStates, folder: Path) -> None:
    """Writes the file."""
    layers = list(range(kept.states.shape[2]))
    tensors = {
        f"{site}/{position}/{layer}": kept.states[q, s, layer].contiguous()
        for q, position in enumerate(kept.positions)
        for s, site in enumerate(kept.sites)
        for layer in layers
    }
    header = {
        "key": kept.key,
        "item_ids": kept.item_ids,
        "positions": kept.positions,
        "layers": layers,
        "sites": kept.sites,
    }
    path = folder / states_file(kept.dataset, kept.intervention)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"anchorscope": to_json(header)})


class Header(Form):
    key: str
    item_ids: list[str]
    positions: list[str]
    layers: list[Count]
    sites: list[str]

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors, in the order in which states are stacked."""
        return [
            f"{site}/{position}/{layer}"
            for position in self.positions
            for site in self.sites
            for layer in self.layers
        ]


def read_header(path: Path) -> Header:
    """What the file holds; refused where its tensors are others."""
    try:
        with safe_open(path, "pt") as handle:
            header = Header.model_validate(
                from_json((handle.metadata() or {}).get("anchorscope", ""))
            )
            shapes = [handle.get_slice(name).get_shape() for name in header.tensors]
        widths = {width for _, width in shapes}
        if len(widths) > 1 or {n for n, _ in shapes} - {len(header.item_ids)}:
            raise ValueError("states of another size")
        return header
    except (SafetensorError, ValueError):
        raise UserError(
            f"{str(path)!r} holds something else than kept states; run it again with --keep states into another folder."
        ) from None


def read_layer(
    path: Path, site: str, position: str, layer: int
) -> Float[Tensor, "item d_model"]:
    """The states of one layer; nothing else is read."""
    with safe_open(path, "pt") as handle:
        name = f"{site}/{position}/{layer}"
        if name not in handle.keys():  # noqa: SIM118 - the handle is no mapping
            held = ", ".join(sorted({key.rsplit("/", 1)[0] for key in handle.keys()}))  # noqa: SIM118
            layers = read_header(path).layers
            raise UserError(
                f"{path} has no states at {name}; it has {held}, at layers {layers[0]} to {layers[-1]}."
            )
        return handle.get_tensor(name)


def read_kept(
    folder: RunFolder,
    dataset: str,
    interventions: Sequence[str],
    key: str,
    n_layers: int,
) -> dict[str, Float[Tensor, "position site layer item d_model"]]:
    """All states that the step with this key left in the results; nothing unless every file is whole and has every
    layer."""
    states = {}
    for intervention in interventions:
        name = states_file(dataset, intervention)
        path, facts = folder.path / name, folder.results.get(name)
        if facts is None or wrong_with(path, facts) is not None:
            return {}
        header = read_header(path)
        if header.key != key or header.layers != list(range(n_layers)):
            return {}
        with safe_open(path, "pt") as handle:
            read = [handle.get_tensor(name) for name in header.tensors]
        states[intervention] = torch.stack(read).unflatten(
            0, (-1, len(header.sites), n_layers)
        )
    return states


def refuse_full_disk(folder: Path, size: int) -> None:
    """Refuses to keep states without enough disk space, before anything is run."""
    free = shutil.disk_usage(folder).free
    if size * 2 > free:  # once as a step, once as a result
        raise UserError(
            f"Keeping states takes {size / 1e9:.1f} GB, twice that for a moment, and {str(folder)!r} has "
            f"{free / 1e9:.1f} GB free; leave --keep out, or choose a folder on another disk with --out."
        )
