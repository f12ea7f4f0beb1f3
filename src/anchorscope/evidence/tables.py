"""All evidence of one dataset as result tables: every site and position, every control and baseline.

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
    A_ANCHORED,
    GROUPS,
    Q_ANCHORED,
    Curve,
    Measured,
    assign,
    at_reference,
    curves,
    delta_p,
    noise_at_reference,
    pathways,
    permuted_flip_share,
    probability,
)
from anchorscope.evidence.draws import Draws, estimate, ratio, resampling, total
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


def summarise(measured: Measured, draws: Draws) -> list[SummaryRow]:
    """All quantities of one dataset, site and position."""
    rows = _group_rows(measured, draws)
    for intervention in measured.after:
        rows += _intervention_rows(measured, draws, intervention)
    noise = Estimate(
        noise_at_reference(measured),
        np.nan,
        np.nan,
        n=len(measured.ran.get("none", [])),
        method="99th percentile of the no-op control",
    )
    return [*rows, SummaryRow("noise_log_odds_p99", noise, intervention="none")]


def _row(
    quantity: str,
    samples: Tensor,
    n: int,
    intervention: str,
    *,
    group: str | None = None,
) -> SummaryRow:
    value = estimate(samples, n, "bootstrap over groups")
    return SummaryRow(quantity, value, intervention, group)


def _group_rows(measured: Measured, draws: Draws) -> list[SummaryRow]:
    """How large the groups are and how many of their answers are true, and what chance would give."""
    before, after = measured.at_reference(KNOCKOUT)
    labels = measured.labels
    calls = pathways(measured)
    true = _numbers(calls.flipped, calls.correct & labels, draws)
    false = _numbers(calls.flipped, calls.correct & ~labels, draws)
    n_correct = int(calls.correct.sum())
    rows = []
    for index, group in enumerate(GROUPS):
        size = true[index] + false[index]
        share = ratio(size, true.sum(dim=0) + false.sum(dim=0))
        true_share = ratio(true[index], size)
        n = int(calls.members(group).sum())
        rows.append(_row("group_share", share, n_correct, KNOCKOUT, group=group))
        rows.append(_row("true_share", true_share, n, KNOCKOUT, group=group))
    null = Estimate(
        permuted_flip_share(before, after, labels, measured.folds),
        np.nan,
        np.nan,
        n=n_correct,
        method="exact expectation over permutations within folds",
    )
    rows.append(SummaryRow("null_share", null, KNOCKOUT, Q_ANCHORED))
    called = after > 0
    pairs = [_numbers(called, before > 0, draws), _numbers(called, before <= 0, draws)]
    agreement = torch.from_numpy(kappa(torch.stack(pairs).cpu().numpy()))
    return [*rows, _row("kappa", agreement, len(before), KNOCKOUT)]


def _numbers(call: Bools, inside: Bools, draws: Draws) -> Tensor:
    """How many of the items inside get a call [item], and how many do not, [2, draw]."""
    where = np.flatnonzero(inside)
    counts = draws.counts[draws.to_device(where)]
    yes = total(counts * draws.to_device(call[where])[:, None])
    return torch.stack([yes, total(counts) - yes])


def _intervention_rows(
    measured: Measured, draws: Draws, intervention: str
) -> list[SummaryRow]:
    """What an intervention does at the reference layer, to all items and to both groups."""
    ran = measured.ran[intervention]
    labels = measured.labels[ran]
    before, after = measured.at_reference(intervention)
    delta = delta_p(before, after, labels)
    own = assign(before, after, labels, noise_at_reference(measured))
    everyone = np.ones(len(ran), dtype=bool)
    means: dict[tuple[str, str | None], tuple[Floats | Bools, Bools]] = {
        ("flip_rate", None): (own.flipped, own.correct),
        ("mean_probability_before", None): (probability(before), everyone),
        ("mean_probability_after", None): (probability(after), everyone),
    }
    calls = pathways(measured)
    for name in GROUPS:
        inside = calls.members(name)[ran]
        means["delta_p_reference", name] = delta, inside
        means["flip_rate", name] = own.flipped, inside
    values, members = (
        np.stack(part, axis=1) for part in zip(*means.values(), strict=True)
    )
    samples = dict(zip(means, _means(values, members, draws.take(ran)), strict=True))
    rows = []
    for (quantity, group), (_, inside) in means.items():
        n = _number_of(ran[inside])
        mean = samples[quantity, group]
        rows.append(_row(quantity, mean, n, intervention, group=group))
    q = samples["delta_p_reference", Q_ANCHORED]
    a = samples["delta_p_reference", A_ANCHORED]
    n = _number_of(ran[own.correct])
    return [*rows, _row("delta_p_reference_difference", q - a, n, intervention)]


def _number_of(runs: NDArray[np.int64]) -> int:
    """How many items; one that is run several times is one."""
    return len(np.unique(runs))


def _means(values: Floats, inside: Bools, draws: Draws) -> Tensor:
    """Means of columns of values over the items inside, [item, k] each, in every draw, [k, draw]."""
    return ratio(draws.sums(values * inside), draws.sums(inside))


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
    *of_places, frames = zip(*places, strict=True)
    rows, samples, summary = (
        [row for part in parts for row in part] for parts in of_places
    )
    tables = {
        "curves": _frame(rows).select(*CURVE_SCHEMA),
        "curve_samples": _frame(samples).select(*SAMPLE_SCHEMA),
        "reference_curves": _frame(reference).select(*CURVE_SCHEMA, "shift"),
        "probe_scores": _frame(scores).select(*SCORE_SCHEMA),
        "pathways": pl.concat(frames),
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
    """The curves of one place, from whatever interventions there are so far."""
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
            for curve in curves(measured, intervention, draws)
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
) -> tuple[list[Record], list[Record], list[Record], pl.DataFrame]:
    """Curves, their samples at the chart's place, summary and pathways of one site and position."""
    measured = evidence.places[where]
    place = _place(evidence, where)
    rows = list[Record]()
    samples = list[Record]()
    for intervention in measured.after:
        for curve in curves(measured, intervention, draws):
            rows += _curve_rows(curve, place, evidence.variants)
            is_drawn = intervention == KNOCKOUT and curve.truth == "all"
            if is_drawn and where == evidence.headline:
                samples += _sample_rows(curve, place)
    summary = [_summary_row(row, place) for row in summarise(measured, draws)]
    return rows, samples, summary, _pathway_frame(evidence, measured, place)


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
    names = ("intervention", "group", "truth", "n", "n_groups")
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


def _sample_rows(curve: Curve, place: Record) -> list[Record]:
    """A curve's draws, a row for each layer."""
    return [
        {
            **place,
            "group": curve.group,
            "layer": layer,
            "delta_p": pl.Series(draws, dtype=pl.Float32),
        }
        for layer, draws in enumerate(curve.samples.cpu().numpy())
    ]


def _reference_rows(evidence: Evidence, draws: Draws) -> list[Record]:
    """The chart with the reference layer a quarter of the depth earlier and later."""
    measured = evidence.places[evidence.headline]
    quarter = max(1, measured.n_layers // 4)
    return [
        {**row, "shift": shift}
        for shift in (-quarter, 0, quarter)
        for curve in curves(measured, KNOCKOUT, draws, shift)
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
            measured.reference,
            measured.folds[ran],
            scored,
        )
        scores.extend(
            replace(score, n=len(np.unique(ran))) for score in (*of_layers, headline)
        )

    scores: list[Score] = []
    everyone, before = np.arange(len(measured.labels)), measured.before
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
        both(intervention, "transfer", "nested", after, scored.take(ran), ran)
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
        # known of every answer, or no baseline
        if all(value is not None for value in confidence):
            simpler[kind] = np.array(confidence, dtype=float)
    nested = at_reference(measured.before, measured.reference, folds)
    joined, rows = beyond_baselines(nested, simpler, scored)
    for intervention, null in evidence.permuted.items():
        again = at_reference(evidence.refits[intervention], measured.reference, folds)
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


def _pathway_frame(
    evidence: Evidence, measured: Measured, place: Record
) -> pl.DataFrame:
    """The pathway of every item."""
    n = len(measured.labels)
    return pl.DataFrame(
        {
            "dataset": pl.repeat(evidence.dataset, n, eager=True),
            "item_id": evidence.item_ids,
            "site": place["site"],
            "position": place["position"],
            "reference_layer": measured.reference[measured.folds],
            "pathway": pathways(measured).names(),
        }
    )


def _summary_row(row: SummaryRow, place: Record) -> Record:
    columns = {
        name: getattr(row, name) for name in ("quantity", "intervention", "group")
    }
    return {**place, **columns, **vars(row.estimate)}
