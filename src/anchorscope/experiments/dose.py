"""Dose: some of the question's exact tokens cut, from one to all, and as many random tokens beside them.

If what the probe needs sits in one token, cutting it does everything; if it is spread, every further token counts. Each
item's exact tokens are put in one random order, and a dose cuts the first of them: doses are nested. The random control
does the same with its candidates. Results are over all items: groups made by the knockout would show its own effect
again at the full dose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl

from anchorscope.engine.sequences import Cut, Variant
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.partial_cuts import QUANTITY, Scored, run_variants, visible_cuts
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    Floats,
    Indices,
    auc_samples,
    estimate_of,
    family_rows,
    item_mean,
    p_value,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import find, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent, points
from anchorscope.stats.streams import stream

ONE, FULL = "1 token", "100 %"
DOSES: Mapping[str, float] = {ONE: 0.0, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, FULL: 1.0}
"""Shares of the exact tokens that are cut, rounded up, and never fewer than one."""
EXACT, RANDOM = "exact", "random"
"""What is cut: exact question tokens, or as many random ones; the variants are `exact 25 %`, `random 25 %` …"""
NOTHING = "nothing cut"


def n_tokens(dose: str, n_exact: int) -> int:
    """How many of `n` exact tokens a dose cuts."""
    return max(1, math.ceil(DOSES[dose] * n_exact))


def plan_doses(inputs: ExperimentInputs) -> dict[str, dict[int, Cut]]:
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
    return {name: visible_cuts(inputs, mine, range(inputs.measured.n_layers)) for name, mine in cuts.items()}


def run(inputs: ExperimentInputs) -> Found:
    planned = plan_doses(inputs)
    chosen = {name: cuts for name, cuts in planned.items() if len(cuts) >= FEW}
    few = ", ".join(f"{name} ({len(cuts)})" for name, cuts in planned.items() if name not in chosen)
    ran = run_variants(inputs, [Variant(cuts) for cuts in chosen.values()], "dose")
    n_cut = {name: {item: cut.n_cut for item, cut in cuts.items()} for name, cuts in chosen.items()}
    result = analyse(inputs, dict(zip(chosen, ran, strict=True)), n_cut)
    missing = (f"{few}: fewer than {FEW} items have so many tokens that later ones can see",) if few else ()
    return Found(result.statistics, result.values, missing)


def analyse(inputs: ExperimentInputs, ran: Mapping[str, Scored], n_cut: Mapping[str, Mapping[int, int]]) -> Found:
    """All statistics of cuts by dose; `n_cut` is the number of tokens each variant cuts of each item."""
    from anchorscope.evidence.draws import resampling

    some = inputs.some_items()
    clean = Scored(some, inputs.measured.before[inputs.measured.probe("full")][:, some])
    changes = {name: scored.at_reference(inputs) for name, scored in ran.items()}
    with resampling(inputs.draws.device):
        rows = [_auc(inputs, name, scored) for name, scored in {NOTHING: clean, **ran}.items()]
        family = []
        for name, scored in ran.items():
            draws, n = inputs.draws.take(scored.items), len(scored.items)
            numbers = np.array([n_cut[name][item] for item in scored.items.tolist()], dtype=float)
            rows.append(Statistic("tokens_cut", estimate_of(item_mean(numbers, draws), n), name, truth="all"))
            family.append((item_mean(changes[name], draws), n, {"variant": name}))
        rows += [*family_rows(QUANTITY, family), *_shares(inputs, ran), *_differences(inputs, ran)]
    values = [ItemValues(QUANTITY, scored.items, changes[name], name) for name, scored in ran.items()]
    return Found(tuple(rows), tuple(values))


def _auc(inputs: ExperimentInputs, name: str, scored: Scored) -> Statistic:
    """AUC of the clean probe after the cut, each item at its own fold's reference layer, within folds."""
    measured, items = inputs.measured, scored.items
    scores = scored.logits[inputs.reference[items], np.arange(len(items))]
    samples = auc_samples(scores, measured.labels[items], measured.folds[items], inputs.draws.take(items))
    return Statistic("auc_reference", estimate_of(samples, len(items)), name, truth="all")


def _shares(inputs: ExperimentInputs, ran: Mapping[str, Scored]) -> list[Statistic]:
    """ΔP of a dose of exact tokens over that of all, in the same items; only if all of them have an effect."""
    full = ran.get(f"{EXACT} {FULL}")
    if full is None:
        return []
    whole = estimate_of(item_mean(full.at_reference(inputs), inputs.draws.take(full.items)), len(full.items))
    if whole.ci_low <= 0 <= whole.ci_high:
        return []
    rows = []
    for name in (f"{EXACT} {dose}" for dose in DOSES if dose != FULL):
        if name in ran:
            items, part, all_tokens = _pair_cuts(inputs, ran[name], full)
            draws = inputs.draws.take(items)
            samples = item_mean(part, draws) / item_mean(all_tokens, draws)
            share = estimate_of(samples, len(items), f"{METHOD}, ratio of means")
            rows.append(Statistic("share_of_full", share, name, f"{EXACT} {FULL}", truth="all"))
    return rows


def _differences(inputs: ExperimentInputs, ran: Mapping[str, Scored]) -> list[Statistic]:
    """ΔP of exact tokens minus that of as many random ones, in the same items."""
    rows = []
    for exact, random in ((f"{EXACT} {dose}", f"{RANDOM} {dose}") for dose in DOSES):
        if exact not in ran or random not in ran:
            continue
        items, mine, other = _pair_cuts(inputs, ran[exact], ran[random])
        if len(items) >= FEW:
            samples = item_mean(mine - other, inputs.draws.take(items))
            gap, p = estimate_of(samples, len(items)), p_value(samples)
            rows.append(Statistic(f"{QUANTITY}_difference", gap, exact, random, truth="all", p_value=p))
    return rows


def _pair_cuts(inputs: ExperimentInputs, first: Scored, second: Scored) -> tuple[Indices, Floats, Floats]:
    """The items that both were run on, and the ΔP of each at the reference layer."""
    items, in_first, in_second = np.intersect1d(first.items, second.items, return_indices=True)
    return items, first.at_reference(inputs)[in_first], second.at_reference(inputs)[in_second]


EXPERIMENT = Experiment("dose", "one to all of the exact tokens cut, beside as many random ones", run)


KINDS = {EXACT: "key words", RANDOM: "as many random tokens"}


def _rows(findings: Findings) -> pl.DataFrame:
    """What is cut and how much, in columns of their own."""
    nothing, parts = pl.col("variant") == NOTHING, pl.col("variant").str.splitn(" ", 2).struct
    return statistics(findings, "dose").with_columns(
        kind=pl.when(nothing).then(pl.lit(EXACT)).otherwise(parts.field("field_0")),
        dose=pl.when(nothing).then(pl.lit(NOTHING)).otherwise(parts.field("field_1")),
    )


def _figure_rows(findings: Findings) -> pl.DataFrame:
    rows = select(_rows(findings), quantity=QUANTITY, dose=tuple(DOSES))
    step = pl.col("dose").replace_strict({dose: float(index) for index, dose in enumerate(DOSES)}, default=None)
    beside = pl.when(pl.col("kind") == EXACT).then(-0.06).otherwise(0.06)
    rows = rows.with_columns(x=step.cast(pl.Float64) + beside)
    return rows.select(*section.FIGURE_COLUMNS, "kind", "dose", "x")


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    if kind == RANDOM:
        dotted = {"color": CONTROL_GREY, "linestyle": (0, (1.0, 1.5)), "marker": "s", "markerfacecolor": "white"}
        return dotted | {"markersize": 4.4, "linewidth": 1.5}
    return {"color": colours.colour, "marker": "o", "markersize": 4.4, "linewidth": 1.5}


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
    careful="ΔP moves where all items move alike; AUC does not.",
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
            _figure_rows,
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
                section.value("tokens", lambda mean: estimate(mean, 1), kind=EXACT, quantity="tokens_cut"),
                section.value("ΔP", points, kind=EXACT, quantity=QUANTITY),
                section.items(kind=EXACT),
                section.value("share of the full dose", percent, kind=EXACT, quantity="share_of_full"),
                section.value("random tokens", points, kind=RANDOM, quantity=QUANTITY),
                section.value("difference", points, kind=EXACT, quantity=f"{QUANTITY}_difference"),
                section.p_value(kind=EXACT, quantity=f"{QUANTITY}_difference"),
                section.value("AUC after", estimate, kind=EXACT, quantity="auc_reference"),
                section.value("AUC after random", estimate, kind=RANDOM, quantity="auc_reference"),
            ),
        ),
    ),
)
