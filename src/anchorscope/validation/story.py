"""What the calibration says, in sentences put together from its numbers."""

import polars as pl

from anchorscope.catalogue import METHODS
from anchorscope.report.wording import count, number
from anchorscope.validation.scores import CONTROLS, Items

MAIN_WAYS = {
    "knockout": "knockout", "exact-tokens": "subject", "template": "template", "edges": "direct", "zeroing": "zeroing",
    "patching": "patch-same", "answer-only": "answer-template", "saliency": "share, log_odds",
    "self-awareness": "retained", "layers": "single", "rules": "retained",
}  # fmt: skip
"""The way of doing each experiment that stands for it."""
SHOWN = ("plain", "cross-fitted a", "cross-fitted b", "corrected", "retained")
"""Rules whose confusion the page shows: those by which a run sorts its items."""
_METHODS = (
    *METHODS, "single", "single heads", "question_to_answer, loss", "question_to_answer, log_odds", "share, log_odds",
)  # fmt: skip
BIASED = 0.1
"""A rule whose recall differs by more than this between true and false answers, interval and all, follows the label."""


def sentences(items: Items, recovery: pl.DataFrame) -> list[str]:
    """The summary of the page."""
    planted = {name: int((items.pathway == name).sum()) for name in ("question", "answer", "both")}
    right = float(items.correct.mean())
    found = [
        f"{count(planted['question'])} items were planted in the question, {count(planted['answer'])} in the answer "
        f"and {count(planted['both'])} in both; the probe at the reference layer calls {number(100 * right, 1)} % of "
        f"all items right, and only those are sorted.",
    ]
    rules = recovery.filter(pl.col("experiment") == "rules")
    for rule in ("plain", "corrected", "retained"):
        mine = rules.filter(pl.col("rule_or_variant") == rule)
        if mine.height:
            found.append(f"The {rule} rule {_recalls(mine)}")
    best = _best(rules)
    if best is not None:
        found.append(best)
    return [*found, *_methods(recovery), *_controls(recovery)]


def _controls(recovery: pl.DataFrame) -> list[str]:
    """Controls that tell the pathways apart after all."""
    areas = recovery.filter((pl.col("quantity") == "auc") & (pl.col("truth") == "all"))
    areas = areas.filter(pl.col("rule_or_variant").is_in(CONTROLS))
    telling = areas.filter((pl.col("ci_low") > 0.5) | (pl.col("ci_high") < 0.5))
    named = ", ".join(f"{_way(row)} {_interval(row)}" for row in telling.to_dicts())
    if not areas.height:
        return []
    return [
        f"Of {areas.height} controls, which should tell nothing, {telling.height} have an AUC that differs from 0.5"
        + (f": {named}." if named else ".")
    ]


def _methods(recovery: pl.DataFrame) -> list[str]:
    """How far the experiments themselves get, free of any line, within true and within false answers."""
    areas = recovery.filter((pl.col("quantity") == "auc") & pl.col("rule_or_variant").is_in(_METHODS))
    areas = areas.filter(pl.col("experiment") != "baseline")
    found = []
    for truth in ("true", "false"):
        here = areas.filter(pl.col("truth") == truth).sort("value", descending=True)
        if not here.height:
            continue
        first, last = here.row(0, named=True), here.row(-1, named=True)
        guessing = here.filter(pl.col("ci_low") <= 0.5).height
        found.append(
            f"Free of any line and within {truth} answers, {guessing} of {here.height} experiments do not tell the "
            f"pathways apart better than guessing; the best is {_way(first)} with an AUC of {_interval(first)}, the "
            f"worst {_way(last)} with {_interval(last)}."
        )
    return found


def _recalls(rows: pl.DataFrame) -> str:
    """How many items of each pathway a rule finds, and whether the label gets in the way."""
    at = {(row["quantity"], row["truth"]): row for row in rows.to_dicts()}
    question, answer = at.get(("recall_question", "all")), at.get(("recall_answer", "all"))
    if question is None or answer is None:
        return "finds no items of one of the pathways."
    bias = at.get(("label_bias_question", "all"))
    told = (
        f"finds {_percent(question)} of the question items and {_percent(answer)} of the answer items (balanced "
        f"accuracy {_percent(at['balanced_accuracy', 'all'])})"
    )
    if bias is None:
        return f"{told}."
    true, false = at["recall_question", "true"], at["recall_question", "false"]
    follows = _verdict(bias)
    return f"{told}; of the question items with a true answer it finds {_percent(true)}, of those with a false one " \
           f"{_percent(false)}, so {follows}."


def _verdict(bias: dict[str, float | None]) -> str:
    low, high = bias["ci_low"], bias["ci_high"]
    if low is None or high is None:
        return "whether it follows the label cannot be said"
    if low > BIASED or high < -BIASED:
        return "it follows the label"
    if low >= -BIASED and high <= BIASED:
        return "it does not follow the label"
    return "whether it follows the label is undecided"


def _best(rules: pl.DataFrame) -> str | None:
    """The rule that finds most of both pathways, in the answers where it does worst."""
    accuracy = rules.filter((pl.col("quantity") == "balanced_accuracy") & (pl.col("truth") != "all"))
    worst = accuracy.group_by("rule_or_variant", maintain_order=True).agg(pl.col("value").min(), pl.len())
    worst = worst.filter(pl.col("len") == 2).sort("value", descending=True, maintain_order=True)
    if not worst.height:
        return None
    name, value, _ = worst.row(0)
    return (
        f"Of all rules tried, {name!r} does best where it does worst: a balanced accuracy of at least "
        f"{number(100 * value, 1)} % within true and within false answers."
    )


def _way(row: dict[str, object]) -> str:
    return f"{row['experiment']} ({row['rule_or_variant']})"


def _interval(row: dict[str, float | None]) -> str:
    ends = [row["ci_low"], row["ci_high"]]
    shown = "" if None in ends else f" [{', '.join(number(float(end or 0.0), 2) for end in ends)}]"
    return f"{number(float(row['value'] or 0.0), 2)}{shown}"


def _percent(row: dict[str, float | None]) -> str:
    return f"{number(100 * float(row['value'] or 0.0), 0)} %"
