"""What each experiment of a finished run says of every item: a number, larger where more hangs on the question.

Everything is read from the run folder, as any other program would: the log-odds of effects.parquet at the item's
reference layer, the calls of pathways.parquet, and the values per item of experiment_items.parquet.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import INTERVENTIONS
from anchorscope.recipe import read_recipe

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

METHODS_OF = {name: one.experiment for name, one in INTERVENTIONS.items()}
"""The experiment that each intervention belongs to."""
_TAKEN = {
    ("saliency", "question_to_answer"),
    ("saliency", "share"),
    ("self-awareness", "pathway_log_odds"),
    ("layers", "delta_p_reference_sum"),
    ("heads", "delta_p_reference_sum"),
}
_LOW_IS_QUESTION = ("delta_p_reference_sum",)


@dataclass(frozen=True)
class Items:
    """The used items of a run on planted items."""

    ids: tuple[str, ...]
    pathway: NDArray[np.str_]
    """As planted: question, answer or both."""
    truthful: Bools
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    correct: Bools
    """Whether the probe calls the item right at its reference layer."""


@dataclass(frozen=True)
class Score:
    """What one experiment, done in one way, says of the items; NaN of those it was not run on."""

    experiment: str
    variant: str
    values: Floats
    called: Floats | None = None
    """1 where it calls the item Q-Anchored, 0 where A-Anchored, NaN where nothing; None where it has no line."""

    @property
    def name(self) -> str:
        """Experiment and way in one."""
        return self.variant if self.experiment == "rules" else f"{self.experiment}: {self.variant}"


def read_items(run: Path) -> Items:
    """The items, with what was planted in them."""
    frame = pl.read_parquet(run / "items.parquet").filter(pl.col("status") == "used")
    planted = frame["metadata"].str.json_path_match("$.pathway")
    return Items(
        ids=tuple(frame["item_id"]),
        pathway=planted.to_numpy().astype(str),
        truthful=frame["truthful"].to_numpy().astype(bool),
        groups=frame["group"].to_numpy(),
        folds=frame["fold"].to_numpy(),
        correct=(frame["pathway"] != "misclassified").to_numpy().astype(bool),
    )


def read_scores(run: Path, items: Items) -> list[Score]:
    """All that the run's experiments say."""
    return [*_baselines(run, items), *_interventions(run, items), *_values(run, items), *_assignments(run, items)]


def _headline(run: Path) -> pl.Expr:
    recipe = read_recipe(run / "recipe.toml")
    return (pl.col("site") == recipe["site"]) & (pl.col("position") == recipe["position"])


def _at_reference(run: Path, items: Items) -> pl.DataFrame:
    """Log-odds of every run of every item at its reference layer, before and after."""
    here = _headline(run)
    paths = pl.read_parquet(run / "pathways.parquet").filter(here & (pl.col("assignment") == "plain"))
    effects = pl.read_parquet(run / "effects.parquet").filter(here & (pl.col("probe") == "full"))
    return (
        effects.join(paths.select("dataset", "item_id", "reference_layer"), on=["dataset", "item_id"])
        .join(pl.DataFrame({"item_id": items.ids, "truthful": items.truthful}), on="item_id")
        .select(
            "item_id",
            "intervention",
            "truthful",
            before=pl.col("logit_clean").list.get(pl.col("reference_layer")),
            after=pl.col("logit_after").list.get(pl.col("reference_layer")),
        )
    )


def _baselines(run: Path, items: Items) -> list[Score]:
    """What could pass for finding the pathway without looking at any cut: the label, and how sure the probe was."""
    clean = _at_reference(run, items).filter(pl.col("intervention") == "knockout")
    sure = clean.select("item_id", value=-pl.col("before").abs())
    return [
        Score("baseline", "the answer is true", items.truthful.astype(float)),
        Score("baseline", "how unsure the clean probe is", _over_items(sure, "value", items)),
    ]


def _interventions(run: Path, items: Items) -> list[Score]:
    """−ΔP of the true label at the reference layer, the mean of an item's runs; flipped if more than half are."""
    at_reference = (
        _at_reference(run, items)
        .with_columns(sign=pl.when("truthful").then(1.0).otherwise(-1.0))
        .select(
            "item_id",
            "intervention",
            lost=_probability("before") - _probability("after"),
            flips=((pl.col("before") > 0) != (pl.col("after") > 0)).cast(pl.Float64),
        )
        .group_by("intervention", "item_id")
        .mean()
    )
    found = []
    for name, experiment in METHODS_OF.items():
        rows = at_reference.filter(pl.col("intervention") == name)
        if rows.height:
            flips = _over_items(rows, "flips", items)
            called = np.where(np.isfinite(flips), flips > 0.5, np.nan)
            found.append(Score(experiment, name, 100 * _over_items(rows, "lost", items), called))
    return found


def _probability(log_odds: str) -> pl.Expr:
    """Of the true label."""
    return 0.5 * (1 + (0.5 * pl.col(log_odds) * pl.col("sign")).tanh())


def _assignments(run: Path, items: Items) -> list[Score]:
    """The calls of the rules that the report shows; the call itself is the score."""
    paths = pl.read_parquet(run / "pathways.parquet").filter(_headline(run))
    found = []
    for (assignment, probe), rows in paths.group_by("assignment", "probe", maintain_order=True):
        called = rows.select(
            "item_id",
            value=pl.col("pathway").replace_strict(
                {"Q-Anchored": 1.0, "A-Anchored": 0.0}, default=None, return_dtype=pl.Float64
            ),
        )
        values = _over_items(called, "value", items)
        name = str(assignment) if probe == "full" else f"{assignment} {probe}"
        found.append(Score("rules", name, values, values))
    return found


def _values(run: Path, items: Items) -> list[Score]:
    frame = pl.read_parquet(run / "experiment_items.parquet")
    found = []
    for key, rows in frame.group_by("experiment", "quantity", "variant", maintain_order=True):
        experiment, quantity, variant = (str(part) for part in key)
        if (experiment, quantity) not in _TAKEN:
            continue
        values = _over_items(rows, "value", items)
        if quantity in _LOW_IS_QUESTION:
            values = -values
        name = variant if quantity in ("pathway_log_odds", "delta_p_reference_sum") else f"{quantity}, {variant}"
        found.append(Score(experiment, name, values))
    return found


def _over_items(rows: pl.DataFrame, column: str, items: Items) -> Floats:
    """A column in the order of the items, NaN where there is none."""
    known = dict(rows.select("item_id", column).iter_rows())
    return np.array([value if (value := known.get(one)) is not None else np.nan for one in items.ids])
