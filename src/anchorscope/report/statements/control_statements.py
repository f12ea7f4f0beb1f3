"""Controls, checked at every layer: where one fails, the number there must not be interpreted.

Hiding random words must do less than a quarter of what hiding the key words does; hiding nothing must remove next to
nothing, and permuted labels nothing at all. All use bands for all layers at once, so that thirty layers are not thirty
chances to fail. A control that fails at one layer with 95 % confidence has failed, and the layers are named.
"""

import math
from collections.abc import Callable

import polars as pl

from anchorscope.report.palette import Q_ANCHORED
from anchorscope.report.reading import Check, Measured, Subject, under
from anchorscope.report.shares import share_at, share_layer
from anchorscope.report.statements.layer_band import LayerBand, band_of, layer_names, share_band
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


def _small_ratio(knockout: LayerBand | None, random: LayerBand | None, least: float) -> Measured:
    """Does a random cut do less than a quarter of the knockout, wherever that significantly does more than `least`?

    In either direction. A layer fails by the band for all layers, since the worst one is picked; it passes by its own
    interval, since every layer has to.
    """
    needed = knockout.surely_above(least) if knockout else ()
    asked = tuple(layer for layer in needed if random and layer in random.layers)
    if not (knockout and random and asked):
        return Measured()
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
) -> Measured:
    verdict: Verdict = "no" if sure else "inconclusive" if unsure else "yes"
    doubtful = tuple(one for one in over if one not in sure)
    return Measured(found, numbers, layer, failing=sure, doubtful=doubtful, verdict=verdict)


def _where(over: tuple[int, ...], sure: tuple[int, ...], unsure: tuple[int, ...]) -> str:
    """At which layers a control is above its limit, where that is significant, and where it is inconclusive."""
    words = {"above": over, "significantly above": sure, "inconclusive": unsure}
    return "".join(f"; {word} at {layer_names(layers)}" for word, layers in words.items() if layers)


def _share_ratio(subject: Subject) -> Measured:
    """Of the question share: what random words take, over what the key words take, layer by layer."""
    knockout, random = (share_band(subject.findings, subject.dataset or "", cut) for cut in ("knockout", "random"))
    return _small_ratio(knockout, random, NEGLIGIBLE_SHARE)


def _curve_ratio(subject: Subject) -> Measured:
    """The same of ΔP: how much the Q-Anchored line falls, layer by layer."""
    findings = subject.findings
    rows = findings.curves.filter(
        (pl.col("dataset") == subject.dataset)
        & (pl.col("site") == findings.site)
        & (pl.col("position") == findings.position)
        & (pl.col("assignment") == subject.assignment)
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


def _near_zero(subject: Subject, intervention: str, limit: float) -> Measured:
    """A share that should not be there, at every layer: fails where it surely lies beyond the limit, either way."""
    band = share_band(subject.findings, subject.dataset or "", intervention)
    if band is None:
        return Measured()
    place = int(abs(band.value).argmax())
    over = tuple(layer for layer, value in zip(band.layers, band.value, strict=True) if abs(value) >= NEGLIGIBLE_SHARE)
    sure = tuple(sorted((*band.surely_below(-limit), *band.surely_above(limit))))
    within = [layer for place_of, layer in enumerate(band.layers) if _inside(band.pointwise(place_of))]
    unsure = tuple(layer for layer in band.layers if layer not in (*sure, *within))
    numbers = f"farthest {estimate(band.estimate(place))} at layer {band.layers[place]}{_where(over, sure, unsure)}"
    return _of_layers(band.estimate(place), numbers, band.layers[place], over, sure, unsure)


def _inside(found: Estimate) -> bool:
    return found.ci_low > -NEGLIGIBLE_SHARE and found.ci_high < NEGLIGIBLE_SHARE


def _floor(subject: Subject) -> Measured:
    """What estimation alone loses: a tenth at most."""
    return _near_zero(subject, "none", NEGLIGIBLE_SHARE)


def _permuted(subject: Subject) -> Measured:
    """Labels that say nothing: a band that leaves out zero refutes it, and a wide one decides nothing."""
    return _near_zero(subject, "permuted", 0.0)


def _random_weights(subject: Subject) -> Measured | None:
    """The same items through random weights, where that was run: what they give is in the words alone."""
    findings, dataset = subject.findings, subject.dataset or ""
    layer = share_layer(findings, dataset)
    null = share_at(findings, dataset, layer, "random-weights")
    if null is None:
        return None
    ratio = size_ratio(null, share_at(findings, dataset, layer))
    return Measured(ratio, f"Λ {estimate(null)} at layer {layer}, ratio {estimate(ratio)}", layer)


def _nothing_cut(subject: Subject) -> Measured:
    rate = with_zero_bound(subject.summary("flip_rate", "none"))
    return Measured(rate, f"{percent(rate)} of {rate.n} items") if rate else Measured()


def _of_share(claim: str, topic: str, words: str, measure: Callable[[Subject], Measured | None], fails: str) -> Check:
    return Check(
        claim,
        topic,
        words,
        fails,
        measure,
        standing="control",
        key=(None,),
        unit="share of the evidence" if claim in ("share_floor_small", "share_permuted_zero") else "ratio",
    )


_QUARTER = "remove less than a quarter as much as the key words, at every layer"

SHARE_CONTROLS = (
    _of_share(
        "share_random_small",
        "Random words",
        f"random words {_QUARTER}",
        _share_ratio,
        "Random words remove more than a quarter as much as the key words",
    ),
    _of_share(
        "share_floor_small",
        "Nothing hidden",
        "with nothing hidden, less than 10% of the evidence is lost at every layer",
        _floor,
        "With nothing hidden, estimation alone loses more than 10% of the evidence",
    ),
    _of_share(
        "share_permuted_zero",
        "Permuted labels",
        "permuted labels show no question share at any layer",
        _permuted,
        "Permuted labels show a question share",
    ),
    Check(
        "share_random_weights",
        "Random weights",
        "random weights of the same shape show less than a quarter of the question share",
        "Random weights of the same shape show more than a quarter of the question share",
        _random_weights,
        under(SMALL_RATIO),
        standing="control",
        unit="ratio",
        key=(None,),
    ),
)
"""Of the question share."""

CURVE_CONTROLS = (
    Check(
        "random_small",
        "ΔP with random words hidden",
        "random words move the Q-Anchored line less than a quarter as far as the key words, where it "
        f"falls by more than {number(SEEN_BY_EYE, 0)} points",
        "Random words move the Q-Anchored line more than a quarter as far as the key words",
        _curve_ratio,
        rules=("plain", "corrected"),
        key=("plain",),
        standing="control",
        unit="ratio",
    ),
    Check(
        "noop",
        "ΔP with nothing hidden",
        f"with nothing hidden fewer than {number(100 * NOOP_FLIPS, 0)}% of the verdicts flip",
        f"With nothing hidden, more than {number(100 * NOOP_FLIPS, 0)}% of the verdicts flip",
        _nothing_cut,
        under(NOOP_FLIPS),
        rules=("plain",),
        key=("plain",),
        standing="control",
        unit="share",
    ),
)
"""Of the paper's chart."""
