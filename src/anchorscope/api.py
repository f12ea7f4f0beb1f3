"""The main job from Python, and what it leaves behind as data frames.

run = anchorscope.run(model="smollm2-135m", datasets=["atlas"], limit=600, out="runs/demo")
run.curves.filter(pl.col("assignment") == "corrected")
run.figure()
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from anchorscope.errors import UserError
from anchorscope.pipeline import run_recipe
from anchorscope.progress import Progress
from anchorscope.recipe import make_recipe, read_recipe
from anchorscope.report.delta_p import DeltaPChart
from anchorscope.report.findings import EXPERIMENT_SCHEMA
from anchorscope.store import read_manifest


class Run:
    """A finished run; tables are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, model={self.manifest['model']['name']!r})"

    @cached_property
    def items(self) -> pl.DataFrame:
        """One row per question that was asked."""
        return pl.read_parquet(self.path / "items.parquet")

    @cached_property
    def effects(self) -> pl.DataFrame:
        """Log-odds before and after every intervention."""
        return pl.read_parquet(self.path / "effects.parquet")

    @cached_property
    def pathways(self) -> pl.DataFrame:
        """The pathway of every used item under every assignment."""
        return pl.read_parquet(self.path / "pathways.parquet")

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Mean ΔP per layer."""
        return pl.read_csv(self.path / "curves.csv")

    @cached_property
    def probe_scores(self) -> pl.DataFrame:
        """AUC per layer, with the baselines."""
        return pl.read_csv(self.path / "probe_scores.csv")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """The numbers that say whether to believe the chart."""
        return pl.read_csv(self.path / "summary.csv")

    @cached_property
    def experiments(self) -> pl.DataFrame:
        """Statistics of the further experiments."""
        return pl.read_csv(self.path / "experiments.csv", schema=EXPERIMENT_SCHEMA)

    @cached_property
    def experiment_items(self) -> pl.DataFrame:
        """What the further experiments found of single items."""
        return pl.read_parquet(self.path / "experiment_items.parquet")

    def figure(self) -> Figure:
        """The ΔP chart."""
        recipe = make_recipe(read_recipe(self.path / "recipe.toml"))
        layers = {name: tuple(found) for name, found in self.manifest["reference_layers"].items()}
        chart = DeltaPChart.from_curves(
            self.curves,
            model=self.manifest["model"]["name"],
            n_layers=self.manifest["model"]["n_layers"],
            datasets=tuple(layers),
            site=recipe.site,
            position=recipe.position,
            reference_layers=layers,
        )
        return chart.plot()


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
    return Run(run_recipe(recipe, Path(out), loaded=loaded, fresh=fresh, progress=progress))


def open_run(path: str | Path) -> Run:
    """A finished run folder."""
    return Run(Path(path))
