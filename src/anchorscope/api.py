"""The main job from Python, and what it leaves behind as data frames.

run = anchorscope.run(model="smollm2-135m", datasets=["atlas"], limit=600, out="runs/demo")
run.curves.filter(pl.col("assignment") == "corrected")
run.figure()
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure
from torch import Tensor

from anchorscope.artefacts.finished import open_finished
from anchorscope.artefacts.kept_states import features_place, place_of, read_header, read_layer
from anchorscope.catalogue import DETECTION_RUNS
from anchorscope.errors import UserError
from anchorscope.pipeline import run_recipe
from anchorscope.progress import Progress
from anchorscope.recipe import make_recipe, named_folder
from anchorscope.report.charts.delta_p import DeltaPChart
from anchorscope.schema import EXPERIMENT_SCHEMA, SHARE_SCHEMA, SHARE_TEST_SCHEMA


class Run:
    """A finished run; tables are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self._finished = open_finished(path)
        self.path = path
        self.manifest = self._finished.manifest

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, model={self.manifest['model']['name']!r})"

    @cached_property
    def items(self) -> pl.DataFrame:
        """One row per question that was asked."""
        return self._finished.parquet("items")

    @cached_property
    def effects(self) -> pl.DataFrame:
        """Log-odds before and after every intervention."""
        return self._finished.parquet("effects")

    @cached_property
    def pathways(self) -> pl.DataFrame:
        """The pathway of every used item under every assignment."""
        return self._finished.parquet("pathways")

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Mean ΔP per layer."""
        return self._finished.csv("curves")

    @cached_property
    def probe_scores(self) -> pl.DataFrame:
        """AUC per layer, with the baselines."""
        return self._finished.csv("probe_scores")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """The numbers that say whether to believe the chart."""
        return self._finished.csv("summary")

    @cached_property
    def question_share(self) -> pl.DataFrame:
        """Λ: how much of the evidence needs the question's key words, per cut, place, layer and group."""
        return self._finished.csv_where_made("question_share", SHARE_SCHEMA)

    @cached_property
    def question_share_items(self) -> pl.DataFrame:
        """Evidence lost and had by every item; the share of any set of items is the ratio of their sums."""
        return self._finished.parquet("question_share_items")

    @cached_property
    def question_share_tests(self) -> pl.DataFrame:
        """What follows from Λ at the headline layer: differences, nulls, features, with interval and p-value."""
        return self._finished.csv_where_made("question_share_tests", SHARE_TEST_SCHEMA)

    @cached_property
    def experiments(self) -> pl.DataFrame:
        """Statistics of the further experiments."""
        return self._finished.csv("experiments", EXPERIMENT_SCHEMA)

    @cached_property
    def experiment_items(self) -> pl.DataFrame:
        """What the further experiments found of single items."""
        return self._finished.parquet("experiment_items")

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings: what the curves do, in words, each with its number, interval and verdict."""
        found: list[dict[str, Any]] = json.loads((self.path / "observations.json").read_text(encoding="utf-8"))
        return found

    def states(self, dataset: str, layer: int, intervention: str = "clean", site: str | None = None,
               position: str | None = None) -> Tensor:  # fmt: skip
        """States [item, d_model] of one layer that were kept (`--keep states,states-cut,detection`).

        `state_items` names the rows. Site and position are the chart's where they are not named; the runs of
        `detection` (`question-only`, `boost-answer-1` …) have these only. The file is memory-mapped: no other layer is
        read.
        """
        recipe = self._finished.recipe
        return read_layer(self._states(dataset, intervention), site or recipe.site, position or recipe.position, layer)

    def state_items(self, dataset: str, intervention: str = "clean") -> list[str]:
        """The items of kept states, in order."""
        return [str(name) for name in read_header(self._states(dataset, intervention))["item_ids"]]

    def _states(self, dataset: str, intervention: str) -> Path:
        place = self.path / place_of(dataset, intervention)
        if not place.is_file():
            cut = "detection" if intervention in DETECTION_RUNS else "states-cut"
            raise self._not_kept(f"{intervention} states", dataset, "states" if intervention == "clean" else cut)
        return place

    def features(self, dataset: str) -> pl.DataFrame:
        """What detectors read of the used items beside their states (`--keep detection`), one row per item.

        Log-probabilities of the answer, clean and cut, P(True), how far sampled answers agree (`docs/run-folder.md`).
        """
        place = features_place(dataset)
        if not (self.path / place).is_file():
            raise self._not_kept("features", dataset, "detection")
        return self._finished.parquet(place.removesuffix(".parquet"))

    def _not_kept(self, what: str, dataset: str, keep: str) -> UserError:
        return UserError(
            f"The run {str(self.path)!r} kept no {what} of {dataset!r}; run it again into the same folder with "
            f"--keep {keep}."
        )

    def figure(self) -> Figure:
        """The ΔP chart."""
        return DeltaPChart.from_findings(self._finished.findings).plot()


def run(
    model: Any = "smollm2-135m",
    datasets: str | Sequence[str] = "atlas",
    *,
    out: str | Path,
    tokenizer: Any = None,
    fresh: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Runs the main job into the folder `out`, or goes on with it; the options are those of `anchorscope run`.

    `model` is a name, or a transformers model that is already loaded, then with its `tokenizer`.
    """
    given = (datasets,) if isinstance(datasets, str) else tuple(datasets)
    if isinstance(model, str):
        recipe, loaded = make_recipe({"model": model, "datasets": given, **options}), None
    else:
        if tokenizer is None:
            raise UserError("A model that is already loaded needs its tokenizer; pass tokenizer=... beside it.")
        name = str(getattr(model.config, "_name_or_path", "") or model.config.model_type)
        here = {"device": str(model.device), "dtype": str(model.dtype).removeprefix("torch.")}
        recipe = make_recipe({"model": name, "datasets": given, **here, **options})
        loaded = (model, tokenizer)
    return Run(run_recipe(recipe, named_folder(out), loaded=loaded, fresh=fresh, progress=progress))


def open_run(path: str | Path) -> Run:
    """A finished run folder."""
    return Run(named_folder(path))
