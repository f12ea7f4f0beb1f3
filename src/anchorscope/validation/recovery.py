"""How well each experiment of a finished run finds what was planted: AUCs and recalls, overall and within truth.

Each experiment gives a number that is larger where more depends on the question. Items of both pathways have no right
answer and are left out, as are items that the probe calls wrong. A rule that sorts by the label looks fair over all
items, so every number is also given within true and within false answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from anchorscope.artefacts.schema import RECOVERY_SCHEMA
from anchorscope.catalogue import CONTROLS, INTERVENTIONS
from anchorscope.evidence.draws import Draws, areas, estimates, ratio
from anchorscope.recipe import read_recipe
from anchorscope.report.findings import row_estimate
from anchorscope.report.verdicts import Verdict, between
from anchorscope.report.wording import as_percent, count, estimate, number
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import stream

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

_TAKEN = {
    ("saliency", "question_to_answer"),
    ("saliency", "share"),
    ("self-awareness", "pathway_log_odds"),
    ("layers", "delta_p_reference_sum"),
    ("heads", "delta_p_reference_sum"),
}


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
    return [
        *_baselines(run, items),
        *_interventions(run, items),
        *_values(run, items),
        _pathways(run, items),
    ]


def _headline(run: Path) -> pl.Expr:
    recipe = read_recipe(run / "recipe.toml")
    return (pl.col("site") == recipe["site"]) & (
        pl.col("position") == recipe["position"]
    )


def _at_reference(run: Path, items: Items) -> pl.DataFrame:
    """Log-odds of every run of every item at its reference layer, before and after."""
    at_headline = _headline(run)
    paths = pl.read_parquet(run / "pathways.parquet").filter(at_headline)
    effects = pl.read_parquet(run / "effects.parquet").filter(at_headline)
    return (
        effects.join(
            paths.select("dataset", "item_id", "reference_layer"),
            on=["dataset", "item_id"],
        )
        .join(
            pl.DataFrame({"item_id": items.ids, "truthful": items.truthful}),
            on="item_id",
        )
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
        Score(
            "baseline",
            "how unsure the clean probe is",
            _over_items(sure, "value", items),
        ),
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
    scores = []
    for name, entry in INTERVENTIONS.items():
        rows = at_reference.filter(pl.col("intervention") == name)
        if rows.height:
            flips = _over_items(rows, "flips", items)
            called = np.where(np.isfinite(flips), flips > 0.5, np.nan)
            scores.append(
                Score(
                    entry.experiment,
                    name,
                    100 * _over_items(rows, "lost", items),
                    called,
                )
            )
    return scores


def _probability(log_odds: str) -> pl.Expr:
    """Of the true label."""
    return 0.5 * (1 + (0.5 * pl.col(log_odds) * pl.col("sign")).tanh())


def _pathways(run: Path, items: Items) -> Score:
    """The calls of the paper's rule; the call itself is the score."""
    paths = pl.read_parquet(run / "pathways.parquet").filter(_headline(run))
    called = paths.select(
        "item_id",
        value=pl.col("pathway").replace_strict(
            {"Q-Anchored": 1.0, "A-Anchored": 0.0},
            default=None,
            return_dtype=pl.Float64,
        ),
    )
    values = _over_items(called, "value", items)
    return Score("rules", "plain", values, values)


def _values(run: Path, items: Items) -> list[Score]:
    frame = pl.read_parquet(run / "experiment_items.parquet")
    scores = []
    for key, rows in frame.group_by(
        "experiment", "quantity", "variant", maintain_order=True
    ):
        experiment, quantity, variant = (str(part) for part in key)
        if (experiment, quantity) not in _TAKEN:
            continue
        values = _over_items(rows, "value", items)
        if (
            quantity == "delta_p_reference_sum"
        ):  # low where the item depends on the question
            values = -values
        name = (
            variant
            if quantity in ("pathway_log_odds", "delta_p_reference_sum")
            else f"{quantity}, {variant}"
        )
        scores.append(Score(experiment, name, values))
    return scores


def _over_items(rows: pl.DataFrame, column: str, items: Items) -> Floats:
    """A column in the order of the items, NaN where there is none."""
    by_item = dict(rows.select("item_id", column).iter_rows())
    return np.array(
        [
            value if (value := by_item.get(item)) is not None else np.nan
            for item in items.ids
        ]
    )


TRUTHS = ("all", "true", "false")
METHOD = "bootstrap over groups"


def recovery_table(
    items: Items, scores: Sequence[Score], resamples: int, seed: int
) -> pl.DataFrame:
    """One row per experiment, way of doing it, truth and quantity."""
    draws = Draws.of(group_weights(items.groups, resamples, stream(seed, "validation")))
    rows = []
    for score in scores:
        for quantity, truth, samples, n in (
            *_areas(items, score, draws),
            *_recalls(items, score, draws),
        ):
            value, low, high = (
                None if not np.isfinite(number) else float(number)
                for number in estimates(samples)
            )
            if value is not None:
                rows.append(
                    (
                        score.experiment,
                        score.variant,
                        truth,
                        quantity,
                        value,
                        low,
                        high,
                        n,
                        METHOD,
                    )
                )
    return pl.DataFrame(rows, schema=RECOVERY_SCHEMA, orient="row")


def _planted(items: Items, score: Score, truth: str) -> NDArray[np.int64]:
    """Items of one of the two pathways, of a truth, that the experiment was run on."""
    inside = items.correct & (items.pathway != "both") & np.isfinite(score.values)
    if truth != "all":
        inside &= items.truthful == (truth == "true")
    return np.flatnonzero(inside)


def _areas(
    items: Items, score: Score, draws: Draws
) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """How often a question item scores above an answer item; folds have probes of their own and stay apart."""
    for truth in TRUTHS:
        inside = _planted(items, score, truth)
        question = items.pathway[inside] == "question"
        if question.any() and not question.all():
            samples = areas(
                score.values[None, inside],
                question,
                items.folds[inside],
                draws.take(inside),
            )[0]
            yield "auc", truth, samples, len(inside)


def _recalls(
    items: Items, score: Score, draws: Draws
) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """Shares of question items called Q-Anchored and of answer items called A-Anchored, and how truth moves them."""
    if score.called is None:
        return
    recalls: dict[tuple[str, str], torch.Tensor] = {}
    sizes: dict[str, int] = {}
    for truth in TRUTHS:
        for pathway, wanted in (("question", 1.0), ("answer", 0.0)):
            inside = _planted(items, score, truth)
            inside = inside[
                np.isfinite(score.called[inside]) & (items.pathway[inside] == pathway)
            ]
            if len(inside):
                sample = draws.take(inside)
                hits = (score.called[inside] == wanted)[:, None]
                recalls[pathway, truth] = ratio(sample.sums(hits)[0], sample.numbers())
                sizes.setdefault(pathway, len(inside))  # all answers come first
                yield f"recall_{pathway}", truth, recalls[pathway, truth], len(inside)
        if ("question", truth) in recalls and ("answer", truth) in recalls:
            both = (recalls["question", truth] + recalls["answer", truth]) / 2
            yield "balanced_accuracy", truth, both, len(_planted(items, score, truth))
    for pathway in ("question", "answer"):
        if (pathway, "true") in recalls and (pathway, "false") in recalls:
            bias = recalls[pathway, "true"] - recalls[pathway, "false"]
            yield f"label_bias_{pathway}", "all", bias, sizes[pathway]


MAIN_WAYS = {"saliency": "share, log_odds"}
"""The way of doing an experiment that stands for it, where it is not the first."""
BIASED = 0.1
"""A rule whose recall differs by more than this between true and false answers, interval and all, follows the label."""
_FOLLOWS: dict[Verdict, str] = {
    "no": "so it follows the label",
    "yes": "so it does not follow the label",
    "inconclusive": "so whether it follows the label is undecided",
}


def sentences(items: Items, recovery: pl.DataFrame) -> list[str]:
    """The summary of the page."""
    planted = {
        name: int((items.pathway == name).sum())
        for name in ("question", "answer", "both")
    }
    right = float(items.correct.mean())
    about = (
        f"{count(planted['question'])} items were planted in the question, {count(planted['answer'])} in the answer "
        f"and {count(planted['both'])} in both; the probe at the reference layer calls {number(100 * right, 1)}% of "
        f"all items right, and only those are sorted."
    )
    lines = []
    rule = recovery.filter(pl.col("experiment") == "rules")
    if rule.height:
        lines.append(f"The plain rule {_recall_words(rule)}")
    return [*lines, *_controls(recovery), about]


def _controls(recovery: pl.DataFrame) -> list[str]:
    """Controls that tell the pathways apart after all."""
    areas = recovery.filter((pl.col("quantity") == "auc") & (pl.col("truth") == "all"))
    areas = areas.filter(pl.col("rule_or_variant").is_in(CONTROLS))
    telling = areas.filter((pl.col("ci_low") > 0.5) | (pl.col("ci_high") < 0.5))
    named = ", ".join(
        f"{row['experiment']} ({row['rule_or_variant']}) {estimate(row_estimate(row))}"
        for row in telling.to_dicts()
    )
    if not areas.height:
        return []
    return [
        f"Of {areas.height} controls, which should tell nothing, {telling.height} have an AUC that differs from 0.5"
        + (f": {named}." if named else ".")
    ]


def _recall_words(rows: pl.DataFrame) -> str:
    """How many items of each pathway a rule finds, and whether the label gets in the way."""
    at = {(row["quantity"], row["truth"]): row for row in rows.to_dicts()}
    if not {("recall_question", "all"), ("recall_answer", "all")} <= at.keys():
        return "finds no items of one of the pathways."
    bias = at.get(("label_bias_question", "all"))
    shares = {key: as_percent(row["value"] or 0.0) for key, row in at.items()}
    recall = (
        f"finds {shares['recall_question', 'all']} of the question items and {shares['recall_answer', 'all']} of the "
        f"answer items (balanced accuracy {shares['balanced_accuracy', 'all']})"
    )
    if bias is None:
        return f"{recall}."
    return (
        f"{recall}; of the question items with a true answer it finds {shares['recall_question', 'true']}, of those "
        f"with a false one {shares['recall_question', 'false']}, "
        f"{_FOLLOWS[between(row_estimate(bias), -BIASED, BIASED)]}."
    )
