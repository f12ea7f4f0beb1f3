"""Saliency: how much the probe's verdict depends on the attention that the answer pays to the question's exact tokens.

S = Σ |A · ∂L/∂A|, over all layers up to the item's own reference layer l*, all heads, all queries of the answer (from
its first token to the one that is read) and all keys in E_Q (`question_to_answer`). A is the attention weight after the
softmax; the probe is that of the item's own fold, which never saw its group. `share` is the same sum over the keys in
E_Q divided by that over all keys.

L comes in two variants. `log_odds` is the probe's log-odds z. `loss` is its cross-entropy with the true label, as in
the paper. They differ by one factor: |∂ loss/∂z| is the probability of the wrong label, so that S(loss) = P(wrong) ·
S(log_odds), and `share` is the same for both. An item of which the probe is sure has a loss near zero and thus S near
zero, whatever its pathway: a mode near zero can come from that factor alone. `confidence_variance_share` tells how much
of the spread of log10 S(loss) does.

S spans orders of magnitude, so means, the dip test and the bimodality coefficient are of log10 S. Folds have their own
probes and depths, which can make modes by themselves: the `…_within_folds` numbers are of log10 S minus its fold's
median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.measured import A_ANCHORED, GROUPS, Q_ANCHORED, at_reference
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    TRUTHS,
    Bools,
    Column,
    Compared,
    Floats,
    compare_pathways,
    estimate_of,
    explained_by,
    of_truth,
    separation,
    too_few,
)
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.palette import INK
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import find, present, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.modes import (
    SAMPLES,
    coefficient_of_powers,
    density_grid,
    dip,
    dip_p_value,
    dips,
    gaussian_density,
)

if TYPE_CHECKING:
    from anchorscope.evidence.draws import Draws

LOSS, LOG_ODDS = "loss", "log_odds"
"""What is differentiated: the probe's cross-entropy with the true label, or its log-odds."""
_QUESTION = "question"  # E_Q, among the sets of keys
DRAWS = 200
"""Draws behind the standard error of a dip; each is as much work as a sample of its own."""
_DIP = (
    f"p by {SAMPLES:,} uniform samples of as many independent values; interval ± 1.96 standard errors, {METHOD} "
    f"({DRAWS} draws)"
)
_LARGEST_DIP = 0.25  # of any distribution
_Z = 1.959964


def run(inputs: ExperimentInputs) -> Found:
    """Saliency of each item, its means per pathway, how well it tells the pathways apart, and its modes."""
    items = inputs.some_items()
    if len(items) < FEW:
        return Found(missing=(f"saliency: only {len(items)} items, {FEW} needed",))
    flow = measure_flow(inputs, items)
    return analyse(inputs, flow)


@dataclass(frozen=True)
class Flow:
    """Saliency of the used items; NaN of those that were not run."""

    log_odds: Floats
    """S from E_Q to the answer, of the probe's log-odds."""
    share: Floats
    """The part that comes from E_Q of all that flows into the answer; NaN where nothing does."""
    log_wrong: Floats
    """Natural logarithm of the probability that the probe gives to the wrong label."""

    @property
    def loss(self) -> Floats:
        """S of the probe's cross-entropy with the true label."""
        return self.log_odds * np.exp(self.log_wrong)


def measure_flow(inputs: ExperimentInputs, items: NDArray[np.int64]) -> Flow:
    """One pass with gradients over some of the items, as large in memory as the budget allows."""
    from anchorscope.engine.saliency import ALL
    from anchorscope.execute.run_passes import run_saliency
    from anchorscope.plan.passes import plan_saliency

    position, site = inputs.headline
    some = [inputs.used_items[item] for item in items]
    reference, folds = inputs.reference[items], inputs.measured.folds[items]
    full = inputs.measured.probe("full")
    work = plan_saliency(
        inputs.planner,
        sequences=[item.sequence(inputs.setting.positions[position : position + 1]) for item in some],
        prefix=inputs.prefix,
        keys={_QUESTION: tuple(item.located.question_tokens for item in some)},
        site=SITES[site],
        layers=[int(layer) for layer in reference],
        weight=inputs.probes.weight[full, folds, reference],
        bias=inputs.probes.bias[full, folds, reference],
    )
    found = run_saliency(inputs.executor, work, inputs.progress)
    question, everything = (found.of(name)[:, 0].sum(axis=(1, 2), dtype=np.float64) for name in (_QUESTION, ALL))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(everything > 0, question / everything, np.nan)
    return Flow(_spread(question, items, inputs.n), _spread(share, items, inputs.n), _log_wrong(inputs))


def _spread(values: Floats, items: NDArray[np.int64], n: int) -> Floats:
    found = np.full(n, np.nan)
    found[items] = values
    return found


def _log_wrong(inputs: ExperimentInputs) -> Floats:
    full = inputs.measured.probe("full")
    clean = at_reference(inputs.measured.before[full], inputs.measured.reference[full], inputs.measured.folds)
    return -np.logaddexp(0.0, np.where(inputs.measured.labels, clean, -clean).astype(float))


def analyse(inputs: ExperimentInputs, flow: Flow) -> Found:
    """Everything that is said of measured saliency."""
    sums = {LOSS: flow.loss, LOG_ODDS: flow.log_odds}
    logs = {variant: _log10(values) for variant, values in sums.items()}
    method = f"{METHOD}, mean of log10"
    columns = [Column("log10_question_to_answer", values, name, method=method) for name, values in logs.items()]
    compared = compare_pathways(inputs, [*columns, Column("share", flow.share, LOG_ODDS)])
    for variant, values in sums.items():
        compared.add(separation(inputs, "auc", variant, values))
    compared.add(separation(inputs, "auc_share", LOG_ODDS, flow.share))
    for variant, values in logs.items():
        compared.add(bimodality(inputs, variant, values))
    confidence = flow.log_wrong / np.log(10)
    compared.add(explained_by(inputs, "confidence_variance_share", LOSS, logs[LOSS], confidence))
    return Found(
        statistics=tuple(compared.statistics),
        values=(
            *(_item_values("question_to_answer", variant, values) for variant, values in sums.items()),
            _item_values("share", LOG_ODDS, flow.share),
        ),
        missing=(*_zeros(flow), *compared.lines()),
    )


def _log10(values: Floats) -> Floats:
    """NaN where nothing flows: zero has no logarithm."""
    return np.log10(np.where(values > 0, values, np.nan))


def _zeros(flow: Flow) -> list[str]:
    zeros, n = int((flow.log_odds == 0).sum()), int(np.isfinite(flow.log_odds).sum())
    if not zeros:
        return []
    return [
        f"log10_question_to_answer: in {zeros} of {n} items exactly nothing flows from the exact tokens to the "
        f"answer (a sliding window hides them, for instance); they have no logarithm and are left out"
    ]


def _item_values(quantity: str, variant: str, values: Floats) -> ItemValues:
    known = np.flatnonzero(np.isfinite(values))
    return ItemValues(quantity, known, values[known], variant)


def bimodality(inputs: ExperimentInputs, variant: str, values: Floats) -> Compared:
    """`dip` and `bimodality_coefficient` of values [item] as they are, and minus their fold's median; NaN: left out.

    A resample's dip is larger than the sample's, because its repeated values are steps; so the interval is made from
    the standard error and not from percentiles. The coefficient is 5/9 for a uniform distribution.
    """
    result = Compared()
    kinds = {"": values, "_within_folds": within_folds(values, inputs.measured.folds)}
    for part in _parts(inputs):
        items = np.flatnonzero(part.members & np.isfinite(values))
        if len(items) < FEW:
            reason = too_few(len(items), part.group, part.assignment, part.truth)
            result.missing.extend((quantity, reason) for quantity in ("dip", "bimodality_coefficient"))
            continue
        draws = inputs.draws.take(items)
        for ending, numbers in kinds.items():
            found, p_value = _dip(numbers[items], draws, inputs.setting.seed)
            result.statistics.append(part.row(f"dip{ending}", found, variant, p_value))
            coefficient = _coefficient(numbers[items], draws)
            if np.isfinite(coefficient.value):  # not where all values are the same
                result.statistics.append(part.row(f"bimodality_coefficient{ending}", coefficient, variant))
    return result


def within_folds(values: Floats, folds: NDArray[np.int64]) -> Floats:
    """Values minus the median of their fold."""
    found = np.full(len(values), np.nan)
    for fold in np.unique(folds[np.isfinite(values)]):
        inside = (folds == fold) & np.isfinite(values)
        found[inside] = values[inside] - np.median(values[inside])
    return found


@dataclass(frozen=True)
class _Part:
    """Some of the used items."""

    members: Bools
    truth: str
    assignment: str | None = None
    group: str | None = None

    def row(self, quantity: str, estimate: Estimate, variant: str, p_value: float | None = None) -> Statistic:
        """A statistic of this part."""
        return Statistic(
            quantity, estimate, variant, assignment=self.assignment, group=self.group, truth=self.truth, p_value=p_value
        )


def _parts(inputs: ExperimentInputs) -> list[_Part]:
    """All items, by truth; and each pathway."""
    found = [_Part(of_truth(inputs.measured.labels, truth), truth) for truth in TRUTHS]
    for assignment, calls in inputs.calls.items():
        found += [_Part(calls.members(group), "all", assignment, group) for group in GROUPS]
    return found


def _dip(values: Floats, draws: Draws, seed: int) -> tuple[Estimate, float]:
    found, n = dip(values), len(values)
    counts = draws.counts[:, 1 : 1 + DRAWS].cpu().numpy().T
    error = float(np.nanstd(dips(values, counts)))
    low, high = max(0.0, found - _Z * error), min(_LARGEST_DIP, found + _Z * error)
    return Estimate(found, low, high, n, _DIP), dip_p_value(found, n, seed)


def _coefficient(values: Floats, draws: Draws) -> Estimate:
    import torch

    from anchorscope.evidence.draws import ratio

    centred = values - values.mean()
    sums = draws.sums(np.stack([centred**power for power in (1, 2, 3, 4)], axis=1))
    n = draws.numbers()
    powers = ratio(sums, n.expand_as(sums)).cpu().numpy()
    samples = coefficient_of_powers(powers, n.cpu().numpy())
    return estimate_of(torch.from_numpy(samples), len(values))


EXPERIMENT = Experiment(
    "saliency", "how much the probe's verdict depends on the answer's attention to the question (gradients)", run
)


LOSSES = {LOSS: "probe's loss", LOG_ODDS: "probe's log-odds"}
SPLITS = {"truth": "by truth", "plain": "by pathway, plain", "corrected": "by pathway, corrected"}
_STYLES: dict[str, dict[str, Any]] = {
    "all": {"color": INK, "linewidth": 1.0, "linestyle": (0, (1.0, 1.4))},
    "true": {"color": "#0072b2", "linestyle": "-"},
    "false": {"color": "#d55e00", "linestyle": (0, (5.0, 1.6, 1.0, 1.6))},
    Q_ANCHORED: {"color": "#6a3d9a", "linestyle": "-"},
    A_ANCHORED: {"color": "#b5871d", "linestyle": (0, (4.0, 1.8))},
}
_NAMES = TRUTHS | {"all": "all items"}
_DRAWN = {
    "dataset": pl.String,
    "variant": pl.String,
    "split": pl.String,
    "part": pl.String,
    "n": pl.Int64,
    "log10_saliency": pl.Float64,
    "density": pl.Float64,
}
_OF = section.Key("variant", "of", LOSSES)


def _items(findings: Findings) -> pl.DataFrame:
    """The saliency of every item, with its truth and its pathways."""
    found = select(
        findings.experiment_items, experiment="saliency", quantity="question_to_answer", dataset=findings.datasets
    )
    about = findings.items.select(
        "dataset",
        "item_id",
        truth=pl.when("truthful").then(pl.lit("true")).otherwise(pl.lit("false")),
        plain=pl.col("pathway"),
        corrected=pl.col("pathway_corrected"),
    )
    return found.filter(pl.col("value").is_finite()).join(about, on=["dataset", "item_id"], how="left")


def _drawn(findings: Findings) -> pl.DataFrame:
    """The curves; each part's area is its share of the items, so that parts add up to the whole."""
    positive = _items(findings).filter(pl.col("value") > 0).with_columns(log=pl.col("value").log10())
    curves = [
        _curves(rows, str(dataset), str(variant))
        for (dataset, variant), rows in positive.group_by("dataset", "variant", maintain_order=True)
    ]
    return pl.concat(curves) if curves else pl.DataFrame(schema=_DRAWN)


def _curves(positive: pl.DataFrame, dataset: str, variant: str) -> pl.DataFrame:
    """The density of all items and of the parts of every split, on one grid."""
    frames = [pl.DataFrame(schema=_DRAWN)]
    for split in SPLITS:
        inside = positive.filter(pl.col(split).is_in(list(_STYLES)))
        if inside.height < FEW:
            continue
        grid = density_grid(inside["log"].to_numpy())
        for part in ("all", *present(inside, split)):
            values = inside["log"] if part == "all" else select(inside, **{split: part})["log"]
            heights = gaussian_density(values.to_numpy(), grid) * len(values) / inside.height
            if len(values) >= FEW and np.isfinite(heights).all():
                about = {"dataset": dataset, "variant": variant, "split": split, "part": part, "n": len(values)}
                frame = pl.DataFrame({"log10_saliency": grid, "density": heights})
                frame = frame.with_columns(pl.lit(value).alias(name) for name, value in about.items())
                frames.append(frame.select(pl.col(name).cast(kind) for name, kind in _DRAWN.items()))
    return pl.concat(frames)


def _note(findings: Findings) -> str:
    none = _items(findings).filter(pl.col("value") == 0).height
    zeros = f" Not drawn: {none} values of exactly zero, which have no logarithm." if none else ""
    return (
        "Saliency S = |A · ∂L/∂A|, summed over heads, layers up to l*, answer positions and key words. Densities over "
        "items (Gaussian kernel, Silverman's width); the area of a part is its share of the items in the panel. Parts "
        f"of fewer than {FEW} items are not drawn.{zeros}"
    )


_SERIES = [
    Series({"part": part}, style, _NAMES.get(part, part), "none" if part == "all" else "area")
    for part, style in _STYLES.items()
]
_PANELS = [
    Lines(
        _SERIES,
        "density",
        words,
        2.9,
        {"split": split},
        "log10_saliency",
        "density",
        "log10 S",
        False,
        null=None,
        finish=lambda axes, rows, _: axes.set_ylim(bottom=0) if rows.height else None,
    )
    for split, words in SPLITS.items()
]


def _shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Dip and coefficient of every part of the items, with the part in words."""
    rule = pl.col("assignment").replace(RULES)
    group = pl.when(pl.col("group").is_not_null()).then(pl.format("{}, {}, ", "group", rule)).otherwise(pl.lit(""))
    found = select(rows, measure=("dip", "bimodality_coefficient"))
    return found.with_columns(who=group + pl.col("truth").replace(TRUTHS))


def _finds_pathway(rows: pl.DataFrame) -> section.Said | None:
    area = find(rows, measure="auc", aspect="within_truth", variant=LOG_ODDS)
    return section.number(area, above(area, section.HALF), section.three_digits, "AUC within truth")


SECTION = section.SectionSpec(
    slug="saliency",
    title="Saliency",
    rows=lambda findings: statistics(findings, "saliency"),
    asks="How much does the verdict lean on attention from answer to key words? Attention times its slope; nothing is "
    "cut.",
    careful="The loss has no slope where the probe is sure; log-odds are free of that. A cut is no small change, a "
    "slope is.",
    answer=section.Answer(
        "Saliency finds the Q-Anchored items better than guessing, within true and within false answers",
        "Saliency does not find the Q-Anchored items within true and within false answers",
        "Whether saliency finds the Q-Anchored items is undecided",
        _finds_pathway,
    ),
    charts=(
        ChartSpec(
            "saliency",
            "saliency from question to answer",
            "Density over items of the saliency from question to answer, by truth and by pathway",
            "Dotted: all items of the panel.",
            _note,
            _drawn,
            lambda _: _PANELS,
            by="variant",
            by_words=lambda loss: LOSSES.get(loss, loss),
            height=1.9,
            gap=0.4,
            legend_columns=5,
            made=lambda findings: bool(_items(findings).filter(pl.col("value") > 0).height),
        ),
    ),
    tables=(
        section.TableSpec(
            "How well it finds the Q-Anchored items (AUC, 0.5 is guessing)",
            (section.Key("measure", "score", {"auc": "saliency", "auc_share": "share"}), _OF, section.RULE),
            (
                section.value("all answers", section.three_digits, aspect="", truth="all"),
                section.p_value(aspect="", truth="all"),
                section.items(aspect="", truth="all"),
                section.value("within truth", section.three_digits, aspect="within_truth"),
                section.p_value(aspect="within_truth"),
                section.value("true answers", section.three_digits, aspect="", truth="true"),
                section.value("false answers", section.three_digits, aspect="", truth="false"),
            ),
            lambda rows: select(rows, measure=("auc", "auc_share")),
        ),
        section.TableSpec(
            "The groups",
            (
                section.Key("measure", "quantity", {"log10_question_to_answer": "log10 question to answer"}),
                _OF,
                section.RULE,
                section.TRUTH,
            ),
            section.both_groups(estimate),
            lambda rows: select(rows, measure=("log10_question_to_answer", "share")),
        ),
        section.TableSpec(
            "One hump or two (of log10 S): a small p of the dip speaks against one, a coefficient above 0.556 for two",
            (_OF, section.Key("who", "items of")),
            (
                section.value("dip", section.three_digits, quantity="dip"),
                section.p_value(quantity="dip"),
                section.value("dip within folds", section.three_digits, quantity="dip_within_folds"),
                section.p_value(quantity="dip_within_folds"),
                section.value("coefficient", section.three_digits, quantity="bimodality_coefficient"),
                section.value(
                    "coefficient within folds", section.three_digits, quantity="bimodality_coefficient_within_folds"
                ),
                section.items(),
            ),
            _shapes,
        ),
        section.TableSpec(
            "How much of the spread of the loss's saliency is the probe's confidence",
            (),
            (section.value("share of the variance", percent), section.items()),
            lambda rows: select(rows, quantity="confidence_variance_share"),
        ),
    ),
)
