"""Finished runs as the detectors' data: kept states, plain numbers, labels and groups of every dataset.

Runs of one model may be given together. A dataset that was also asked under another prompt is a target only: it shows
what a detector is worth when the prompt changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch

from anchorscope.datasets.text import normalise, question_key, words
from anchorscope.detecting.inputs import shown_name
from anchorscope.detectors.evaluation import Dataset
from anchorscope.detectors.features import CLEAN, Features, StateKey
from anchorscope.detectors.fits import Texts
from anchorscope.detectors.training import Examples
from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError
from anchorscope.finished import FinishedRun
from anchorscope.kept_states import features_place, place_of, read_header, read_layer

ENOUGH_TRUE = 200
"""True answers from which on a dataset is trained on where others can be as well."""


@dataclass(frozen=True)
class RunDataset:
    """One dataset of one run."""

    data: Dataset
    run: FinishedRun
    own_name: str
    """Its name in the run."""
    n_graded: int
    """Answers that were graded, used or not."""
    natural_prevalence: float
    """Share of true ones among them."""
    behind: float
    """Share of the graded answers that the used ones stand for."""
    other_prompt: bool
    """Whether it is there to show what another prompt does."""

    @property
    def n_true(self) -> int:
        """True answers among the used ones."""
        return int(self.data.examples.labels.sum())


def read_runs(runs: Sequence[FinishedRun]) -> list[RunDataset]:
    """Every dataset of the runs, in order."""
    return [
        _read(run, name, shown_name(run, name, runs[0]), run.recipe.prompt != runs[0].recipe.prompt)
        for run in runs
        for name in run.manifest["reference_layers"]
    ]


def _read(run: FinishedRun, name: str, shown: str, other_prompt: bool) -> RunDataset:
    items = run.parquet("items").filter(pl.col("dataset") == name)
    ids = [str(one) for one in read_header(run.place(place_of(name, CLEAN)))["item_ids"]]
    used = items.filter(pl.col("status") == "used").with_columns(pl.col("item_id").cast(pl.String))
    used = pl.DataFrame({"item_id": ids}).join(used, on="item_id", how="left", maintain_order="left")
    labels = used["truthful"].to_numpy().astype(bool)
    states = _states(run, name)
    _refuse_nan(states, run, name)
    graded = items.filter(pl.col("truthful").is_not_null() & pl.col("status").is_in(["used", "unbalanced"]))
    weight = used["weight"].to_numpy().astype(np.float64)
    relations = used["relation"].to_list()
    examples = Examples(labels, used["group"].to_numpy().astype(np.int64), relations, ids, np.ones(len(labels)))
    questions, answers = used["question"].to_list(), used["model_answer"].to_list()
    documents = [
        [*(f"question {word}" for word in words(question)), *(f"answer {word}" for word in words(answer))]
        for question, answer in zip(questions, answers, strict=True)
    ]
    texts = Texts(relations, documents, examples.groups)
    keys = [_group_keys(*row) for row in zip(questions, used["subject"].to_list(), strict=True)]
    data = Dataset(shown, Features(len(labels), states, _columns(run, name, used)), examples, texts, weight, keys)
    share = float(graded["truthful"].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]
    return RunDataset(data, run, name, graded.height, share, float(weight.sum() / max(1, graded.height)), other_prompt)


def _group_keys(question: str, subject: str | None) -> frozenset[str]:
    """What ties items of several datasets together, as the groups of a run do."""
    own = {f"question {question_key(question)}"}
    if subject and normalise(subject):
        own.add(f"subject {normalise(subject)}")
    return frozenset(own)


def _states(run: FinishedRun, name: str) -> dict[StateKey, torch.Tensor]:
    """Clean states of all sites, and those of every other run at the headline site."""
    found: dict[StateKey, torch.Tensor] = {}
    for listed in sorted(run.manifest["sha256"]):  # what lies there beside them is none of ours
        place = run.path / listed
        if listed != place_of(name, place.stem) or " " in place.stem:  # a further draw of a random control
            continue
        run.place(listed)
        layers = [int(layer) for layer in read_header(place)["layers"]]
        for site in SITES if place.stem == CLEAN else (run.recipe.site,):
            for layer in layers:
                found[place.stem, site, layer] = read_layer(place, site, run.recipe.position, layer)
    return found


def _refuse_nan(states: dict[StateKey, torch.Tensor], run: FinishedRun, name: str) -> None:
    for (kind, site, layer), found in states.items():
        if not bool(torch.isfinite(found).all()):
            raise UserError(
                f"The {kind} states of {name!r} in {str(run.path)!r} hold NaN or infinity (site {site}, layer {layer})"
                f"; run it again with --dtype float32 or bfloat16."
            )


def _columns(run: FinishedRun, name: str, used: pl.DataFrame) -> dict[str, np.ndarray]:
    """Plain numbers: those that were kept for detectors, or the two that every run has."""
    place = features_place(name)
    if place in run.manifest["sha256"]:
        numbers = run.parquet(place.removesuffix(".parquet")).with_columns(pl.col("item_id").cast(pl.String))
        kept = used.select("item_id").join(numbers, on="item_id", how="left", maintain_order="left")
        found = {column: kept[column].to_numpy().astype(np.float64) for column in kept.columns if column != "item_id"}
    else:
        found = {
            "log_prob_mean": used["confidence_mean"].to_numpy().astype(np.float64),
            "log_prob_min": used["confidence_min"].to_numpy().astype(np.float64),
        }
    return {column: values for column, values in found.items() if np.isfinite(values).all()}
