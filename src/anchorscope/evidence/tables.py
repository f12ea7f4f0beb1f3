"""All evidence of one dataset as result tables: every site and position, every assignment, control and baseline.

The summary holds the few numbers that say whether to believe a chart: shares of the groups and of true answers in
them, what permuting the scores would give, agreement before and after, how far the cut moves the probe as a whole,
what the controls do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.schema import (
    CURVE_SCHEMA,
    SAMPLE_SCHEMA,
    SCORE_SCHEMA,
    SUMMARY_SCHEMA,
)
from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import (
    CellSums,
    Corrected,
    Curve,
    cell_sums,
    correct_shift,
    corrected_curves,
    cross_fitted_curves,
    plain_curves,
    reference_samples,
)
from anchorscope.evidence.draws import Draws, estimate, ratio, resampling, total
from anchorscope.evidence.measured import (
    A_ANCHORED,
    GROUPS,
    Q_ANCHORED,
    Measured,
    assign,
    at_reference,
    delta_p,
    noise_at_reference,
    permuted_flip_share,
    plain_calls,
    probability,
)
from anchorscope.evidence.scores import (
    PROBE_AND_CONFIDENCE,
    Score,
    Scored,
    SummaryRow,
    baseline_score,
    beyond_baselines,
    beyond_permuted,
    layer_scores,
    nested_score,
    relation_only,
    words_only,
)
from anchorscope.progress import Progress
from anchorscope.stats.estimate import Estimate, kappa

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


def summarise(corrected: Corrected, sums: Mapping[str, CellSums]) -> list[SummaryRow]:
    """All quantities of one dataset, site and position; `sums` of the corrected cells per intervention."""
    measured = corrected.measured
    rows = [
        *_assignment_rows(corrected, "plain"),
        *_assignment_rows(corrected, "corrected"),
    ]
    for intervention in measured.after:
        rows += _plain_rows(measured, corrected.draws, intervention)
        rows += _cross_fitted_rows(measured, corrected.draws, intervention)
        rows += _corrected_rows(corrected, intervention, sums[intervention])
    n_noise, method = (
        len(measured.ran.get("none", [])),
        "99th percentile of the no-op control",
    )
    noise = Estimate(
        noise_at_reference(measured, "full"), np.nan, np.nan, n_noise, method
    )
    return [*rows, SummaryRow("noise_log_odds_p99", noise, intervention="none")]


def _row(
    quantity: str,
    samples: Tensor,
    n: int,
    assignment: str | None,
    intervention: str,
    group: str | None = None,
) -> SummaryRow:
    return SummaryRow(
        quantity,
        estimate(samples, n, "bootstrap over groups"),
        assignment,
        intervention,
        group,
    )


def _assignment_rows(corrected: Corrected, assignment: str) -> list[SummaryRow]:
    """How large the groups are and how many of their answers are true, and what chance would give."""
    measured, draws = corrected.measured, corrected.draws
    before, after = measured.at_reference(KNOCKOUT)
    if assignment == "plain":
        calls = plain_calls(measured)
        called, flipped = (
            draws.to_device(call)[:, None] for call in (after > 0, calls.flipped)
        )
    else:
        calls, called, flipped = corrected.sample(), corrected.called, corrected.flipped
        index, folds = (
            measured.reference[measured.probe("full")][measured.folds],
            measured.folds,
        )
        after = after - corrected.knockout[..., 0].cpu().numpy()[index, folds]
    labels = measured.labels
    right, wrong = (
        _numbers(flipped, calls.correct & (labels == truth), draws)
        for truth in (True, False)
    )
    n_correct, rows = int(calls.correct.sum()), []
    for index, group in enumerate(GROUPS):
        size, n = right[index] + wrong[index], int(calls.members(group).sum())
        share = ratio(size, right.sum(dim=0) + wrong.sum(dim=0))
        rows.append(_row("group_share", share, n_correct, assignment, KNOCKOUT, group))
        rows.append(
            _row(
                "true_share", ratio(right[index], size), n, assignment, KNOCKOUT, group
            )
        )
    null = permuted_flip_share(before, after, labels, measured.folds)
    exact = Estimate(
        null,
        np.nan,
        np.nan,
        n_correct,
        "exact expectation over permutations within folds",
    )
    rows.append(SummaryRow("null_share", exact, assignment, KNOCKOUT, Q_ANCHORED))
    both = torch.stack(
        [_numbers(called, before > 0, draws), _numbers(called, before <= 0, draws)]
    )
    agreement = torch.from_numpy(kappa(both.cpu().numpy()))
    return [*rows, _row("kappa", agreement, len(before), assignment, KNOCKOUT)]


def _numbers(call: Tensor, inside: Bools, draws: Draws) -> Tensor:
    """How many of the items inside get a call [item, draw or 1], and how many do not, [2, draw]."""
    where = draws.to_device(np.flatnonzero(inside))
    counts = draws.counts[where]
    yes = total(counts * call[where])
    return torch.stack([yes, total(counts) - yes])


def _plain_rows(
    measured: Measured, draws: Draws, intervention: str
) -> list[SummaryRow]:
    """What an intervention does at the reference layer, to all items and to groups that do not change with the draw."""
    ran = measured.ran[intervention]
    labels = measured.labels[ran]
    before, after = measured.at_reference(intervention)
    delta = delta_p(before, after, labels)
    own = assign(before, after, labels, noise_at_reference(measured, "full"))
    everyone = np.ones(len(ran), dtype=bool)
    means: dict[tuple[str, str | None], tuple[Floats | Bools, Bools]] = {
        ("flip_rate", None): (own.flipped, own.correct),
        ("mean_probability_before", None): (probability(before), everyone),
        ("mean_probability_after", None): (probability(after), everyone),
    }
    calls = plain_calls(measured)
    for group in GROUPS:
        inside = calls.members(group)[ran]
        means["delta_p_reference", group] = delta, inside
        means["flip_rate", group] = own.flipped, inside
    values, members = (
        np.stack(part, axis=1) for part in zip(*means.values(), strict=True)
    )
    samples = dict(zip(means, _means(values, members, draws.take(ran)), strict=True))
    rows = []
    for (quantity, where), (_, inside) in means.items():
        assignment = None if quantity.startswith("mean_probability") else "plain"
        n = _number_of(ran[inside])
        rows.append(
            _row(quantity, samples[quantity, where], n, assignment, intervention, where)
        )
    between = (
        samples["delta_p_reference", Q_ANCHORED]
        - samples["delta_p_reference", A_ANCHORED]
    )
    n = _number_of(ran[own.correct])
    return [
        *rows,
        _row("delta_p_reference_difference", between, n, "plain", intervention),
    ]


def _number_of(runs: NDArray[np.int64]) -> int:
    """How many items; one that is run several times is one."""
    return len(np.unique(runs))


def _means(values: Floats, inside: Bools, draws: Draws) -> Tensor:
    """Means of columns of values over the items inside, [item, k] each, in every draw, [k, draw]."""
    return ratio(draws.sums(values * inside), draws.sums(inside))


def _cross_fitted_rows(
    measured: Measured, draws: Draws, intervention: str
) -> list[SummaryRow]:
    """ΔP at the measuring probe's own reference layer, in the groups that the other probe made; both ways averaged."""
    ran = measured.ran[intervention]
    samples, sizes = [], []
    for assigner, meter in (("a", "b"), ("b", "a")):
        calls = plain_calls(measured, assigner)
        inside = np.stack([calls.members(group)[ran] for group in GROUPS], axis=1)
        delta = delta_p(
            *measured.at_reference(intervention, meter), measured.labels[ran]
        )
        samples.append(_means(delta[:, None], inside, draws.take(ran)))
        sizes.append([_number_of(ran[members]) for members in inside.T])
    return _group_rows(
        torch.stack(samples).mean(dim=0),
        np.mean(sizes, axis=0),
        "cross-fitted",
        intervention,
    )


def _corrected_rows(
    corrected: Corrected, intervention: str, sums: CellSums
) -> list[SummaryRow]:
    """ΔP at the reference layer with the common shift taken away, in the corrected groups."""
    measured = corrected.measured
    reference = measured.reference[measured.probe("full")]
    calls, ran = corrected.sample(), measured.ran[intervention]
    samples = [reference_samples(sums, reference, group) for group in GROUPS]
    sizes = [_number_of(ran[calls.members(group)[ran]]) for group in GROUPS]
    return _group_rows(samples, sizes, "corrected", intervention)


def _group_rows(
    samples: Sequence[Tensor] | Tensor,
    sizes: Sequence[float] | Floats,
    assignment: str,
    intervention: str,
) -> list[SummaryRow]:
    """Mean ΔP at the reference layer of both groups, and their difference."""
    rows = [
        _row("delta_p_reference", mean, round(n), assignment, intervention, group)
        for group, mean, n in zip(GROUPS, samples, sizes, strict=True)
    ]
    difference = _row(
        "delta_p_reference_difference",
        samples[0] - samples[1],
        round(sum(sizes)),
        assignment,
        intervention,
    )
    return [*rows, difference]


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


def evidence_tables(
    evidence: Evidence, progress: Progress, device: str | torch.device = "cpu"
) -> dict[str, pl.DataFrame]:
    """curves, their samples, reference_curves, probe_scores, pathways and summary of one dataset.

    The device does the resampling.
    """
    progress.start("evidence", len(evidence.places) + 1)
    places, scores = [], list[Record]()
    with resampling(torch.device(device)):
        draws = Draws.of(evidence.weights, device)
        for where in evidence.places:
            places.append(_pathway_tables(evidence, draws, where))
            scores += _place_scores(evidence, draws, where)
            progress.advance(1)
        baselines, paired = _baselines(evidence, draws)
        scores += baselines
        reference = _reference_rows(evidence, draws)
    progress.advance(1)
    progress.finish()
    curves, samples, summary, pathways = (
        [row for part in parts for row in part] for parts in zip(*places, strict=True)
    )
    tables = {
        "curves": _frame(curves).select(*CURVE_SCHEMA),
        "curve_samples": _frame(samples).select(*SAMPLE_SCHEMA),
        "reference_curves": _frame(reference).select(*CURVE_SCHEMA, "shift"),
        "probe_scores": _frame(scores).select(*SCORE_SCHEMA),
        "pathways": pl.concat(pathways),
        "summary": _frame([*summary, *paired]).select(*SUMMARY_SCHEMA),
    }
    return {
        name: table.rechunk() for name, table in tables.items()
    }  # as a table is that has travelled


def first_curves(
    model: str,
    dataset: str,
    place: tuple[str, str],
    measured: Measured,
    variants: Mapping[str, str],
    weights: NDArray[np.floating],
) -> pl.DataFrame:
    """The plain curves of one place, from whatever interventions there are so far."""
    where: Record = {
        "model": model,
        "dataset": dataset,
        "site": place[0],
        "position": place[1],
    }
    with resampling(torch.device("cpu")):
        draws = Draws.of(weights, "cpu")
        rows = [
            row
            for intervention in measured.after
            for curve in plain_curves(measured, intervention, draws)
            for row in _curve_rows(curve, where, variants)
        ]
    return _frame(rows).select(*CURVE_SCHEMA)


def _frame(rows: Iterable[Record]) -> pl.DataFrame:
    """A missing value is null in the tables, never NaN."""
    return pl.DataFrame(list(rows), infer_schema_length=None).with_columns(
        pl.selectors.float().fill_nan(None)
    )


def _pathway_tables(
    evidence: Evidence, draws: Draws, where: tuple[str, str]
) -> tuple[list[Record], list[Record], list[Record], list[pl.DataFrame]]:
    """Curves, their samples at the chart's place, summary and pathways of one site and position."""
    measured, place = evidence.places[where], _place(evidence, where)
    corrected = correct_shift(measured, draws)
    sums = {
        intervention: cell_sums(corrected, intervention)
        for intervention in measured.after
    }
    curves, samples = list[Record](), list[Record]()
    for intervention in measured.after:
        for curve in (
            *plain_curves(measured, intervention, draws),
            *cross_fitted_curves(measured, intervention, draws),
            *corrected_curves(corrected, intervention, sums[intervention]),
        ):
            curves += _curve_rows(curve, place, evidence.variants)
            if (
                where == evidence.headline
                and curve.intervention == KNOCKOUT
                and curve.truth == "all"
            ):
                of_group = {
                    **place,
                    "assignment": curve.assignment,
                    "group": curve.group,
                }
                samples += [
                    {
                        **of_group,
                        "layer": layer,
                        "delta_p": pl.Series(row, dtype=pl.Float32),
                    }
                    for layer, row in enumerate(curve.samples.cpu().numpy())
                ]
    summary = [_summary_row(row, place) for row in summarise(corrected, sums)]
    return curves, samples, summary, _pathway_frames(evidence, corrected, place)


def _place(evidence: Evidence, where: tuple[str, str] | tuple[None, None]) -> Record:
    return {
        "model": evidence.model,
        "dataset": evidence.dataset,
        "site": where[0],
        "position": where[1],
    }


def _curve_rows(
    curve: Curve, place: Record, variants: Mapping[str, str]
) -> list[Record]:
    names = ("intervention", "assignment", "group", "truth", "n", "n_groups")
    common = {
        **place,
        **{name: getattr(curve, name) for name in names},
        "variant": variants[curve.intervention],
    }
    layers = zip(curve.delta_p, curve.ci_low, curve.ci_high, strict=True)
    return [
        {
            **common,
            "layer": layer,
            "delta_p": float(value),
            "ci_low": float(low),
            "ci_high": float(high),
        }
        for layer, (value, low, high) in enumerate(layers)
    ]


def _reference_rows(evidence: Evidence, draws: Draws) -> list[Record]:
    """The plain chart with the reference layer a quarter of the depth earlier and later."""
    measured = evidence.places[evidence.headline]
    quarter = max(1, measured.n_layers // 4)
    return [
        {**row, "shift": shift}
        for shift in (-quarter, 0, quarter)
        for curve in plain_curves(measured, KNOCKOUT, draws, move=shift)
        if curve.truth == "all"
        for row in _curve_rows(
            curve, _place(evidence, evidence.headline), evidence.variants
        )
    ]


def _place_scores(
    evidence: Evidence, draws: Draws, where: tuple[str, str]
) -> list[Record]:
    measured = evidence.places[where]
    scored = Scored(measured.labels, measured.groups, measured.folds, draws)
    full = measured.probe("full")

    def both(
        intervention: str,
        kind: str,
        nested: str,
        logits: Floats,
        scored: Scored,
        ran: NDArray[np.int64],
    ) -> None:
        of_layers = layer_scores(intervention, kind, logits, scored)
        headline = nested_score(
            intervention,
            nested,
            logits,
            measured.reference[full],
            measured.folds[ran],
            scored,
        )
        scores.extend(
            replace(score, n=len(np.unique(ran))) for score in (*of_layers, headline)
        )

    scores: list[Score] = []
    everyone, before = np.arange(len(measured.labels)), measured.before[full]
    both("clean", "transfer", "nested", before, scored, everyone)
    if any(relation is not None for relation in evidence.relations):
        _, relation = np.unique(
            [name or "" for name in evidence.relations], return_inverse=True
        )
        within = replace(
            scored, strata=measured.folds * (relation.max() + 1) + relation
        )
        both(
            "clean",
            "within-relation",
            "nested-within-relation",
            before,
            within,
            everyone,
        )
    for intervention, after in measured.after.items():
        ran = measured.ran[intervention]
        both(intervention, "transfer", "nested", after[full], scored.take(ran), ran)
    if where == evidence.headline:
        for intervention, logits in evidence.refits.items():
            ran = measured.ran[intervention]
            both(intervention, "refit", "nested-refit", logits, scored.take(ran), ran)
    return [_place(evidence, where) | vars(score) for score in scores]


def _baselines(evidence: Evidence, draws: Draws) -> tuple[list[Record], list[Record]]:
    """Scores of what the probe must beat; and rows of the summary: by how much it does, in the same draws."""
    measured = evidence.places[evidence.headline]
    labels, folds = measured.labels, measured.folds
    scored = Scored(labels, measured.groups, folds, draws)
    simpler: dict[str, Floats] = {}
    if any(relation is not None for relation in evidence.relations):
        simpler["relation-only"] = relation_only(evidence.relations, labels, folds)
    simpler["words"] = words_only(evidence.questions, evidence.answers, labels, folds)
    confidences = {
        "confidence-mean": evidence.confidence_mean,
        "confidence-min": evidence.confidence_min,
    }
    for kind, confidence in confidences.items():
        if all(
            value is not None for value in confidence
        ):  # known of every answer, or no baseline
            simpler[kind] = np.array(confidence, dtype=float)
    full = measured.probe("full")
    nested = at_reference(measured.before[full], measured.reference[full], folds)
    joined, rows = beyond_baselines(nested, simpler, scored)
    for intervention, null in evidence.permuted.items():
        again = at_reference(
            evidence.refits[intervention], measured.reference[full], folds
        )
        rows += beyond_permuted(intervention, again, null, scored)
    nowhere, headline = (
        _place(evidence, (None, None)),
        _place(evidence, evidence.headline),
    )
    scores = [
        (headline if kind == PROBE_AND_CONFIDENCE else nowhere)
        | vars(baseline_score(kind, values, scored))
        for kind, values in (simpler | joined).items()
    ]
    return scores, [_summary_row(row, headline) for row in rows]


def _pathway_frames(
    evidence: Evidence, corrected: Corrected, place: Record
) -> list[pl.DataFrame]:
    """The pathway of every item, one frame per assignment and assigning probe."""
    measured = corrected.measured
    ways = [
        ("plain", "full", plain_calls(measured)),
        ("cross-fitted", "a", plain_calls(measured, "a")),
        ("cross-fitted", "b", plain_calls(measured, "b")),
        ("corrected", "full", corrected.sample()),
    ]
    return [
        pl.DataFrame(
            {
                "dataset": pl.repeat(evidence.dataset, len(calls.correct), eager=True),
                "item_id": evidence.item_ids,
                "site": place["site"],
                "position": place["position"],
                "assignment": assignment,
                "probe": probe,
                "reference_layer": measured.reference[measured.probe(probe)][
                    measured.folds
                ],
                "pathway": calls.names(),
            }
        )
        for assignment, probe, calls in ways
    ]


def _summary_row(row: SummaryRow, place: Record) -> Record:
    columns = {
        name: getattr(row, name)
        for name in ("quantity", "assignment", "intervention", "group")
    }
    return {**place, **columns, **vars(row.estimate)}
