"""All evidence of one dataset as result tables: every site and position, every assignment, control and baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import CellSums, Corrected, cell_sums, correct_shift
from anchorscope.evidence.curves import Curve, corrected_curves, cross_fitted_curves, knockout_samples, plain_curves
from anchorscope.evidence.draws import Draws, resampling
from anchorscope.evidence.measured import Measured
from anchorscope.evidence.paired_scores import PROBE_AND_CONFIDENCE, beyond_baselines, beyond_permuted
from anchorscope.evidence.pathways import at_reference, plain_calls
from anchorscope.evidence.probe_scores import (
    Score,
    Scored,
    baseline_score,
    layer_scores,
    nested_score,
    relation_only,
    words_only,
)
from anchorscope.evidence.summary import Row, summarise
from anchorscope.plan.passes import on_device
from anchorscope.progress import Progress
from anchorscope.schema import CURVE_COLUMNS, SAMPLE_SCHEMA, SCORE_COLUMNS, SUMMARY_COLUMNS

Record = dict[str, object]


@dataclass(frozen=True)
class Evidence:
    """What the tables of one dataset are made from."""

    model: str
    dataset: str
    item_ids: Sequence[str]
    questions: Sequence[str]
    answers: Sequence[str]
    relations: Sequence[str | None]
    confidence_mean: Sequence[float | None]
    confidence_min: Sequence[float | None]
    variants: Mapping[str, str]
    """Of every intervention, what its rows are called: the edges that were cut, or how the text was changed."""
    places: Mapping[tuple[str, str], Measured]
    """Log-odds per (site, position)."""
    refits: Mapping[str, NDArray[np.floating]]
    """Out-of-fold log-odds [layer, item] of probes fitted anew under an intervention, at the headline place."""
    headline: tuple[str, str]
    """(site, position) of the chart."""
    weights: NDArray[np.floating]
    """Bootstrap weights, [resample, item]."""
    permuted: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    """AUC [permutation] of probes that learned permuted labels under an intervention, at the headline place."""


@on_device
def evidence_tables(
    evidence: Evidence, progress: Progress, device: str | torch.device = "cpu"
) -> dict[str, pl.DataFrame]:
    """curves, their samples, reference_curves, probe_scores, pathways and summary of one dataset.

    The device does the resampling.
    """
    progress.start("evidence", len(evidence.places) + 1)
    places, scores = [], []
    with resampling(torch.device(device)):
        draws = Draws.of(evidence.weights, device)
        for where in evidence.places:
            places.append(_pathway_tables(evidence, draws, where))
            scores += _place_scores(evidence, draws, where)
            progress.advance(1)
        found, paired = _baselines(evidence, draws)
        scores += found
        reference = _reference_rows(evidence, draws)
    progress.advance(1)
    progress.finish()
    tables = {
        "curves": _frame(row for place in places for row in place.curves).select(CURVE_COLUMNS),
        "curve_samples": _frame(row for place in places for row in place.samples).select(*SAMPLE_SCHEMA),
        "reference_curves": _frame(reference).select(*CURVE_COLUMNS, "shift"),
        "probe_scores": _frame(scores).select(SCORE_COLUMNS),
        "pathways": pl.concat(frame for place in places for frame in place.pathways),
        "summary": _frame([*(row for place in places for row in place.summary), *paired]).select(SUMMARY_COLUMNS),
    }
    return {name: table.rechunk() for name, table in tables.items()}  # as a table is that has travelled


def first_curves(
    model: str,
    dataset: str,
    place: tuple[str, str],
    measured: Measured,
    variants: Mapping[str, str],
    weights: NDArray[np.floating],
) -> pl.DataFrame:
    """The plain and the corrected curves of one place, from whatever interventions there are so far."""
    evidence = Evidence(model, dataset, (), (), (), (), (), (), variants, {place: measured}, {}, place, weights)
    with resampling(torch.device("cpu")):
        draws = Draws.of(weights, "cpu")
        corrected = correct_shift(measured, draws)
        curves = [
            curve
            for intervention in measured.after
            for curve in (
                *plain_curves(measured, intervention, draws),
                *corrected_curves(corrected, intervention, cell_sums(corrected, intervention)),
            )
        ]
    rows = [row for curve in curves for row in _curve_rows(curve, evidence, _place(evidence, place))]
    return _frame(rows).select(CURVE_COLUMNS)


def _frame(rows: Iterable[Record]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), infer_schema_length=None)


@dataclass(frozen=True)
class _PlaceTables:
    """What one site and position adds to the tables."""

    curves: list[Record]
    samples: list[Record]
    summary: list[Record]
    pathways: list[pl.DataFrame]


def _pathway_tables(evidence: Evidence, draws: Draws, where: tuple[str, str]) -> _PlaceTables:
    """Curves, summary and pathways of one site and position; its curves in every draw where it is the chart's."""
    measured = evidence.places[where]
    place = _place(evidence, where)
    corrected = correct_shift(measured, draws)
    sums = {intervention: cell_sums(corrected, intervention) for intervention in measured.after}
    curves = [
        curve
        for intervention in measured.after
        for curve in (
            *plain_curves(measured, intervention, draws),
            *cross_fitted_curves(measured, intervention, draws),
            *corrected_curves(corrected, intervention, sums[intervention]),
        )
    ]
    return _PlaceTables(
        curves=[row for curve in curves for row in _curve_rows(curve, evidence, place)],
        samples=_sample_rows(corrected, sums[KNOCKOUT], draws, place) if where == evidence.headline else [],
        summary=[_summary_row(row, place) for row in summarise(corrected, sums)],
        pathways=_pathway_frames(evidence, corrected, place),
    )


def _sample_rows(corrected: Corrected, sums: CellSums, draws: Draws, place: Record) -> list[Record]:
    """Every knockout curve of the chart, layer by layer, in every draw; NaN where a draw has no item of the group."""
    return [
        {**place, "assignment": assignment, "group": group, "layer": layer, "delta_p": pl.Series(row, dtype=pl.Float32)}
        for (assignment, group), samples in knockout_samples(corrected, sums, draws).items()
        for layer, row in enumerate(samples)
    ]


def _place(evidence: Evidence, where: tuple[str, str] | tuple[None, None]) -> Record:
    site, position = where
    return {"dataset": evidence.dataset, "site": site, "position": position}


def _curve_rows(curve: Curve, evidence: Evidence, place: Record) -> list[Record]:
    common = {
        "model": evidence.model,
        **place,
        "intervention": curve.intervention,
        "variant": evidence.variants[curve.intervention],
        "assignment": curve.assignment,
        "group": curve.group,
        "truth": curve.truth,
        "n": curve.n,
        "n_groups": curve.n_groups,
    }
    layers = zip(curve.delta_p, curve.ci_low, curve.ci_high, strict=True)
    return [
        {**common, "layer": layer, "delta_p": _number(value), "ci_low": _number(low), "ci_high": _number(high)}
        for layer, (value, low, high) in enumerate(layers)
    ]


def _reference_rows(evidence: Evidence, draws: Draws) -> list[Record]:
    """The plain chart with the reference layer a quarter of the depth earlier and later."""
    measured = evidence.places[evidence.headline]
    place = _place(evidence, evidence.headline)
    quarter = max(1, measured.n_layers // 4)
    return [
        {**row, "shift": shift}
        for shift in (-quarter, 0, quarter)
        for curve in plain_curves(measured, KNOCKOUT, draws, move=shift)
        if curve.truth == "all"
        for row in _curve_rows(curve, evidence, place)
    ]


def _place_scores(evidence: Evidence, draws: Draws, where: tuple[str, str]) -> list[Record]:
    measured = evidence.places[where]
    scored = Scored(measured.labels, measured.groups, measured.folds, draws)
    full = measured.probe("full")
    reference, before = measured.reference[full], measured.before[full]
    scores = layer_scores("clean", "transfer", before, scored)
    scores.append(nested_score("clean", "nested", before, reference, measured.folds, scored))
    if any(relation is not None for relation in evidence.relations):
        _, relation = np.unique([name or "" for name in evidence.relations], return_inverse=True)
        strata = measured.folds * (relation.max() + 1) + relation
        within = Scored(measured.labels, measured.groups, strata, draws)
        scores += layer_scores("clean", "within-relation", before, within)
        scores.append(nested_score("clean", "nested-within-relation", before, reference, measured.folds, within))
    for intervention, after in measured.after.items():
        ran = measured.ran[intervention]
        n = len(np.unique(ran))  # an item with several donors is one item
        some = scored.take(ran)
        found = layer_scores(intervention, "transfer", after[full], some)
        found.append(nested_score(intervention, "nested", after[full], reference, measured.folds[ran], some))
        scores += [replace(score, n=n) for score in found]
    if where == evidence.headline:
        for intervention, logits in evidence.refits.items():
            ran = measured.ran[intervention]
            scores += layer_scores(intervention, "refit", logits, scored.take(ran))
            scores.append(
                nested_score(intervention, "nested-refit", logits, reference, measured.folds[ran], scored.take(ran))
            )
    return [_score_row(score, evidence, _place(evidence, where)) for score in scores]


def _baselines(evidence: Evidence, draws: Draws) -> tuple[list[Record], list[Record]]:
    """Scores of what the probe must beat; and rows of the summary: by how much it does, in the same draws."""
    measured = evidence.places[evidence.headline]
    scored = Scored(measured.labels, measured.groups, measured.folds, draws)
    simpler: dict[str, NDArray[np.floating]] = {}
    if any(relation is not None for relation in evidence.relations):
        simpler["relation-only"] = relation_only(evidence.relations, measured.labels, measured.folds)
    simpler["words"] = words_only(evidence.questions, evidence.answers, measured.labels, measured.folds)
    for kind, confidence in (
        ("confidence-mean", evidence.confidence_mean),
        ("confidence-min", evidence.confidence_min),
    ):
        if all(value is not None for value in confidence):  # known of every answer, or no baseline
            simpler[kind] = np.array(confidence, dtype=float)
    full = measured.probe("full")
    nested = at_reference(measured.before[full], measured.reference[full], measured.folds)
    joined, rows = beyond_baselines(nested, simpler, scored)
    for intervention, null in evidence.permuted.items():
        again = at_reference(evidence.refits[intervention], measured.reference[full], measured.folds)
        rows += beyond_permuted(intervention, again, null, scored)
    scores = [baseline_score(kind, values, scored) for kind, values in (simpler | joined).items()]
    nowhere, here = _place(evidence, (None, None)), _place(evidence, evidence.headline)
    return [_score_row(score, evidence, here if score.kind == PROBE_AND_CONFIDENCE else nowhere) for score in scores], [
        _summary_row(row, here) for row in rows
    ]


def _pathway_frames(evidence: Evidence, corrected: Corrected, place: Record) -> list[pl.DataFrame]:
    """The pathway of every item, one frame per assignment and assigning probe."""
    measured = corrected.measured
    ways = [
        ("plain", "full", plain_calls(measured).names()),
        ("cross-fitted", "a", plain_calls(measured, "a").names()),
        ("cross-fitted", "b", plain_calls(measured, "b").names()),
        ("corrected", "full", corrected.sample().names()),
    ]
    return [
        pl.DataFrame(
            {
                "dataset": pl.repeat(evidence.dataset, len(names), eager=True),
                "item_id": evidence.item_ids,
                "site": place["site"],
                "position": place["position"],
                "assignment": assignment,
                "probe": probe,
                "reference_layer": measured.reference[measured.probe(probe)][measured.folds],
                "pathway": names,
            }
        )
        for assignment, probe, names in ways
    ]


def _score_row(score: Score, evidence: Evidence, place: Record) -> Record:
    numbers = {name: _number(value) if isinstance(value, float) else value for name, value in asdict(score).items()}
    return {"model": evidence.model, **place, **numbers}


def _summary_row(row: Row, place: Record) -> Record:
    estimate = row.estimate
    return {
        **place,
        "assignment": row.assignment,
        "intervention": row.intervention,
        "group": row.group,
        "quantity": row.quantity,
        "value": _number(estimate.value),
        "ci_low": _number(estimate.ci_low),
        "ci_high": _number(estimate.ci_high),
        "n": estimate.n,
        "method": estimate.method,
    }


def _number(value: float) -> float | None:
    """A missing value is null in the tables, never NaN."""
    return float(value) if np.isfinite(value) else None
