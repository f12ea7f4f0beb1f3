"""Do experiments find pathways where they are known? An ordinary run on the planted model, marked against what is so.

    python benchmarks/planted_model.py [--items 1200] [--evidence knockout,patching] [--run FOLDER] [--json]

The planted model (tests/support/planted_items.py) knows the truth of an answer from the question, from the answer, or
from both; truth and pathway are crossed. Each experiment gives a number that is larger where more depends on the
question; its AUC is the chance that a question item scores above an answer item. What counts is the AUC within true and
within false answers: an experiment that only knows the label has 0.5 there. Items of both pathways have no right
answer and are left out, as are items that the probe calls wrong.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from anchorscope.catalogue import EVIDENCE, INTERVENTIONS
from anchorscope.evidence.draws import Draws, areas, estimates, ratio
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import stream
from planted_items import MODEL_FOLDER, json_lines, planted_items
from reporting import Parser, Report, Row, at_least, machine, names, run_script, say

Floats = NDArray[np.floating]
TRUTHS = ("all", "true", "false")
OF_SINGLE_ITEMS = (
    "knockout",
    "exact-tokens",
    "template",
    "edges",
    "zeroing",
    "patching",
    "answer-only",
    "layers",
    "heads",
    "saliency",
    "self-awareness",
)
"""Experiments that say something of single items."""
DEFAULT = tuple(name for name in OF_SINGLE_ITEMS if name in EVIDENCE)
_SUMMED = "delta_p_reference_sum"  # low where the item depends on the question
_TAKEN = {
    "saliency": ("question_to_answer", "share"),
    "self-awareness": ("pathway_log_odds",),
    "layers": (_SUMMED,),
    "heads": (_SUMMED,),
}
"""What the experiments with a file of their own say of items."""
BIASED = 0.1
"""A rule whose recall differs by more than this between true and false answers follows the label."""


@dataclass(frozen=True)
class Items:
    """The used items of a run on planted items."""

    ids: tuple[str, ...]
    pathway: NDArray[np.str_]
    """As planted: question, answer or both."""
    truthful: NDArray[np.bool_]
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    correct: NDArray[np.bool_]
    """Whether the probe calls the item right at its reference layer."""

    def planted(self, values: Floats, truth: str = "all") -> NDArray[np.int64]:
        """Items of one of the two pathways, of a truth, that have a value."""
        inside = self.correct & (self.pathway != "both") & np.isfinite(values)
        if truth != "all":
            inside &= self.truthful == (truth == "true")
        return np.flatnonzero(inside)


@dataclass(frozen=True)
class Score:
    """What one experiment, done in one way, says of the items; NaN of those it was not run on."""

    experiment: str
    variant: str
    values: Floats


def plant_and_run(recipe: Mapping[str, Any], items: int, seed: int, out: Path) -> Path:
    """The run on planted items; `recipe` adds to the ordinary one."""
    out.mkdir(parents=True, exist_ok=True)
    questions = out / "planted.jsonl"
    questions.write_text(json_lines(planted_items(items, seed)), encoding="utf-8")
    return run_recipe(planted_recipe(recipe, questions, items, seed), out / "run")


def planted_recipe(
    recipe: Mapping[str, Any], questions: Path, items: int, seed: int
) -> Recipe:
    return make_recipe(
        {
            "model": str(MODEL_FOLDER),
            "datasets": (f"file:{questions}",),
            "prompt": "zero-shot",
            "balance": "none",
            "max_per_class": max(items, 30),
            "evidence_items": max(items, 60),
            "seed": seed,
            "dtype": "float32",
            "report": False,
            **recipe,
        }
    )


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
    effects = _at_reference(run, items)
    unsure = effects.filter(pl.col("intervention") == "knockout").select(
        "item_id", value=-pl.col("before").abs()
    )
    return [
        Score("baseline", "the answer is true", items.truthful.astype(float)),
        Score("baseline", "how unsure the probe is", _by_item(unsure, items)),
        *_interventions(effects, items),
        *_experiments(run, items),
        rule(run, items),
    ]


def _headline(run: Path) -> pl.Expr:
    recipe = read_recipe(run / "recipe.toml")
    at_site = pl.col("site") == recipe["site"]
    return at_site & (pl.col("position") == recipe["position"])


def _plain_rule(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "pathways.parquet").filter(_headline(run))


def _at_reference(run: Path, items: Items) -> pl.DataFrame:
    """Log-odds of every run of every item at its reference layer, before and after."""
    layers = _plain_rule(run).select("item_id", "reference_layer")
    truths = pl.DataFrame({"item_id": items.ids, "truthful": items.truthful})
    effects = pl.read_parquet(run / "effects.parquet").filter(_headline(run))
    at_layer = pl.col("reference_layer")
    return (
        effects.join(layers, on="item_id")
        .join(truths, on="item_id")
        .select(
            "item_id",
            "intervention",
            "truthful",
            before=pl.col("logit_clean").list.get(at_layer),
            after=pl.col("logit_after").list.get(at_layer),
        )
    )


def _interventions(effects: pl.DataFrame, items: Items) -> list[Score]:
    """−ΔP of the true label, the mean of an item's runs."""
    sign = pl.when("truthful").then(1.0).otherwise(-1.0)

    def probability(log_odds: str) -> pl.Expr:
        return 0.5 * (1 + (0.5 * pl.col(log_odds) * sign).tanh())

    lost = effects.select(
        "item_id",
        "intervention",
        value=100 * (probability("before") - probability("after")),
    )
    means = lost.group_by("intervention", "item_id").mean()
    scores = []
    for name, entry in INTERVENTIONS.items():
        rows = means.filter(pl.col("intervention") == name)
        if rows.height:
            scores.append(Score(entry.experiment, name, _by_item(rows, items)))
    return scores


def _experiments(run: Path, items: Items) -> list[Score]:
    frame = pl.read_parquet(run / "experiment_items.parquet")
    scores = []
    for experiment, quantities in _TAKEN.items():
        for quantity in quantities:
            of_quantity = frame.filter(
                (pl.col("experiment") == experiment) & (pl.col("quantity") == quantity)
            )
            for (variant,), rows in of_quantity.group_by(
                "variant", maintain_order=True
            ):
                values = _by_item(rows, items)
                if quantity == _SUMMED:
                    values = -values
                words = quantity if len(quantities) > 1 else ""
                name = ", ".join(filter(None, (words, str(variant or ""))))
                scores.append(Score(experiment, name, values))
    return scores


def rule(run: Path, items: Items) -> Score:
    """The groups of the report: 1 where an item is called Q-Anchored, 0 where A-Anchored."""
    called = pl.col("pathway").replace_strict(
        {"Q-Anchored": 1.0, "A-Anchored": 0.0}, default=None, return_dtype=pl.Float64
    )
    rows = _plain_rule(run).select("item_id", value=called)
    return Score("rule", "plain", _by_item(rows, items))


def _by_item(rows: pl.DataFrame, items: Items) -> Floats:
    """The column `value` in the order of the items, NaN where there is none."""
    found = dict(rows.select("item_id", "value").drop_nulls().iter_rows())
    return np.array([found.get(item, np.nan) for item in items.ids])


def marked(
    items: Items, scores: Sequence[Score], resamples: int, seed: int
) -> list[dict[str, Any]]:
    """A row per experiment and way of doing it: AUCs, and what the rule finds."""
    weights = group_weights(items.groups, resamples, stream(seed, "validation"))
    draws = Draws.of(weights)
    rows = []
    for score in scores:
        about = {"experiment": score.experiment, "variant": score.variant}
        numbers = dict(_aucs(items, score, draws))
        if score.experiment == "rule":
            numbers |= dict(_recalls(items, score, draws))
        if numbers:
            rows.append(about | numbers)
    return rows


def _numbers(name: str, samples: torch.Tensor, n: int) -> Iterator[tuple[str, Any]]:
    value, low, high = map(float, estimates(samples))
    yield name, value
    yield f"{name}_interval", [low, high]
    yield f"{name}_n", n


def _aucs(items: Items, score: Score, draws: Draws) -> Iterator[tuple[str, Any]]:
    """How often a question item scores above an answer item; folds have probes of their own and stay apart."""
    for truth in TRUTHS:
        inside = items.planted(score.values, truth)
        question = items.pathway[inside] == "question"
        if question.any() and not question.all():
            samples = areas(
                score.values[None, inside],
                question,
                items.folds[inside],
                draws.take(inside),
            )
            yield from _numbers(f"auc_{truth}", samples[0], len(inside))


def _recalls(items: Items, score: Score, draws: Draws) -> Iterator[tuple[str, Any]]:
    """Shares of question items called Q-Anchored and of answer items called A-Anchored, and how truth moves them."""
    for pathway, wanted in (("question", 1.0), ("answer", 0.0)):
        found = {}
        n = 0
        for truth in TRUTHS:
            inside = items.planted(score.values, truth)
            inside = inside[items.pathway[inside] == pathway]
            if len(inside):
                n = max(n, len(inside))
                sample = draws.take(inside)
                hits = (score.values[inside] == wanted)[:, None]
                found[truth] = ratio(sample.sums(hits)[0], sample.numbers())
                name = f"recall_{pathway}_{truth}"
                yield from _numbers(name, found[truth], len(inside))
        if {"true", "false"} <= found.keys():
            bias = found["true"] - found["false"]
            yield from _numbers(f"label_bias_{pathway}", bias, n)


def notes_of(items: Items, rows: Sequence[Row]) -> list[str]:
    """What the rule finds, whether it follows the label, and controls that tell the pathways apart after all."""
    lines = []
    for row in rows:
        if "label_bias_question" in row:
            low, high = row["label_bias_question_interval"]
            follows = "follows" if low > BIASED or high < -BIASED else "may not follow"
            lines.append(
                f"The {row['variant']} rule finds {row['recall_question_all']:.0%} of the question items "
                f"({row['recall_question_true']:.0%} of the true, {row['recall_question_false']:.0%} of the false) and "
                f"{row['recall_answer_all']:.0%} of the answer items: it {follows} the label."
            )
    controls = [name for name, entry in INTERVENTIONS.items() if entry.control]
    mine = [row for row in rows if row["variant"] in controls]
    telling = [row["variant"] for row in mine if _tells(row["auc_all_interval"])]
    beside = f": {', '.join(telling)}" if telling else ""
    lines.append(
        f"Controls that tell pathways apart: {len(telling)} of {len(mine)}{beside}."
    )
    lines.append(f"The probe calls {items.correct.mean():.1%} of all items right.")
    return lines


def _tells(interval: Sequence[float]) -> bool:
    return interval[0] > 0.5 or interval[1] < 0.5


def measure(options: argparse.Namespace) -> Report:
    """The run and its marks."""
    recipe = {
        "evidence": options.evidence,
        "bootstrap": options.bootstrap,
        "device": options.device,
    }
    with tempfile.TemporaryDirectory() as folder:
        out = options.run or Path(folder)
        say(f"a run on {options.items} planted items")
        run = plant_and_run(recipe, options.items, options.seed, out)
        items = read_items(run)
        scores = read_scores(run, items)
    rows = marked(items, scores, options.bootstrap, options.seed)
    columns = {"experiment": "{}", "variant": "{}"}
    for truth in TRUTHS:
        columns[f"auc_{truth}"] = "{:.3f}"
        columns[f"auc_{truth}_interval"] = "{:.3f}"
    facts = {"items": len(items.ids), "seed": options.seed, "machine": machine()}
    return Report(facts, columns, rows, notes_of(items, rows))


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    parser.add_argument("--items", type=at_least(120), default=1200)
    parser.add_argument("--evidence", type=names(EVIDENCE), default=DEFAULT)
    parser.add_argument("--bootstrap", type=at_least(100), default=2000)
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--run", type=Path, help="keep the run in this folder")
    return run_script(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
