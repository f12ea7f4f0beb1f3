"""Finished runs that kept states, made by hand: files as a run leaves them for `detect`, no model involved."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.artefacts.schema import FEATURE_SCHEMA, ITEM_SCHEMA
from anchorscope.detectors.training import Dataset
from anchorscope.engine.sequences import SITES
from anchorscope.kept_states import KeptStates, write_states
from anchorscope.recipe import make_recipe, to_toml
from compared_runs import seal_run
from made_detection import LAYERS, RUNS, WIDTH, made_dataset

ALL_RUNS, STATES, CUTS = (
    tuple(RUNS),
    ("clean", "question-only"),
    ("clean", "question-only", "knockout"),
)
SITE, POSITION = "mlp", "final"


def questions_of(
    name: str, n: int = 80, seed: int = 0, n_true: int | None = None, shift: float = 0.0
) -> Dataset:
    """Made items; `n_true` of them are true where it is not half of them."""
    data = made_dataset(n, seed, name=name, shift=shift)
    if n_true is None:
        return data
    return replace(data, labels=np.arange(n) < n_true)


def write_kept_run(
    folder: Path,
    datasets: Sequence[Dataset],
    *,
    kept: Sequence[str] = ALL_RUNS,
    features: bool = True,
    fingerprint: str = "weights",
    nan_in: str | None = None,
    **options: Any,
) -> Path:
    """The files that `detect` reads, sealed; `kept` are the runs with states, `nan_in` the one with a NaN in them."""
    folder.mkdir(parents=True)
    names = [one.name for one in datasets]
    files = [f"file:{name}.jsonl" for name in names]
    recipe = make_recipe(
        {"datasets": files, "model": "tiny", "dtype": "float32", **options}
    )
    (folder / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    pl.concat([_items(one) for one in datasets]).write_parquet(folder / "items.parquet")
    for one in datasets:
        for run in kept:
            _write_states(folder, one, run, run == nan_in)
        if features and kept:
            unread = {
                name: np.zeros(len(one.labels))
                for name in FEATURE_SCHEMA
                if name not in one.features.columns
            }
            table = pl.DataFrame(
                {**unread, **one.features.columns, "item_id": list(one.item_ids)}
            )
            table.select(list(FEATURE_SCHEMA)).write_parquet(
                folder / "states" / one.name / "features.parquet"
            )
    model = {
        "name": "tiny",
        "source": "tiny",
        "n_layers": len(LAYERS),
        "d_model": WIDTH,
        "parameters": 1000,
        "fingerprint": fingerprint,
        "tokenizer": "tokens",
        "random_weights": False,
    }
    layers = {name: [1, 1, 1] for name in names}
    return seal_run(
        folder, model, template=asdict(FEW_SHOT_TEMPLATE), reference_layers=layers
    )


def _items(data: Dataset) -> pl.DataFrame:
    """The used items, and two false ones behind each used false one that the balance left out."""
    columns = data.features.columns
    empty = dict.fromkeys(ITEM_SCHEMA)
    rows = [
        empty
        | {
            "dataset": data.name,
            "item_id": name,
            "question": f"What is the {relation} of {data.name} {group}?",
            "subject": f"{data.name} {group}",
            "relation": relation,
            "group": int(group),
            "model_answer": f"word {item}",
            "truthful": bool(label),
            "confidence_mean": columns["log_prob_mean"][item],
            "confidence_min": columns["log_prob_min"][item],
            "status": "used",
            "weight": 1.0 if label else 3.0,
            "fold": 0,
            "input_ids": [1] * (20 + item % 7),
            "metadata": "{}",
        }
        for item, (name, relation, group, label) in enumerate(
            zip(data.item_ids, data.relations, data.groups, data.labels, strict=True)
        )
    ]
    more = [
        row
        | {
            "item_id": f"{row['item_id']} {copy}",
            "status": "unbalanced",
            "weight": None,
        }
        for row in rows
        if not row["truthful"]
        for copy in range(2)
    ]
    return pl.DataFrame([*rows, *more], schema=ITEM_SCHEMA)


def _write_states(folder: Path, data: Dataset, run: str, broken: bool) -> None:
    sites = SITES if run == "clean" else (SITE,)
    found = data.features.states
    states = torch.stack(
        [
            torch.stack(
                [
                    found.get((run, site, layer), found[run, SITE, layer] + 0.1)
                    for layer in LAYERS
                ]
            )
            for site in sites
        ]
    )[None]
    if broken:
        states[0, 0, 1, 3, 5] = torch.nan
    ids = tuple(data.item_ids)
    kept = KeptStates(data.name, run, states, (POSITION,), ids, "key", sites)
    write_states(kept, folder)
