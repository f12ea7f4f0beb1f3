"""Dose: some of the question's exact tokens cut, from a single one to all, and as many random tokens beside them.

If what the probe needs sits in one token, cutting that one does everything, and the curve jumps once; if it is spread,
every further token takes its part. Each item's exact tokens are put in one random order, and a dose cuts the first of
them: doses are nested. The same is done with the tokens that the random control draws from; only items that have as
many of those count, so that both sides change the same number of tokens in the same items.

Everything is over all items, whatever their pathway: groups made by the knockout would show the knockout's own effect
again at the full dose.

The question share Λ by dose asks how much of the evidence needs the tokens that a dose cuts: at one layer, the
reference layer of most folds, and over the items that every variant was run on, so that all shares are of the same
evidence. ΔP asks whether a fixed probe is thrown off; Λ asks whether a state under the cut still tells, in whatever
form, what the clean probe read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.engine.sequences import Cut, Variant
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.partial_cuts import ItemCuts, Scored, reached, run_variants
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    TRUTHS,
    Floats,
    answers_of,
    estimate_of,
    group_means,
    mean_in_deviations,
    of_truth,
    p_value,
    q_values,
)
from anchorscope.probes.folds import truth_strata
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import find, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent, points
from anchorscope.stats.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

ONE, FULL = "1 token", "100 %"
DOSES: Mapping[str, float] = {ONE: 0.0, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, FULL: 1.0}
"""Shares of the exact tokens that are cut, rounded up, and never fewer than one."""
EXACT, RANDOM = "exact", "random"
"""What is cut: exact question tokens, or as many random ones; the variants are `exact 25 %`, `random 25 %` …"""

FEWEST = 300
"""Items below which no share is told. With 118 items of the atlas cutting random tokens seemed to take 0.67 of the
evidence: of so few, a state that changed at all explains little of what it still holds."""
NOTHING = "nothing cut"
"""The floor: what estimation alone loses."""


def n_tokens(dose: str, n_exact: int) -> int:
    """How many tokens a dose cuts of a question with so many exact ones."""
    return max(1, math.ceil(DOSES[dose] * n_exact))


def plan_doses(inputs: ExperimentInputs) -> dict[str, ItemCuts]:
    """The cuts of every variant: nested, in an order drawn from the item's own random numbers."""
    from anchorscope.interventions.cuts import random_candidates

    cuts: dict[str, dict[int, Cut]] = {f"{kind} {dose}": {} for kind in (EXACT, RANDOM) for dose in DOSES}
    for index in inputs.some_items().tolist():
        item = inputs.used_items[index]
        exact = item.located.question_tokens
        for kind, tokens in ((EXACT, exact), (RANDOM, tuple(random_candidates(item)))):
            order = stream(inputs.setting.seed, f"dose {kind}", item.item_id).permutation(np.array(tokens, dtype=int))
            for dose in DOSES:
                keys = tuple(sorted(order[: n_tokens(dose, len(exact))].tolist()))
                if len(keys) == n_tokens(dose, len(exact)):
                    cuts[f"{kind} {dose}"][index] = Cut(keys, inputs.setting.edges)
    return {name: reached(inputs, one) for name, one in cuts.items()}


def run(inputs: ExperimentInputs) -> Found:
    """Every dose of both kinds, and what it does."""
    planned = plan_doses(inputs)
    few = {name: len(one) for name, one in planned.items() if len(one) < FEW}
    missing = []
    if few:
        told = ", ".join(f"{name} ({n})" for name, n in few.items())
        missing.append(f"{told}: fewer than {FEW} items have so many tokens that later ones can see")
    chosen, layer = {name: one for name, one in planned.items() if name not in few}, inputs.most_frequent_reference
    variants = [Variant(cuts) for cuts in chosen.values()]  # in one pass: they share what no cut has changed
    ran = dict(zip(chosen, run_variants(inputs, variants, "dose", layer), strict=True))
    found = analyse(inputs, ran, {name: {item: cut.n_cut for item, cut in planned[name].items()} for name in ran})
    shares, untold = dose_shares(inputs, ran, layer)
    return Found((*found.statistics, *shares), found.values, (*missing, *found.missing, *untold))


def analyse(inputs: ExperimentInputs, ran: Mapping[str, Scored], n_cut: Mapping[str, Mapping[int, int]]) -> Found:
    """All statistics of cuts by dose; `n_cut` says how many tokens each variant cuts of each item."""
    from anchorscope.evidence.draws import resampling

    rows: list[Statistic] = []
    inputs.progress.start("dose: statistics", len(ran))
    some = inputs.some_items()
    clean = Scored(some, inputs.measured.before[inputs.measured.probe("full")][:, some])
    with resampling(inputs.draws.device):
        rows.append(_row("auc_reference", _area(inputs, clean, inputs.draws.take(some)), len(some), NOTHING))
        for name, scored in ran.items():
            draws = inputs.draws.take(scored.items)
            numbers = np.array([n_cut[name][item] for item in scored.items.tolist()], dtype=float)
            everyone = np.ones(len(numbers), dtype=bool)
            rows += [
                _row("tokens_cut", group_means(numbers[:, None], everyone, draws)[0], len(numbers), name),
                _row("auc_reference", _area(inputs, scored, draws), len(numbers), name),
                *_curve(inputs, scored, draws, name),
            ]
            inputs.progress.advance(1)
        means, missing = _means(inputs, ran)
        rows += [*means, *_shares(inputs, ran), *_differences(inputs, ran)]
    inputs.progress.finish()
    values = [
        ItemValues("delta_p_reference", scored.items, scored.at_reference(inputs), name) for name, scored in ran.items()
    ]
    return Found(tuple(rows), tuple(values), tuple(missing))


def _row(
    quantity: str,
    samples: Tensor,
    n: int,
    variant: str,
    against: str | None = None,
    truth: str = "all",
    method: str = METHOD,
    **others: float | int | None,
) -> Statistic:
    return Statistic(quantity, estimate_of(samples, n, method), variant, against, truth=truth, **others)  # type: ignore[arg-type]


def _area(inputs: ExperimentInputs, scored: Scored, draws: Draws) -> Tensor:
    """AUC of the clean probe after the cut, each item at its own fold's reference layer, within folds, [draw]."""
    from anchorscope.evidence.draws import areas

    place, items = inputs.measured, scored.items
    scores = scored.logits[inputs.reference[items], np.arange(len(items))]
    return areas(scores[None], place.labels[items], place.folds[items], draws)[0]


def _curve(inputs: ExperimentInputs, scored: Scored, draws: Draws, name: str) -> list[Statistic]:
    """Mean ΔP at every layer."""
    everyone = np.ones(len(scored.items), dtype=bool)
    samples = group_means(scored.delta_p(inputs), everyone, draws)
    return [_row("delta_p", layer, len(everyone), name, probe_layer=k) for k, layer in enumerate(samples)]


def _means(inputs: ExperimentInputs, ran: Mapping[str, Scored]) -> tuple[list[Statistic], list[str]]:
    """Mean ΔP at the reference layer; q-values over the doses of both kinds."""
    rows, missing = [], []
    for truth in TRUTHS:
        found = []
        for name, scored in ran.items():
            values, inside = scored.at_reference(inputs), of_truth(inputs.measured.labels[scored.items], truth)
            if inside.sum() < FEW:
                missing.append(f"{name}: {int(inside.sum())} {answers_of(truth)}, {FEW} needed")
                continue
            samples = group_means(values[:, None], inside, inputs.draws.take(scored.items))[0]
            found.append((name, samples, int(inside.sum()), mean_in_deviations(values[inside])))
        p = [p_value(samples) for _, samples, _, _ in found]
        q = q_values([np.nan if one is None else one for one in p])
        rows += [
            _row(
                "delta_p_reference",
                samples,
                n,
                name,
                truth=truth,
                p_value=p[k],
                q_value=float(q[k]) if np.isfinite(q[k]) else None,
                effect_size=size,
            )
            for k, (name, samples, n, size) in enumerate(found)
        ]
    return rows, missing


def _shares(inputs: ExperimentInputs, ran: Mapping[str, Scored]) -> list[Statistic]:
    """ΔP of a dose over that of the full dose, in the same items; only where the full dose does something."""
    rows = []
    for kind in (EXACT, RANDOM):
        full = ran.get(f"{kind} {FULL}")
        if full is None:
            continue
        whole_dose = estimate_of(_mean(inputs, full.items, full.at_reference(inputs)), len(full.items))
        if whole_dose.ci_low <= 0 <= whole_dose.ci_high:
            continue
        for dose in DOSES:
            part = ran.get(f"{kind} {dose}")
            if dose == FULL or part is None:
                continue
            items, mine, whole = _paired(inputs, part, full)
            samples = _mean(inputs, items, mine) / _mean(inputs, items, whole)
            rows.append(
                _row(
                    "share_of_full",
                    samples,
                    len(items),
                    f"{kind} {dose}",
                    f"{kind} {FULL}",
                    method=f"{METHOD}, ratio of means",
                )
            )
    return rows


def _differences(inputs: ExperimentInputs, ran: Mapping[str, Scored]) -> list[Statistic]:
    """ΔP of exact tokens minus that of as many random ones, in the same items."""
    rows = []
    for dose in DOSES:
        exact, random = ran.get(f"{EXACT} {dose}"), ran.get(f"{RANDOM} {dose}")
        if exact is None or random is None:
            continue
        items, mine, other = _paired(inputs, exact, random)
        if len(items) >= FEW:
            samples = _mean(inputs, items, mine - other)
            rows.append(
                _row(
                    "delta_p_reference_difference",
                    samples,
                    len(items),
                    f"{EXACT} {dose}",
                    f"{RANDOM} {dose}",
                    p_value=p_value(samples),
                    effect_size=mean_in_deviations(mine - other),
                )
            )
    return rows


def _paired(inputs: ExperimentInputs, first: Scored, second: Scored) -> tuple[NDArray[np.int64], Floats, Floats]:
    """The items that both were run on, and the ΔP of each at the reference layer."""
    items, here, there = np.intersect1d(first.items, second.items, return_indices=True)
    return items, first.at_reference(inputs)[here], second.at_reference(inputs)[there]


def _mean(inputs: ExperimentInputs, items: NDArray[np.int64], values: Floats) -> Tensor:
    """The mean in every draw."""
    return group_means(values[:, None], np.ones(len(items), dtype=bool), inputs.draws.take(items))[0]


def dose_shares(inputs: ExperimentInputs, ran: Mapping[str, Scored], layer: int) -> tuple[list[Statistic], list[str]]:
    """Λ of every variant, and of nothing cut; or why it cannot be told."""
    import torch

    from anchorscope.question_share.evidence import GROUPS, clean_evidence, lost_evidence, make_halves
    from anchorscope.question_share.principal import default_directions, principal_states
    from anchorscope.question_share.shares import ShareDraws

    items = reduce(np.intersect1d, [scored.items for scored in ran.values()])
    if len(items) < FEWEST:
        return [], [f"question_share: {len(items)} items can be run at every dose, {FEWEST} needed"]
    labels, used = inputs.measured.labels[items], [inputs.used_items[item] for item in items.tolist()]
    strata = truth_strata(labels, [item.question.relation for item in used])
    groups, ids = inputs.measured.groups[items], [item.item_id for item in used]
    halves = make_halves(groups, strata, inputs.setting.seed, ids)
    states = {NOTHING: inputs.states()[layer][items], **{name: _states(one, items) for name, one in ran.items()}}
    directions = default_directions(len(items), states[NOTHING].shape[-1])
    principal = {name: principal_states(one[None], directions, inputs.device) for name, one in states.items()}
    evidence = clean_evidence(principal[NOTHING], halves, labels, inputs.device, inputs.progress, "dose: probes")
    rng = stream(inputs.setting.seed, "dose shares", inputs.dataset)
    draws = ShareDraws(inputs.weights[:, items], halves.n_splits, rng)
    method, rows = f"half splits, {directions} principal directions, bootstrap over groups", []
    for name, one in principal.items():
        lost = lost_evidence(
            evidence, one, halves, labels, inputs.splits.folds[items], inputs.device, inputs.progress, f"dose: {name}"
        )
        if not draws.has_evidence(lost.had)[0]:
            return [], [f"question_share: no evidence of truth at layer {layer} in {len(items)} items"]
        samples = torch.from_numpy(draws.shares(lost, GROUPS.index("all"))[0])
        estimate = estimate_of(samples, len(items), method)
        rows.append(Statistic("question_share", estimate, name, truth="all", probe_layer=layer))
    return rows, []


def _states(scored: Scored, items: np.ndarray) -> Tensor:
    """The states of some of the items that were run, [item, d_model]."""
    assert scored.states is not None, "shares are of states, and none were kept"
    return scored.states[np.searchsorted(scored.items, items)]


EXPERIMENT = Experiment("dose", "one to all of the exact tokens cut, beside as many random ones", run)


KINDS = {EXACT: "key words", RANDOM: "as many random tokens"}
_COLUMNS = ("dataset", "kind", "dose", "value", "ci_low", "ci_high", "n", "p_value", "q_value", "x")


def _rows(findings: Findings) -> pl.DataFrame:
    """All answers, with what is cut and how much in columns of their own."""
    table = select(statistics(findings, "dose"), truth="all")
    parts, nothing = pl.col("variant").str.splitn(" ", 2).struct, pl.col("variant") == NOTHING
    found = table.with_columns(
        kind=pl.when(nothing).then(pl.lit(EXACT)).otherwise(parts.field("field_0")),
        dose=pl.when(nothing).then(pl.lit(NOTHING)).otherwise(parts.field("field_1")),
    )
    return select(found, kind=tuple(KINDS), dose=(NOTHING, *DOSES))


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(_rows(findings), quantity="delta_p_reference", dose=tuple(DOSES))
    step = pl.col("dose").replace_strict({dose: float(place) for place, dose in enumerate(DOSES)}, default=None)
    beside = pl.when(pl.col("kind") == EXACT).then(-0.06).otherwise(0.06)
    return rows.with_columns(x=step.cast(pl.Float64) + beside).select(_COLUMNS)


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    exact = kind == EXACT
    colour = colours.q_colour if exact else CONTROL_GREY
    return {
        "color": colour,
        "marker": "o" if exact else "s",
        "markersize": 4.4,
        "linewidth": 1.5,
        "linestyle": "-" if exact else (0, (1.0, 1.5)),
        "markerfacecolor": colour if exact else "white",
    }


_SERIES = [Series({"kind": kind}, partial(_style, kind), words, "bars") for kind, words in KINDS.items()]
_PANEL = Lines(_SERIES, "ΔP at l*", width=3.4, x="x", ticks=tuple(DOSES), x_label="Key words cut")


def _one_token(rows: pl.DataFrame) -> section.Said | None:
    share = find(rows, kind=EXACT, dose=ONE, quantity="share_of_full")
    return section.number(share, above(share, section.HALF), section.whole_percent)


SECTION = section.SectionSpec(
    slug="dose",
    title="Dose: how many of the key words",
    rows=_rows,
    asks="Does one token carry what the probe needs, or do all? Key tokens are cut in random order, each dose on top "
    "of the smaller ones.",
    careful="ΔP moves where all items move alike; AUC and Λ do not.",
    answer=section.Answer(
        "One token alone does at least half of what all key words do",
        "One token alone does less than half of what all key words do: the tokens add up",
        "Whether one token does half of what all key words do is undecided",
        _one_token,
    ),
    charts=(
        ChartSpec(
            "dose",
            "dose",
            "ΔP at l* by the share of the key words that is cut, and of as many random tokens",
            "Doses are nested: each cuts what the smaller ones cut, and more.",
            "Mean ΔP at the reference layer over all items, in percentage points; bars: 95 % intervals. Random tokens: "
            "items with as many other tokens as the dose cuts.",
            _drawn,
            lambda _: [_PANEL],
            gap=0.6,
            legend_columns=2,
        ),
    ),
    tables=(
        section.TableSpec(
            "ΔP at l* by dose, all answers",
            (section.Key("dose", "dose", {name: name for name in (NOTHING, *DOSES)}),),
            (
                section.value("tokens", lambda found: estimate(found, 1), kind=EXACT, quantity="tokens_cut"),
                section.value("ΔP", points, kind=EXACT, quantity="delta_p_reference"),
                section.items(kind=EXACT),
                section.value("share of the full dose", percent, kind=EXACT, quantity="share_of_full"),
                section.value("random tokens", points, kind=RANDOM, quantity="delta_p_reference"),
                section.value("difference", points, kind=EXACT, quantity="delta_p_reference_difference"),
                section.p_value(kind=EXACT, quantity="delta_p_reference_difference"),
                section.value("AUC after", estimate, kind=EXACT, quantity="auc_reference"),
                section.value("AUC after random", estimate, kind=RANDOM, quantity="auc_reference"),
                section.value("Λ", estimate, kind=EXACT, quantity="question_share"),
                section.value("Λ, random", estimate, kind=RANDOM, quantity="question_share"),
            ),
        ),
    ),
)
