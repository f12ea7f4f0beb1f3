"""Controls: where one fails, the number that it belongs to must not be interpreted.

Controls of the parts are asked over the same band of layers as the parts: random words must do less than a quarter of
what the key words do and move the states as far, another site of the clean run must hold nearly all of the evidence,
permuted labels must give nothing. Controls of ΔP are asked at every layer, with intervals that hold for all layers at
once; one that fails at one layer with 95 % confidence has failed, and the layers are named.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from anchorscope.report.palette import Q_ANCHORED
from anchorscope.report.reading import Check, Measured, Subject, under
from anchorscope.report.shares import result_of, results_of, share_at, share_layer
from anchorscope.report.statements.layer_band import LayerBand, band_of, layer_names
from anchorscope.report.verdicts import (
    NEGLIGIBLE_SHARE,
    NOOP_FLIPS,
    SEEN_BY_EYE,
    SMALL_RATIO,
    Verdict,
    above,
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


def _curve_ratio(subject: Subject) -> Measured:
    """How much the Q-Anchored line falls, layer by layer."""
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


def _ratio_to_knockout(subject: Subject, control: Estimate | None) -> Measured | None:
    """What a control takes, over what the key words take, over the band."""
    findings, dataset = subject.findings, subject.dataset or ""
    if control is None:
        return None
    ratio = size_ratio(control, share_at(findings, dataset))
    return Measured(ratio, f"needs {estimate(control)}, ratio {estimate(ratio)}", share_layer(findings, dataset))


def _random_words(subject: Subject) -> Measured | None:
    return _ratio_to_knockout(subject, share_at(subject.findings, subject.dataset or "", "random"))


def _floor(subject: Subject) -> Measured | None:
    """What is not in the clean state of another site, though nothing was cut."""
    result = result_of(subject.findings, subject.dataset or "", "floor")
    return _ratio_to_knockout(subject, result.estimate if result else None)


def _random_weights(subject: Subject) -> Measured | None:
    """The same items through random weights, where that was run: what they give is in the words alone."""
    return _ratio_to_knockout(subject, share_at(subject.findings, subject.dataset or "", "random-weights"))


def _paraphrase(subject: Subject) -> Measured | None:
    """What is not in the clean state of the question in another sentence, where that was run."""
    return _ratio_to_knockout(subject, share_at(subject.findings, subject.dataset or "", "paraphrase"))


def _resample(subject: Subject) -> Measured | None:
    """What another item's key words take, where they were put in: the text has no hole."""
    measured = _ratio_to_knockout(subject, share_at(subject.findings, subject.dataset or "", "resample"))
    return measured and replace(measured, verdict=above(measured.estimate, LEAST_RESAMPLED))


def _permuted(subject: Subject) -> Measured | None:
    """Labels that say nothing: an interval that leaves out zero refutes it, and a wide one decides nothing."""
    findings, dataset = subject.findings, subject.dataset or ""
    share = share_at(findings, dataset, "permuted")
    if share is None:
        return None
    small = share.ci_low > -NEGLIGIBLE_SHARE and share.ci_high < NEGLIGIBLE_SHARE
    is_there = abs(share.value) > NEGLIGIBLE_SHARE and share.ci_low * share.ci_high > 0
    verdict: Verdict = "no" if is_there else "yes" if small else "inconclusive"
    return Measured(share, f"needs {estimate(share)}", share_layer(findings, dataset), verdict=verdict)


def _displacement(subject: Subject) -> Measured | None:
    """How far the random cut moves the states, over how far the knockout does; medians, without an interval."""
    findings, dataset = subject.findings, subject.dataset or ""
    moved = {result.intervention: result.estimate for result in results_of(findings, dataset, "displacement")}
    if not {"knockout", "random"} <= set(moved):
        return None
    ratio = moved["random"].value / moved["knockout"].value
    measured = Estimate(ratio, math.nan, math.nan, moved["random"].n, "ratio of medians")
    numbers = f"key words {number(moved['knockout'].value, 2)}, random words {number(moved['random'].value, 2)}"
    verdict: Verdict = "yes" if ratio >= MATCHED_DISPLACEMENT else "no"
    return Measured(measured, numbers, share_layer(findings, dataset), verdict=verdict)


def _nothing_cut(subject: Subject) -> Measured:
    rate = with_zero_bound(subject.summary("flip_rate", "none"))
    return Measured(rate, f"{percent(rate)} of {rate.n} items") if rate else Measured()


def _of_parts(
    claim: str, topic: str, holds: str, fails: str, measure: Callable[[Subject], Measured | None], unit: str = "ratio"
) -> Check:
    def judge(measured: Measured) -> Verdict:
        return measured.verdict or under(SMALL_RATIO)(measured)

    return Check(claim, topic, holds, fails, measure, judge, standing="control", key=(None,), unit=unit)


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
    _of_parts(
        "share_paraphrase_small",
        "Paraphrased question, nothing cut",
        "the clean state of a paraphrased question holds nearly all of the evidence",
        "The clean state of a paraphrased question lacks more than a quarter as much of the evidence as the cut state",
        _paraphrase,
    ),
    _of_parts(
        "share_resample_holds",
        "Key words of another question",
        "another question's key words take at least half as much of the evidence as hiding the key words does",
        "Another question's key words take less than half as much of the evidence as hiding the key words does",
        _resample,
    ),
)
"""Of the parts."""
LEAST_RESAMPLED = 0.5
"""What the resample cut has to take, of what the knockout does: less would be due to the hole in the text."""
MATCHED_DISPLACEMENT = 0.8
"""How far a control has to move the states, of what the knockout does, to tell a loss from mere damage."""

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
