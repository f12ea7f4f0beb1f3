"""Statements about controls: where one fails, the number that it stands beside says nothing.

Controls of the parts are asked over the same band of layers as the parts: random words must do less than a quarter of
what the key words do and move the states as far, another site of the clean run must hold nearly all of the evidence,
permuted labels must give nothing. Controls of ΔP are asked at every layer, with intervals that hold for all layers at
once; one that surely fails at one layer has failed, and the layers are named.
"""

import math
from collections.abc import Callable

import polars as pl

from anchorscope.report.palette import Q_ANCHORED
from anchorscope.report.shares import result_of, results_of, share_at, share_layer
from anchorscope.report.statements.layer_band import LayerBand, band_of, layer_names
from anchorscope.report.statements.statement import About, Found, Statement, under
from anchorscope.report.verdicts import (
    NEGLIGIBLE_SHARE,
    NOOP_FLIPS,
    SEEN_BY_EYE,
    SMALL_RATIO,
    Verdict,
    size_ratio,
    with_zero_bound,
)
from anchorscope.report.wording import estimate, number, percent
from anchorscope.stats.curves import FEWEST_GROUPS
from anchorscope.stats.estimate import Estimate


def _small_ratio(knockout: LayerBand | None, random: LayerBand | None, least: float) -> Found:
    """Does a random cut do less than a quarter of the knockout, wherever that surely does more than `least`?

    Either way: a random cut that gives a share back has gone wrong as well. A layer fails by the band for all layers at
    once, since the worst one is picked; it passes by its own interval, since every layer has to.
    """
    needed = knockout.surely_above(least) if knockout else ()
    asked = tuple(layer for layer in needed if random and layer in random.layers)
    if not (knockout and random and asked):
        return Found()
    mine, theirs = knockout.at(asked), random.at(asked)
    ratios = {layer: size_ratio(theirs.estimate(place), mine.estimate(place)) for place, layer in enumerate(asked)}
    known = {layer: ratio for layer, ratio in ratios.items() if ratio is not None}
    worst = max(known, key=lambda layer: known[layer].value)
    over = tuple(layer for layer, ratio in known.items() if ratio.value >= SMALL_RATIO)
    sure, passed = [], []
    for place, layer in enumerate(asked):
        if _beyond(theirs.estimate(place), mine.estimate(place)).ci_low > 0:
            sure.append(layer)
        elif _beyond(theirs.pointwise(place), mine.pointwise(place)).ci_high < 0:
            passed.append(layer)
    unsure = tuple(layer for layer in needed if layer not in (*sure, *passed))  # also where random words have no number
    numbers = f"highest ratio {estimate(known[worst])} at layer {worst}{_where(over, tuple(sure), unsure)}"
    return _of_layers(known[worst], numbers, worst, over, tuple(sure), unsure)


def _beyond(random: Estimate, knockout: Estimate) -> Estimate:
    """By how much a random cut does more than its quarter, either way.

    The ends are combined as if the two were independent. They rest on the same items; where they rise and fall
    together, their difference is surer than that.
    """
    low, high = random.value - random.ci_low, random.ci_high - random.value
    if random.value < 0:
        low, high = high, low
    value = abs(random.value) - SMALL_RATIO * knockout.value
    under = math.hypot(low, SMALL_RATIO * (knockout.ci_high - knockout.value))
    over = math.hypot(high, SMALL_RATIO * (knockout.value - knockout.ci_low))
    return Estimate(value, value - under, value + over, min(random.n, knockout.n), "ends combined as independent")


def _of_layers(
    found: Estimate, numbers: str, layer: int, over: tuple[int, ...], sure: tuple[int, ...], unsure: tuple[int, ...]
) -> Found:
    verdict: Verdict = "does not hold" if sure else "undecided" if unsure else "holds"
    doubtful = tuple(one for one in over if one not in sure)
    return Found(found, numbers, layer, failing=sure, doubtful=doubtful, verdict=verdict)


def _where(over: tuple[int, ...], sure: tuple[int, ...], unsure: tuple[int, ...]) -> str:
    """At which layers a control lies above its limit, where that is sure, and where it cannot be told."""
    told = {"above": over, "surely above": sure, "undecided": unsure}
    return "".join(f"; {word} at {layer_names(layers)}" for word, layers in told.items() if layers)


def _curve_ratio(about: About) -> Found:
    """How much the Q-Anchored line falls, layer by layer."""
    findings = about.findings
    rows = findings.curves.filter(
        (pl.col("dataset") == about.dataset)
        & (pl.col("site") == findings.site)
        & (pl.col("position") == findings.position)
        & (pl.col("assignment") == about.assignment)
        & (pl.col("group") == Q_ANCHORED)
        & (pl.col("truth") == "all")
    )
    enough = pl.col("n_groups") >= FEWEST_GROUPS  # a bootstrap of fewer has no honest interval
    ends = {"ci_low": -pl.col("ci_high"), "ci_high": -pl.col("ci_low")}
    rows = rows.select(
        "intervention",
        "layer",
        "n",
        share=-pl.col("delta_p"),
        **{name: pl.when(enough).then(end) for name, end in ends.items()},
    )
    knockout, random = (band_of(rows.filter(pl.col("intervention") == cut), math.inf) for cut in ("knockout", "random"))
    return _small_ratio(knockout, random, SEEN_BY_EYE)


def _ratio_to_knockout(about: About, control: Estimate | None) -> Found | None:
    """What a control takes, over what the key words take, over the band."""
    findings, dataset = about.findings, about.dataset or ""
    if control is None:
        return None
    ratio = size_ratio(control, share_at(findings, dataset))
    return Found(ratio, f"needs {estimate(control)}, ratio {estimate(ratio)}", share_layer(findings, dataset))


def _random_words(about: About) -> Found | None:
    return _ratio_to_knockout(about, share_at(about.findings, about.dataset or "", "random"))


def _floor(about: About) -> Found | None:
    """What is not in the clean state of another site, though nothing was cut."""
    result = result_of(about.findings, about.dataset or "", "floor")
    return _ratio_to_knockout(about, result.estimate if result else None)


def _random_weights(about: About) -> Found | None:
    """The same items through random weights, where that was run: what they give is in the words alone."""
    return _ratio_to_knockout(about, share_at(about.findings, about.dataset or "", "random-weights"))


def _permuted(about: About) -> Found | None:
    """Labels that say nothing: an interval that leaves out zero refutes it, and a wide one decides nothing."""
    findings, dataset = about.findings, about.dataset or ""
    share = share_at(findings, dataset, "permuted")
    if share is None:
        return None
    small = share.ci_low > -NEGLIGIBLE_SHARE and share.ci_high < NEGLIGIBLE_SHARE
    is_there = abs(share.value) > NEGLIGIBLE_SHARE and share.ci_low * share.ci_high > 0
    verdict: Verdict = "does not hold" if is_there else "holds" if small else "undecided"
    return Found(share, f"needs {estimate(share)}", share_layer(findings, dataset), verdict=verdict)


def _displacement(about: About) -> Found | None:
    """How far the random cut moves the states, over how far the knockout does; medians, without an interval."""
    findings, dataset = about.findings, about.dataset or ""
    moved = {result.intervention: result.estimate for result in results_of(findings, dataset, "displacement")}
    if not {"knockout", "random"} <= set(moved):
        return None
    ratio = moved["random"].value / moved["knockout"].value
    measured = Estimate(ratio, math.nan, math.nan, moved["random"].n, "ratio of medians")
    numbers = f"key words {number(moved['knockout'].value, 2)}, random words {number(moved['random'].value, 2)}"
    verdict: Verdict = "holds" if ratio >= MATCHED_DISPLACEMENT else "does not hold"
    return Found(measured, numbers, share_layer(findings, dataset), verdict=verdict)


def _nothing_cut(about: About) -> Found:
    rate = with_zero_bound(about.summary("flip_rate", "none"))
    return Found(rate, f"{percent(rate)} of {rate.n} items") if rate else Found()


def _of_parts(
    claim: str, topic: str, holds: str, fails: str, measure: Callable[[About], Found | None], unit: str = "ratio"
) -> Statement:
    def judge(measured: Found) -> Verdict:
        return measured.verdict or under(SMALL_RATIO)(measured)

    return Statement(claim, topic, holds, fails, measure, judge, standing="control", key=(None,), unit=unit)


SHARE_CONTROLS = (
    _of_parts(
        "share_random_small",
        "Random words",
        "less than a quarter as much of the evidence needs random words as needs the key words",
        "More than a quarter as much of the evidence needs random words as needs the key words",
        _random_words,
    ),
    _of_parts(
        "displacement_matched",
        "Displacement",
        "the random cut moves the states at least four fifths as far as the key words' cut",
        "The random cut moves the states less than four fifths as far as the key words' cut: damage is not controlled",
        _displacement,
    ),
    _of_parts(
        "share_floor_small",
        "Another site, nothing cut",
        "the clean state of another site holds nearly all of the evidence",
        "The clean state of another site lacks more than a quarter as much of the evidence as the cut state does",
        _floor,
    ),
    _of_parts(
        "share_permuted_zero",
        "Permuted labels",
        "permuted labels give no share",
        "Permuted labels give a share",
        _permuted,
        "share of the evidence",
    ),
    _of_parts(
        "share_random_weights",
        "Random weights",
        "random weights of the same shape have less than a quarter of the share",
        "Random weights of the same shape have more than a quarter of the share",
        _random_weights,
    ),
)
"""Of the parts."""
MATCHED_DISPLACEMENT = 0.8
"""How far a control has to move the states, of what the knockout does, to tell a loss from mere damage."""

CURVE_CONTROLS = (
    Statement(
        "random_small",
        "ΔP under random words",
        "random words move the Q-Anchored line by less than a quarter of the knockout at every layer where it "
        f"falls by more than {number(SEEN_BY_EYE, 0)} points",
        "Random words move the Q-Anchored line by more than a quarter of what the key words do",
        _curve_ratio,
        rules=("plain", "corrected"),
        key=("plain",),
        standing="control",
        unit="ratio",
    ),
    Statement(
        "noop",
        "ΔP with nothing cut",
        f"with nothing cut fewer than {number(100 * NOOP_FLIPS, 0)} % of the verdicts flip",
        f"With nothing cut, more than {number(100 * NOOP_FLIPS, 0)} % of the verdicts flip",
        _nothing_cut,
        under(NOOP_FLIPS),
        rules=("plain",),
        key=("plain",),
        standing="control",
        unit="share",
    ),
)
"""Of the paper's chart."""
