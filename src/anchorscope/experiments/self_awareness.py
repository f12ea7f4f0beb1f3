"""Self-awareness: can a linear probe tell from clean states which pathway an item will take?

The probe reads states of a run in which nothing was cut, learns on the same folds as the truth probes, and only ever
scores items whose group it never saw. Where pathways go with the label, telling true from false is enough for a high
AUC; so the AUC among answers of the same truth label is the number that decides, and beside it stand the label itself,
the truth probe, and its margin (an item near the line flips easily). `auc_below` reads the layer just below the lowest
one that assigned any pathway: nothing that it sees took part in the assignment.

Intervals hold for the probes as they were fitted. Another sample would also give other probes: where there is nothing
to know, AUCs spread more widely than the intervals say, so whether anything is known is for the permutations to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from numpy.typing import NDArray

from anchorscope.errors import UserError
from anchorscope.evidence.pathways import GROUPS, Calls, at_reference
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.statistics import FEW, METHOD, Bools, Floats, comparable, estimate_of, in_groups_of
from anchorscope.report.assignment_rules import rule_title
from anchorscope.report.charts.line_chart import reference_handle
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import find, present, row_estimate, rules_in, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import NOTHING, count, estimate, p_value_cell
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import Estimate, percentile_interval

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.probes.crossfit import Splits

PERMUTATIONS = 99
"""Of each kind: a p-value then goes down to one in a hundred."""
PERMUTED_LAYERS = 6
"""At most so many layers are fitted anew: those that matter most for the question."""
FREELY, WITHIN_TRUTH = "within folds", "within folds and truth labels"
APART = "items of a group apart"
"""Permutations deal out pathways item by item; where those of a group go together, the null is too narrow."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class _Task:
    """The items of both pathways under one assignment, and who learns from whom."""

    assignment: str
    items: Indices
    """Indices into the used items: those that the truth probe calls right."""
    asks: Bools
    """Whether an item is Q-Anchored."""
    truth: Bools
    reference: Indices
    """The layer that assigned each item."""
    splits: Splits
    states: Tensor
    """[layer, item, d_model]."""
    draws: Draws

    @property
    def folds(self) -> Indices:
        return self.splits.folds

    @property
    def of_one_truth(self) -> Indices:
        """Items of one fold and one truth label."""
        return self.folds * 2 + self.truth

    @property
    def below(self) -> int | None:
        """The layer just below all that assigned; None where the first one did."""
        lowest = int(self.reference.min())
        return lowest - 1 if lowest > 0 else None


@dataclass(frozen=True)
class _Reading:
    """Scores of the pathway probe at one layer, or at each item's own."""

    name: str
    layer: int | None
    scores: Floats
    layers: Indices
    """The layer that each item's score is read at."""


@dataclass(frozen=True)
class _Null:
    """One way to deal out pathways, and what probes make of it."""

    variant: str
    layers: Sequence[int]
    labels: Bools
    """[permutation, item]."""
    scores: Floats
    """[permutation, place in `layers`, item]."""

    def areas(self, reading: _Reading, strata: Indices) -> Floats | None:
        """AUC under each permutation; None where a layer of the reading was not fitted anew, or none is defined."""
        if not np.isin(reading.layers, self.layers).all():
            return None
        places = np.array([self.layers.index(layer) for layer in reading.layers])
        found = auc(self.scores[:, places, np.arange(len(places))], self.labels, strata)
        return found if np.isfinite(found).any() else None


def run(inputs: ExperimentInputs) -> Found:
    """All assignments, one after the other."""
    parts = [_of_assignment(inputs, assignment, calls) for assignment, calls in inputs.calls.items()]
    return Found(
        tuple(row for part in parts for row in part.statistics),
        tuple(row for part in parts for row in part.values),
        tuple(row for part in parts for row in part.missing),
    )


def _of_assignment(inputs: ExperimentInputs, assignment: str, calls: Calls) -> Found:
    from anchorscope.probes.crossfit import make_splits

    numbers = {group: int(calls.members(group).sum()) for group in GROUPS}
    few = [
        f"only {number} items are {group} under the {assignment} rule, {FEW} needed"
        for group, number in numbers.items()
        if number < FEW
    ]
    if few:
        return Found(missing=tuple(few))
    items = np.flatnonzero(calls.correct)
    asks, folds = calls.flipped[items], inputs.splits.folds[items]
    known = [str(stratum) for stratum in inputs.splits.strata[items]]  # pathways are even within relation and truth
    try:
        splits = make_splits(
            asks, inputs.measured.groups[items], folds, inputs.setting.seed, ("full",), relations=known
        )
    except UserError:
        counted = " and ".join(f"{number} {group}" for group, number in numbers.items())
        return Found(
            missing=(
                f"under the {assignment} rule, {counted} items are too few to be on every side of "
                f"{int(inputs.splits.folds.max()) + 1} folds",
            )
        )
    task = _Task(
        assignment,
        items,
        asks,
        inputs.measured.labels[items],
        inputs.reference[items],
        splits,
        inputs.states()[:, items],
        inputs.draws.take(items),
    )
    return _measured(inputs, task)


def _measured(inputs: ExperimentInputs, task: _Task) -> Found:
    import torch

    from anchorscope.evidence.draws import resampling
    from anchorscope.probes.crossfit import Scorer, fit_probes, score_states

    device = torch.device(inputs.device)
    (probes,) = fit_probes(task.states[None], task.splits, [f"pathway {task.assignment}"], device, inputs.progress)
    scorer = Scorer([[probes]], task.folds, device)
    scores = score_states(scorer, task.states[None, None])[:, 0, 0, 0].T  # [layer, item]
    nulls = _nulls(inputs, task, probes.strength[0].T)
    readings = _readings(task, scores)
    with resampling(device):
        statistics = _auc_rows(task, readings, "", task.folds, nulls[FREELY], list(nulls.values()))
        missing = _few_within_truth(task)
        if not missing:
            within = [nulls[WITHIN_TRUTH]]
            statistics += _auc_rows(task, readings, "_within_truth", task.of_one_truth, within[0], within)
        statistics += _baseline_rows(inputs, task, within_truth=not missing)
    values = []
    if task.below is None:
        missing.append(
            f"under the {task.assignment} rule the first layer assigned pathways in some fold, so that "
            f"no layer lies below (auc_below, pathway_log_odds)"
        )
    else:
        values.append(ItemValues("pathway_log_odds", task.items, scores[task.below], task.assignment))
    return Found(tuple(statistics), tuple(values), tuple(missing))


def _readings(task: _Task, scores: Floats) -> list[_Reading]:
    """Every layer, the layer below, and each item's own reference layer."""
    n = len(task.items)
    found = [_Reading("auc", layer, row, np.full(n, layer)) for layer, row in enumerate(scores)]
    if task.below is not None:
        found.append(_Reading("auc_below", task.below, scores[task.below], np.full(n, task.below)))
    own = scores[task.reference, np.arange(n)]
    same = len(np.unique(task.reference)) == 1
    found.append(_Reading("auc_at_reference", int(task.reference[0]) if same else None, own, task.reference))
    return found


def _permuted_layers(task: _Task) -> list[int]:
    """Those whose AUC is tested: below, the reference layers from the most common one on, the last and the first."""
    common = [layer for layer, _ in Counter(task.reference.tolist()).most_common()]
    below = [] if task.below is None else [task.below]
    return list(dict.fromkeys([*below, *common, len(task.states) - 1, 0]))[:PERMUTED_LAYERS]


def _nulls(inputs: ExperimentInputs, task: _Task, strength: Floats) -> dict[str, _Null]:
    """Both ways to deal out pathways; `strength` is [layer, fold]."""
    import torch

    from anchorscope.probes.crossfit import dealt_anew, null_scores

    layers = _permuted_layers(task)
    inputs.progress.start(f"permuted pathways {task.assignment}", 2 * PERMUTATIONS * len(layers))
    found = {}
    for variant, strata in ((FREELY, task.folds), (WITHIN_TRUTH, task.of_one_truth)):
        rng = inputs.rng(f"self-awareness {task.assignment} {variant}")
        labels = dealt_anew(task.asks, strata, PERMUTATIONS, rng)
        scores = null_scores(
            task.states[layers], task.splits, strength[layers], labels, torch.device(inputs.device), inputs.progress
        )
        found[variant] = _Null(variant, layers, labels, scores)
    inputs.progress.finish()
    return found


def _auc_rows(
    task: _Task, readings: Sequence[_Reading], suffix: str, strata: Indices, tested: _Null, shown: Sequence[_Null]
) -> list[Statistic]:
    """AUC of every reading, tested against one null, and what some nulls give."""
    from anchorscope.evidence.areas import areas
    from anchorscope.probes.crossfit import share_at_least

    samples = areas(np.stack([one.scores for one in readings]), task.asks, strata, task.draws)
    n, rows = comparable(task.asks, strata).sum(), []
    for reading, drawn in zip(readings, samples, strict=True):
        null = tested.areas(reading, strata)
        method = in_groups_of(task.assignment, f"{METHOD}, probes as fitted")
        if null is not None:
            method += f"; p by {np.isfinite(null).sum()} permutations {tested.variant}, {APART}"
        estimate = estimate_of(drawn, int(n), method)
        p_value = None if null is None else share_at_least(estimate.value, null)
        rows.append(
            Statistic(
                reading.name + suffix, estimate, assignment=task.assignment, probe_layer=reading.layer, p_value=p_value
            )
        )
        for other in shown if reading.name != "auc_below" else ():  # the layer below stands there already
            found = null if other is tested else other.areas(reading, strata)
            if found is not None:
                rows.append(
                    Statistic(
                        f"{reading.name}{suffix}_permuted",
                        _range_of(found, int(n), other.variant, task),
                        other.variant,
                        assignment=task.assignment,
                        probe_layer=reading.layer,
                    )
                )
    return rows


def _range_of(null: Floats, n: int, variant: str, task: _Task) -> Estimate:
    defined = null[np.isfinite(null)]
    low, high = percentile_interval(defined)
    method = (
        f"mean and 95 % range over {len(defined)} permutations {variant}, {APART}; probes fitted anew at the same "
        f"strength"
    )
    return Estimate(float(defined.mean()), float(low), float(high), n, in_groups_of(task.assignment, method))


def _baseline_rows(inputs: ExperimentInputs, task: _Task, within_truth: bool) -> list[Statistic]:
    """What the label, the truth probe and its margin tell of the pathway, without any pathway probe."""
    from anchorscope.evidence.areas import areas

    place = inputs.measured
    index = place.probe("full")
    truth = at_reference(place.before[index], place.reference[index], place.folds)[task.items]
    wanted = [("auc_truth_label", task.truth.astype(float), task.folds), ("auc_truth_probe", truth, task.folds)]
    if within_truth:  # among all items the margin would be compared across labels, whose cuts move different ways
        wanted.append(("auc_truth_margin_within_truth", -np.abs(truth), task.of_one_truth))
    return [
        Statistic(
            quantity,
            estimate_of(
                areas(scores[None], task.asks, strata, task.draws)[0],
                int(comparable(task.asks, strata).sum()),
                in_groups_of(task.assignment),
            ),
            assignment=task.assignment,
        )
        for quantity, scores, strata in wanted
    ]


def _few_within_truth(task: _Task) -> list[str]:
    """Why pathways cannot be compared among answers of the same truth label, if so."""
    pairs = comparable(task.asks, task.of_one_truth)
    numbers = zip(GROUPS, (int((pairs & task.asks).sum()), int((pairs & ~task.asks).sum())), strict=True)
    return [
        f"under the {task.assignment} rule only {number} {group} items share fold and truth label with "
        f"items of the other pathway, {FEW} needed (auc_within_truth)"
        for group, number in numbers
        if number < FEW
    ]


EXPERIMENT = Experiment(
    "self-awareness", "whether a linear probe can tell the pathway from clean states, layer by layer", run
)


LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "auc": ("probe on clean states", {"color": "#0072b2", "marker": "o", "markersize": 3.4, "markeredgewidth": 0.0}),
    "auc_within_truth": (
        "the same, within true and within false answers",
        {"color": "#d55e00", "linestyle": (0, (5.0, 1.6)), "marker": "s", "markersize": 3.4, "markeredgewidth": 0.0},
    ),
}
LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "auc_truth_label": ("the label alone", {"color": "#555555", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.3}),
    "auc_truth_probe": (
        "the truth probe at l* alone",
        {"color": "#009e73", "linestyle": (0, (5.0, 1.6, 1.0, 1.6)), "linewidth": 1.3},
    ),
}
PERMUTED = "auc_permuted"
SCORES = {
    "auc_at_reference": "probe at l*",
    "auc_below": "probe below all l*",
    "auc": "probe, best layer",
    "auc_truth_label": "the label",
    "auc_truth_probe": "the truth probe",
    "auc_truth_margin": "the truth probe's margin",
}
"""What predicts the pathway; each also within truth, where that is known."""
_COLUMNS = (
    "dataset",
    "assignment",
    "quantity",
    "variant",
    "probe_layer",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "p_value",
    "method",
    "x",
)
_BESIDE = 0.15  # layers between permutations of two kinds


def _drawn(findings: Findings) -> pl.DataFrame:
    """Both lines, the level lines and the permutations, of which each kind stands a little aside."""
    rows = statistics(findings, "self-awareness", *LINES, *LEVELS, PERMUTED)
    permuted = pl.col("quantity") == PERMUTED
    unnamed = permuted & pl.col("variant").is_null()
    named = pl.when(unnamed).then(pl.lit("pathways")).otherwise(pl.col("variant"))
    rows = select(rows, truth="all").with_columns(variant=named)
    kinds = _kinds(rows)
    aside = {kind: _BESIDE * (2 * place - len(kinds) + 1) for place, kind in enumerate(kinds)}
    moved = (
        pl.when(permuted)
        .then(pl.col("variant").replace_strict(aside, default=0.0, return_dtype=pl.Float64))
        .otherwise(0.0)
    )
    rows = rows.with_columns(x=pl.col("probe_layer") + moved).select(_COLUMNS)
    return rows.sort("dataset", "assignment", "quantity", "variant", "probe_layer")


def _kinds(rows: pl.DataFrame) -> list[str]:
    """The ways to permute."""
    return present(select(rows, quantity=PERMUTED), "variant")


def _panels(data: pl.DataFrame) -> list[Lines]:
    layers = max(1, min(4, data["probe_layer"].drop_nulls().n_unique() // 6))
    grey = {"color": CONTROL_GREY, "markersize": 4.2, "linestyle": "none", "markeredgewidth": 0.0, "zorder": 2.6}
    series = [
        *(Series({"quantity": name}, style | {"markevery": layers}, words) for name, (words, style) in LINES.items()),
        *(
            Series({"quantity": name, "probe_layer": None}, style, words, "level")
            for name, (words, style) in LEVELS.items()
        ),
        *(
            Series(
                {"quantity": PERMUTED, "variant": kind},
                grey | {"marker": "vD^<>"[place % 5]},
                f"permuted {kind}",
                "bars",
            )
            for place, kind in enumerate(_kinds(data))
        ),
    ]
    rules = rules_in(data)
    return [
        Lines(
            series,
            "AUC",
            rule_title(rule),
            4.35 if len(rules) > 1 else 6.2,
            {"assignment": rule},
            "x",
            null=0.5,
            marks_reference=True,
        )
        for rule in rules
    ]


def _reference(data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
    return [reference_handle()]


def _best(aspect: str, say: Callable[[dict[str, Any]], str]) -> Callable[[pl.DataFrame], str]:
    """A cell from the best row: of a quantity per layer the best layer, of any other the only one."""

    def cell(rows: pl.DataFrame) -> str:
        found = select(rows, aspect=aspect).sort("value", descending=True)
        return say(found.row(0, named=True)) if found.height else NOTHING

    return cell


def _area(row: dict[str, Any]) -> str:
    where = f" at layer {row['probe_layer']}" if row["quantity"] in LINES else ""
    return estimate(row_estimate(row), 3) + where


def _scores(aspect: str, head: str) -> tuple[tuple[str, Callable[[pl.DataFrame], str]], ...]:
    return (
        (head, _best(aspect, _area)),
        ("p", _best(aspect, lambda row: p_value_cell(row["p_value"]))),
        ("items", _best(aspect, lambda row: count(row["n"]))),
    )


def _beyond_label(rows: pl.DataFrame) -> section.Said | None:
    area = find(rows, measure="auc_at_reference", aspect="within_truth")
    return section.number(area, above(area, section.HALF), section.three_digits, "AUC within truth at l*")


SECTION = section.SectionSpec(
    slug="self-awareness",
    title="Self-awareness",
    rows=lambda findings: select(statistics(findings, "self-awareness"), truth="all"),
    asks="Does the untouched state already tell which pathway an answer takes?",
    careful="A probe that knows the truth knows a pathway that follows the label: read the AUC within true and within "
    "false answers.",
    answer=section.Answer(
        "Clean states tell the pathway beyond the label",
        "Clean states do not tell the pathway beyond the label",
        "Whether clean states tell the pathway beyond the label is undecided",
        _beyond_label,
    ),
    charts=(
        ChartSpec(
            "self_awareness",
            "the pathway, read from clean states",
            "AUC of the pathway per layer, within truth, and with permuted pathways",
            "Ticks: the reference layers, where the pathway was assigned.",
            "AUC of telling Q-Anchored from A-Anchored items, out of fold; 0.5 is guessing. Bands: 95 % intervals. "
            "Grey bars: mean and 95 % range with the pathways permuted and the probe fitted again.",
            _drawn,
            _panels,
            height=2.8,
            share="y",
            marks_reference=True,
            gap=0.42,
            more_handles=_reference,
            # Level lines alone are no figure.
            made=lambda findings: bool(statistics(findings, "self-awareness", "auc").height),
        ),
    ),
    tables=(
        section.TableSpec(
            "AUC of the pathway; p is the share of permutations that reach it",
            (section.RULE, section.Key("measure", "what predicts", SCORES)),
            (*_scores("", "AUC"), *_scores("within_truth", "AUC within truth")),
            lambda rows: select(rows, measure=tuple(SCORES), aspect=("", "within_truth")),
        ),
    ),
)
