"""The effects of a finished run, computed a second time by other means: no part of anchorscope is used here.

One item at a time, the whole sequence, transformers' own forward pass with eager attention, and a mask written out edge
by edge from its definition: for every exact question token j, no later position i may attend to it. What the blocks
add to the stream comes from forward hooks, the log-odds from the saved probes. Only the files that other programs
read are read: `items.parquet`, `probes.safetensors` and `effects.parquet`.

    model = AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager", dtype=torch.float32).eval()
    found = recompute(Path("runs/demo"), model, n_items=20)
    assert found.log_odds < 1e-2 and found.probability < 1e-3
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors.torch import load_file
from torch import Tensor

AnswerStart = Callable[[Mapping[str, Any]], int]
"""Finds the index of the answer's first token for a row of items.parquet; needed for the edges `direct` only."""


@dataclass(frozen=True)
class Recomputed:
    """How far the run's numbers are from the ones computed here."""

    log_odds: float
    """Largest difference of log-odds, clean and under the knockout."""
    probability: float
    """Largest difference of probabilities."""
    effect: float
    """Mean change of the log-odds by the knockout, as computed here: were it 0, equal numbers would prove nothing."""
    n_items: int
    n_scores: int
    """Log-odds compared: items × sites × positions × layers × 2."""
    places: frozenset[tuple[str, str]]
    """(site, position) that were compared."""


def recompute(
    run_folder: Path,
    model: Any,
    n_items: int,
    *,
    window: int | None = None,
    answer_start: AnswerStart | None = None,
) -> Recomputed:
    """Compares every clean and knockout log-odds of `n_items` items, spread over the run's datasets and folds.

    `model` is a plain transformers model with eager attention; `window` its sliding window, where it has one.
    """
    assert model.config._attn_implementation == "eager"
    effects = pl.read_parquet(run_folder / "effects.parquet").filter(
        pl.col("intervention") == "knockout"
    )
    items = pl.read_parquet(run_folder / "items.parquet").filter(
        pl.col("status") == "used"
    )
    probes = load_file(run_folder / "probes.safetensors")
    every = max(1, items.height // n_items)
    chosen = items.sort("dataset", "fold", "item_id").gather_every(every).head(n_items)
    saved, mine, places = [], [], set()
    for item in chosen.iter_rows(named=True):
        own = effects.filter(
            (pl.col("dataset") == item["dataset"])
            & (pl.col("item_id") == item["item_id"])
        )
        (edges,) = own["variant"].unique().to_list()
        assert own["n_cut"].unique().to_list() == [len(item["question_tokens"])]
        start = answer_start(item) if answer_start is not None else None
        ids = item["input_ids"]
        clean = states_of(model, ids, mask_without(len(ids), [], "all", None, window))
        cut = states_of(
            model,
            ids,
            mask_without(len(ids), item["question_tokens"], edges, start, window),
        )
        for row in own.iter_rows(named=True):
            key = f"{item['dataset']}/{row['site']}/{row['position']}"
            weight, bias = (
                probes[f"{key}/weight"][item["fold"]],
                probes[f"{key}/bias"][item["fold"]],
            )
            at = item["probe_positions"][row["position"]]
            for states, logits in (
                (clean, row["logit_clean"]),
                (cut, row["logit_after"]),
            ):
                saved.append(logits)
                mine.append(
                    ((states[row["site"]][:, at] * weight).sum(-1) + bias).tolist()
                )
            places.add((row["site"], row["position"]))
    theirs, ours = np.array(saved), np.array(mine)
    return Recomputed(
        log_odds=float(np.abs(theirs - ours).max()),
        probability=float(np.abs(_probability(theirs) - _probability(ours)).max()),
        effect=float(np.mean(np.abs(ours[1::2] - ours[0::2]))),
        n_items=chosen.height,
        n_scores=ours.size,
        places=frozenset(places),
    )


def mask_without(
    n: int,
    keys: list[int],
    edges: str,
    answer_start: int | None,
    window: int | None = None,
) -> Tensor:
    """Numbers to add to the attention scores, [1, 1, query, key]: causal, within the window, without the cut edges."""
    place = np.arange(n)
    later = place[None, :] > place[:, None]  # [query, key]
    far = place[:, None] - place[None, :] >= (n if window is None else window)
    mask = np.where(later | far, -np.inf, 0.0)
    for j in keys:
        for i in range(j + 1, n):
            if edges == "all" or (edges == "outside" and i not in keys):
                mask[i, j] = -np.inf
            elif edges == "direct":
                assert answer_start is not None, (
                    "give answer_start to recompute direct edges"
                )
                if i >= answer_start:
                    mask[i, j] = -np.inf
    return torch.tensor(mask, dtype=torch.float32)[None, None]


def states_of(model: Any, ids: list[int], mask: Tensor) -> dict[str, Tensor]:
    """What attention and the feed-forward part add, and the stream after every block, each [layer, pos, d_model]."""
    kept: dict[str, list[Tensor]] = {"attention": [], "mlp": [], "residual": []}

    def keep(site: str) -> Callable[[Any, Any, Any], None]:
        return lambda module, given, out: kept[site].append(
            (out[0] if isinstance(out, tuple) else out)[0].float()
        )

    hooks = []
    for layer in model.model.layers:
        hooks.append(layer.self_attn.register_forward_hook(keep("attention")))
        hooks.append(layer.mlp.register_forward_hook(keep("mlp")))
        hooks.append(layer.register_forward_hook(keep("residual")))
    try:
        with torch.no_grad():
            model(
                torch.tensor([ids]),
                attention_mask=mask.to(model.dtype),
                use_cache=False,
            )
    finally:
        for hook in hooks:
            hook.remove()
    return {site: torch.stack(states) for site, states in kept.items()}


def _probability(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))
