"""Self-awareness: can a linear probe tell from clean states which pathway an item will take?

The probe uses the folds of the truth probes. Where pathways correlate with the label, telling true from false gives a
high AUC; so the AUC among answers of the same label decides, beside the label itself and the truth probe's margin.
`auc_below` reads the layer just below the lowest one that assigned any pathway. For the null, pathways are permuted
among items of one fold and label, and probes fitted again; where items of a group go together, it is too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from anchorscope.errors import UserError
from anchorscope.evidence.delta_p import GROUPS, at_reference
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    ItemValues,
    Statistic,
)
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    Bools,
    Floats,
    Indices,
    auc_samples,
    comparable,
    estimate_of,
    too_few,
)
from anchorscope.report.findings import Findings, find, row_estimate, select, statistics
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.verdicts import above
from anchorscope.report.wording import NOTHING, count, estimate, p_value_cell
from anchorscope.stats.auc import auc

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.probes.crossfit import Splits

PERMUTATIONS = 99
"""A p-value then goes down to one in a hundred."""
PERMUTED = "within folds and truth labels"
"""Among which items pathways are permuted."""


@dataclass(frozen=True)
class _Pathways:
    """The used items that the truth probe classifies correctly."""

    items: Indices
    asks: Bools
    """Whether an item is Q-Anchored."""
    reference: Indices
    splits: Splits
    of_one_truth: Indices
    """Items of one fold and one truth label."""
    draws: Draws

    @property
    def below(self) -> int | None:
        """The layer just below all that assigned; None if the first one did."""
        return int(self.reference.min()) - 1 if self.reference.min() > 0 else None


def run(inputs: ExperimentInputs) -> Found:
    """Probes for the pathway at every layer, their out-of-fold scores, and the null."""
    import torch

    from anchorscope.evidence.draws import resampling
    from anchorscope.probes.crossfit import (
        Scorer,
        fit_probes,
        make_splits,
        score_states,
    )

    calls, labels, folds = inputs.calls, inputs.measured.labels, inputs.splits.folds
    numbers = {group: int(calls.members(group).sum()) for group in GROUPS}
    few = tuple(
        too_few(number, group) for group, number in numbers.items() if number < FEW
    )
    if few:
        return Found(missing=few)
    items = np.flatnonzero(calls.correct)
    asks, strata = (
        calls.flipped[items],
        [str(stratum) for stratum in inputs.splits.strata[items]],
    )
    groups, seed = inputs.measured.groups[items], inputs.setting.seed
    try:  # pathways are even within relation and truth
        splits = make_splits(asks, groups, folds[items], seed, relations=strata)
    except UserError:
        counted = " and ".join(f"{number} {group}" for group, number in numbers.items())
        return Found(
            missing=(
                f"{counted} items are too few to be on every side of {int(folds.max()) + 1} folds",
            )
        )
    of_one_truth = 2 * folds[items] + labels[items]
    pathways = _Pathways(
        items,
        asks,
        inputs.reference[items],
        splits,
        of_one_truth,
        inputs.draws.take(items),
    )
    device, states = torch.device(inputs.device), inputs.states()[:, items]
    (probes,) = fit_probes(states[None], splits, ["pathway"], device, inputs.progress)
    scorer = Scorer([[probes]], splits.folds, device)
    scores = score_states(scorer, states[None, None])[:, 0, 0].T  # [layer, item]
    pairs = comparable(asks, of_one_truth)
    missing = [
        f"only {n} {group} items share fold and truth label with items of the other pathway, {FEW} needed "
        f"(auc_within_truth)"
        for group, mine in zip(GROUPS, (asks, ~asks), strict=True)
        if (n := int((pairs & mine).sum())) < FEW
    ]
    with resampling(device):
        null = (
            None
            if missing
            else _null_scores(inputs, pathways, states, probes.strength.T)
        )
        rows = [
            *_probe_rows(pathways, scores, null),
            *_baseline_rows(inputs, pathways, within_truth=not missing),
        ]
    values: tuple[ItemValues, ...] = ()
    if pathways.below is None:
        missing.append(
            "the first layer assigned pathways in some fold, so that no layer lies below (auc_below)"
        )
    else:
        values = (ItemValues("pathway_log_odds", items, scores[pathways.below]),)
    return Found(tuple(rows), values, tuple(missing))


def _null_scores(
    inputs: ExperimentInputs, pathways: _Pathways, states: Tensor, strength: Floats
) -> tuple[Bools, dict[int, Floats]]:
    """Permuted pathways [permutation, item], and the scores of probes fitted to them, by layer.

    Only the layers that assigned and the one below them are fitted again.
    """
    import torch

    from anchorscope.probes.crossfit import null_scores, permute_within_strata

    layers = sorted(
        {*pathways.reference.tolist(), max(0, int(pathways.reference.min()) - 1)}
    )
    inputs.progress.start("permuted pathways", PERMUTATIONS * len(layers))
    rng = inputs.rng(f"self-awareness {PERMUTED}")
    labels = permute_within_strata(
        pathways.asks, pathways.of_one_truth, PERMUTATIONS, rng
    )
    device = torch.device(inputs.device)
    scores = null_scores(
        states[layers],
        pathways.splits,
        strength[layers],
        labels,
        device,
        inputs.progress,
    )
    inputs.progress.finish()
    return labels, {layer: scores[:, index] for index, layer in enumerate(layers)}


def _probe_rows(
    pathways: _Pathways, scores: Floats, null: tuple[Bools, dict[int, Floats]] | None
) -> list[Statistic]:
    """AUC at every layer, at the layer below and at each item's own l*; within truth where comparable."""
    n = len(pathways.items)
    readings: list[tuple[str, int | None, Indices]] = [
        ("auc", layer, np.full(n, layer)) for layer in range(len(scores))
    ]
    if pathways.below is not None:
        readings.append(("auc_below", pathways.below, np.full(n, pathways.below)))
    same = len(np.unique(pathways.reference)) == 1
    readings.append(
        (
            "auc_at_reference",
            int(pathways.reference[0]) if same else None,
            pathways.reference,
        )
    )
    rows = []
    for name, layer, layers in readings:
        own = scores[layers, np.arange(n)]
        rows.append(_row(name, own, pathways, pathways.splits.folds, layer))
        if null is not None:
            areas = None if name == "auc" else _null_areas(pathways, layers, *null)
            rows.append(
                _row(
                    f"{name}_within_truth",
                    own,
                    pathways,
                    pathways.of_one_truth,
                    layer,
                    areas,
                )
            )
    return rows


def _null_areas(
    pathways: _Pathways, layers: Indices, labels: Bools, by_layer: dict[int, Floats]
) -> Floats | None:
    """AUC under each permutation; None where none is defined."""
    scores = np.stack(
        [by_layer[layer][:, item] for item, layer in enumerate(layers.tolist())], axis=1
    )
    areas = auc(scores, labels, pathways.of_one_truth)
    return areas[np.isfinite(areas)] if np.isfinite(areas).any() else None


def _row(
    quantity: str,
    scores: Floats,
    pathways: _Pathways,
    strata: Indices,
    layer: int | None = None,
    null: Floats | None = None,
    method: str = f"{METHOD}, probes as fitted",
) -> Statistic:
    from anchorscope.probes.crossfit import share_at_least

    if null is not None:
        method += f"; p by {len(null)} permutations {PERMUTED}, items of a group apart"
    samples = auc_samples(scores, pathways.asks, strata, pathways.draws)
    estimate = estimate_of(
        samples, int(comparable(pathways.asks, strata).sum()), method
    )
    p = None if null is None else share_at_least(estimate.value, null)
    return Statistic(quantity, estimate, probe_layer=layer, p_value=p)


def _baseline_rows(
    inputs: ExperimentInputs, pathways: _Pathways, within_truth: bool
) -> list[Statistic]:
    """How well the label and the truth probe's margin predict the pathway, without any pathway probe."""
    measured, folds = inputs.measured, pathways.splits.folds
    clean = at_reference(measured.before, measured.reference, measured.folds)
    truth = clean[pathways.items]
    labels = measured.labels[pathways.items].astype(float)
    wanted = [("auc_truth_label", labels, folds)]
    if within_truth:  # among all items the margin would be compared across labels, whose cuts move different ways
        wanted.append(
            ("auc_truth_margin_within_truth", -np.abs(truth), pathways.of_one_truth)
        )
    return [
        _row(quantity, scores, pathways, strata, method=METHOD)
        for quantity, scores, strata in wanted
    ]


EXPERIMENT = Experiment(
    "self-awareness",
    "whether a linear probe can tell the pathway from clean states, layer by layer",
    run,
)

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "auc": (
        "probe on clean states",
        {"color": "#0072b2", "marker": "o", "markersize": 3.4, "markeredgewidth": 0.0},
    ),
    "auc_within_truth": (
        "the same, within true and within false answers",
        {
            "color": "#d55e00",
            "linestyle": (0, (5.0, 1.6)),
            "marker": "s",
            "markersize": 3.4,
            "markeredgewidth": 0.0,
        },
    ),
}
_LABEL_ALONE = {"color": "#555555", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.3}
SCORES = {
    "auc_at_reference": "probe at l*",
    "auc_below": "probe below all l*",
    "auc": "probe, best layer",
    "auc_truth_label": "the label",
    "auc_truth_margin": "the truth probe's margin",
}
"""What predicts the pathway; each also within truth, where that is known."""


def _figure_rows(findings: Findings) -> pl.DataFrame:
    rows = statistics(findings, "self-awareness", *LINES, "auc_truth_label")
    return rows.select(section.FIGURE_COLUMNS).sort(
        "dataset", "quantity", "probe_layer"
    )


def _panels(data: pl.DataFrame) -> list[Lines]:
    every = max(1, min(4, data["probe_layer"].drop_nulls().n_unique() // 6))
    series = [
        *(
            Series({"quantity": name}, style | {"markevery": every}, words)
            for name, (words, style) in LINES.items()
        ),
        Series(
            {"quantity": "auc_truth_label"}, _LABEL_ALONE, "the label alone", "level"
        ),
    ]
    return [Lines(series, "AUC", "", 6.2, x="probe_layer", null=section.HALF)]


def _best(aspect: str, rows: pl.DataFrame) -> tuple[str, str, str]:
    """AUC, p and items of the best row: of a quantity per layer the best layer, of any other the only one."""
    ranked = select(rows, aspect=aspect).sort("value", descending=True)
    if not ranked.height:
        return NOTHING, NOTHING, NOTHING
    row = ranked.row(0, named=True)
    where = f" at layer {row['probe_layer']}" if row["quantity"] in LINES else ""
    return (
        estimate(row_estimate(row), 3) + where,
        p_value_cell(row["p_value"]),
        count(row["n"]),
    )


def _beyond_label(rows: pl.DataFrame) -> section.Said | None:
    area = find(rows, measure="auc_at_reference", aspect="within_truth")
    return section.number(
        area, above(area, section.HALF), section.three_digits, "AUC within truth at l*"
    )


SECTION = section.SectionSpec(
    slug="self-awareness",
    title="Self-awareness",
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
            "AUC of the pathway per layer, and within truth",
            "Ticks: the reference layers, where the pathway was assigned.",
            "AUC of telling Q-Anchored from A-Anchored items, out of fold; 0.5 is guessing. Bands: 95 % intervals.",
            _figure_rows,
            _panels,
            height=2.8,
            share="y",
            side_by_side=2,
            legend_columns=2,
            marks_reference=True,
            gap=0.42,
            # Level lines alone are no figure.
            made=lambda findings: bool(
                statistics(findings, "self-awareness", "auc").height
            ),
        ),
    ),
    tables=(
        section.TableSpec(
            "AUC of the pathway; p is the share of permutations that reach it",
            (section.Key("measure", "what predicts", SCORES),),
            (
                ("AUC", lambda rows: _best("", rows)[0]),
                (section.ITEMS, lambda rows: _best("", rows)[2]),
                ("AUC within truth", lambda rows: _best("within_truth", rows)[0]),
                ("p", lambda rows: _best("within_truth", rows)[1]),
                (section.ITEMS, lambda rows: _best("within_truth", rows)[2]),
            ),
            lambda rows: select(
                rows, measure=tuple(SCORES), aspect=("", "within_truth")
            ),
        ),
    ),
)
